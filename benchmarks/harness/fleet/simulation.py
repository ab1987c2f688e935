"""The clock: developers, the bridges in their editors, the front and the replicas, with simpy.

A key that the suggestion at hand does not say ends what was asked before, waits as the bridge waits
(its own `Debounce`), and asks. What follows a suggestion is asked ahead. The front routes; a
replica takes its steps one after the other. What the network and the front take is left out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import simpy

from harness.fleet.developers import Chance, Habits, Suggestion, Trace, suggestion
from harness.fleet.engines import Engine
from harness.fleet.prompts import MAX_ANCHORS, Layout, Planner
from harness.fleet.replica import Job, Replica
from harness.fleet.routing import Asked, Bound, Policy
from harness.trace import Key
from suture.lsp.debounce import Debounce

Process = Generator[simpy.Event, Any, Any]
End = Literal["", "answered", "superseded", "broken", "open"]


@dataclass(slots=True, eq=False)
class Request:
    """One that the front got. `is_again`: the front had its file before. Times are seconds."""

    asked: Asked
    at_s: float
    is_again: bool
    is_ahead: bool
    event: simpy.Event
    replica: str = ""
    first_s: float | None = None
    end: End = ""

    @property
    def job(self) -> Job:
        return self.asked.job


@dataclass(frozen=True, slots=True)
class Change:
    """At a time a replica comes, or goes with what it has open."""

    at_s: float
    what: Literal["comes", "goes"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated. The first `warm_s` seconds count for nothing."""

    engine: Engine
    n_replicas: int
    n_developers: int
    seconds: float
    warm_s: float = 60.0
    layout: Layout = "anchor"
    n_anchors: int = MAX_ANCHORS
    sends_text: bool = False
    bound: Bound = field(default_factory=Bound)
    habits: Habits = field(default_factory=Habits)
    change: Change | None = None
    seed: int = 1


class Fleet:
    """The front and its replicas. `requests` are all that it got."""

    def __init__(self, env: simpy.Environment, setting: Setting, policy: Policy) -> None:
        self.env = env
        self.requests: list[Request] = []
        self.replicas: list[Replica] = []
        self._setting = setting
        self._policy = policy
        self._planner = Planner(setting.layout, setting.n_anchors)
        self._seen: set[Hashable] = set()
        self._open: dict[Job, Request] = {}
        self._wakes: dict[str, simpy.Event] = {}
        self._n_named = 0
        for _ in range(setting.n_replicas):
            self.add_replica()

    def add_replica(self) -> None:
        replica = Replica(f"replica {self._n_named}", self._setting.engine)
        self._n_named += 1
        self.replicas.append(replica)
        self._wakes[replica.name] = self.env.event()
        self.env.process(self._run(replica))

    def lose_replica(self) -> None:
        """The first one dies. Who has no text yet is asked for again elsewhere; the rest broke."""
        lost = self.replicas.pop(0)
        for job in lost.jobs:
            request = self._open.pop(job)
            if request.first_s is None:
                fresh = Job(job.blocks, job.n_prompt, job.n_output, job.n_covers)
                user, file, text = request.asked.user, request.asked.file, request.asked.text
                request.asked = Asked(user, file, fresh, text)
                self._route(request)
            else:
                self._end(request, "broken")

    def ask(self, user: int, file: Hashable, key: Key, n_answer: int, is_ahead: bool) -> Request:
        """Plan and route a request, whose event comes when its answer ends."""
        owner, engine = (user, file), self._setting.engine
        prompt = self._planner.plan(owner, key)
        blocks = prompt.blocks(engine.block, owner)
        n_covers, n_again = (prompt.n_pending, 0) if engine.covers else (0, prompt.n_pending)
        job = Job(blocks, prompt.n_tokens, n_answer + n_again, n_covers)
        asked = Asked(user, file, job, blocks if self._setting.sends_text else ())
        is_again = owner in self._seen
        self._seen.add(owner)
        request = Request(asked, self.env.now, is_again, is_ahead, self.env.event())
        self.requests.append(request)
        self._route(request)
        return request

    def end(self, request: Request) -> None:
        """Its client has left."""
        if not request.end:
            self._open.pop(request.job, None)
            replica = next((one for one in self.replicas if one.name == request.replica), None)
            if replica is not None:
                replica.cancel(request.job)
            self._end(request, "superseded")

    def close(self) -> None:
        for request in self._open.values():
            request.end = "open"

    def _route(self, request: Request) -> None:
        replica = self._policy.choose(request.asked, self.replicas)
        request.replica = replica.name
        self._open[request.job] = request
        replica.submit(request.job)
        wake = self._wakes[replica.name]
        if not wake.triggered:
            wake.succeed()

    def _run(self, replica: Replica) -> Process:
        while replica in self.replicas:
            seconds = replica.begin()
            if seconds is None:
                self._wakes[replica.name] = self.env.event()
                yield self._wakes[replica.name]
                continue
            yield self.env.timeout(seconds)
            for job in replica.finish():
                request = self._open.get(job)
                if request is not None:
                    self._note(request)

    def _note(self, request: Request) -> None:
        if request.first_s is None:
            request.first_s = self.env.now - request.at_s
        if request.job.outcome == "done":
            del self._open[request.job]
            self._end(request, "answered")

    def _end(self, request: Request, end: End) -> None:
        request.end = end
        request.event.succeed()


class Developer:
    """One who types, and the bridge of the editor. `counts` is of keys, and of what was shown."""

    def __init__(
        self,
        fleet: Fleet,
        user: int,
        setting: Setting,
        known: Sequence[Trace],
        counts: Counter[str],
    ) -> None:
        self._fleet = fleet
        self._env = fleet.env
        self._user = user
        self._habits = setting.habits
        self._warm_s = setting.warm_s
        self._known = known
        self._counts = counts
        self._chance = Chance(setting.seed, user)
        self._debounce = Debounce()
        self._flight: simpy.Process | None = None
        self._ahead: tuple[int, Request] | None = None
        self._shown: Suggestion | None = None

    def type(self) -> Process:
        for file in itertools.count():
            rng = self._chance.of(file)
            yield self._env.timeout(rng.expovariate(1 / self._habits.file_s))
            yield from self._type_in(file, rng.choice(self._known))
            self._leave()

    def _type_in(self, file: int, trace: Trace) -> Process:
        n = 0
        while n < len(trace.keys):
            rng = self._chance.of(file, n, "pause")
            yield self._env.timeout(self._habits.between_keys(rng, trace.keys[n]))
            if self._shown is not None and self._shown.is_taken:
                yield self._env.timeout(self._habits.look_s)
                n = trace.line_ends[n - 1]
                self._count("taken")
                self._ask(file, trace, n)
            elif self._shown is not None and self._shown.n_right:
                self._count("at hand")
                self._shown = Suggestion(self._shown.n_right - 1, False)
            else:
                self._count("typed")
                self._ask(file, trace, n)
            n += 1

    def _ask(self, file: int, trace: Trace, n: int) -> None:
        self._shown = None
        if self._flight is not None and self._flight.is_alive:
            self._flight.interrupt()
        if self._ahead is not None and self._ahead[0] != n:
            self._end_ahead()
        self._flight = self._env.process(self._fly(file, trace, n))

    def _fly(self, file: int, trace: Trace, n: int) -> Process:
        request = None
        try:
            if self._ahead is not None:
                request = self._ahead[1]
                self._ahead = None
            else:
                yield self._env.timeout(self._debounce.wait_ms(True) / 1000)
                started = self._env.now
                request = self._request(file, trace, n, is_ahead=False)
                yield request.event
                if request.end == "answered":
                    self._debounce.answered((self._env.now - started) * 1000)
            if not request.end:
                yield request.event
            if request.end == "answered":
                self._show(file, trace, n)
        except simpy.Interrupt:
            if request is None:
                self._count("not asked")
            else:
                self._fleet.end(request)

    def _show(self, file: int, trace: Trace, n: int) -> None:
        self._count("shown")
        self._shown = suggestion(self._chance.of(file, n), self._habits, trace, n)
        end = trace.line_ends[n]
        if end > n:
            self._end_ahead()
            self._ahead = end, self._request(file, trace, end, is_ahead=True)

    def _request(self, file: int, trace: Trace, n: int, is_ahead: bool) -> Request:
        return self._fleet.ask(self._user, file, trace.keys[n], trace.n_answers[n], is_ahead)

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            self._fleet.end(self._ahead[1])
            self._ahead = None

    def _leave(self) -> None:
        """Another file: what runs for this one ends."""
        if self._flight is not None and self._flight.is_alive:
            self._flight.interrupt()
        self._end_ahead()
        self._shown = None

    def _count(self, what: str) -> None:
        if self._env.now >= self._warm_s:
            self._counts[what] += 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one simulation: the requests after the warm-up, what became of keys, and the fleet."""

    setting: Setting
    requests: Sequence[Request]
    keys: Counter[str]
    replicas: Sequence[Replica]


def simulate(setting: Setting, policy: Policy, known: Sequence[Trace]) -> Outcome:
    env = simpy.Environment()
    fleet = Fleet(env, setting, policy)
    counts: Counter[str] = Counter()
    for user in range(setting.n_developers):
        env.process(Developer(fleet, user, setting, known, counts).type())
    if setting.change is not None:
        env.process(_change(env, fleet, setting.change))
    env.run(until=setting.seconds)
    fleet.close()
    counted = [one for one in fleet.requests if one.at_s >= setting.warm_s]
    return Outcome(setting, counted, counts, fleet.replicas)


def _change(env: simpy.Environment, fleet: Fleet, change: Change) -> Process:
    yield env.timeout(change.at_s)
    act: dict[str, Callable[[], None]] = {"comes": fleet.add_replica, "goes": fleet.lose_replica}
    act[change.what]()
