"""What has been done since the start, in plain numbers that cost the thread that counts nothing.

Each object has one thread that writes it; any thread may read, and sees each number as it was a
moment ago. No lock is taken: who decodes never waits for who looks. `metrics.py` gives the numbers
their names.
"""

from __future__ import annotations

import collections
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from suture.server.request import CompletionResult, FinishReason, HealingLevel

Phase = Literal["queued", "prompt", "decode"]

SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
TOKENS = (0.0, *(float(1 << n) for n in range(14)))
BYTES = (0.0, *(float(1 << n) for n in range(13)))
TEXTS = tuple(float(1 << n) for n in range(9))


class Tally:
    """How many values were at most each of `bounds`, which ascend, and the sum of all values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def with_zeros(self, n: int) -> Tally:
        """A copy in which the value 0 was observed `n` times more."""
        copy = Tally(self.bounds)
        copy.counts, copy.total = list(self.counts), self.total
        copy.counts[0] += n
        return copy

    def __add__(self, other: Tally) -> Tally:
        """One that has observed what both have, which have the same bounds."""
        both = Tally(self.bounds)
        both.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both


def _seconds() -> Tally:
    return Tally(SECONDS)


def _tokens() -> Tally:
    return Tally(TOKENS)


def _bytes() -> Tally:
    return Tally(BYTES)


def _texts() -> Tally:
    return Tally(TEXTS)


@dataclass(slots=True)
class Counters:
    """The engine's thread counts here, but for `cancelled_waiting`: under the scheduler's lock.

    `prompt_tokens` are those of all prompts that were begun; `reused_tokens` of them were in the
    cache, and `evaluated_tokens` were read until now, again where a run had to step aside;
    `cover_tokens` were evaluated besides, to heal what stands at the cursor.
    `cells_free` and the sequences are as they were after the last step.
    """

    jobs: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    evaluated_tokens: int = 0
    cover_tokens: int = 0
    generated_tokens: int = 0
    failures: int = 0
    prompt_seconds: float = 0.0
    predicted_seconds: float = 0.0
    detokenize_seconds: float = 0.0
    evaluations: int = 0
    busy_places: int = 0
    first_tokens: int = 0
    longest_sequence: int = 0
    drafts: int = 0
    drafted_tokens: int = 0
    accepted: collections.Counter[int] = field(default_factory=collections.Counter)
    """Drafts by how many of their tokens came true."""
    held_steps: int = 0
    finishes: collections.Counter[FinishReason] = field(default_factory=collections.Counter)
    ended_early: collections.Counter[tuple[FinishReason, Phase]] = field(
        default_factory=collections.Counter
    )
    cancelled_waiting: collections.Counter[FinishReason] = field(
        default_factory=collections.Counter
    )
    queue_s: Tally = field(default_factory=_seconds)
    inter_token_s: Tally = field(default_factory=_seconds)
    cancel_s: Tally = field(default_factory=_seconds)
    evaluated_per_request: Tally = field(default_factory=_tokens)
    held_bytes: Tally = field(default_factory=_bytes)
    cells_free: int = 0
    sequences_running: int = 0
    sequences_idle: int = 0
    sequences_saved: int = 0

    def evaluated(self, n_places: int) -> None:
        """One evaluation, of tokens of so many requests."""
        self.evaluations += 1
        self.busy_places += n_places

    def drafted(self, n_proposed: int, n_accepted: int) -> None:
        """A draft was verified."""
        self.drafts += 1
        self.drafted_tokens += n_proposed
        self.accepted[n_accepted] += 1

    def drawn(self, gap_s: float | None) -> None:
        """A request drew tokens, so long after it did before; None for the first time."""
        if gap_s is None:
            self.first_tokens += 1
        else:
            self.inter_token_s.observe(gap_s)

    def ended(self, result: CompletionResult, n_evaluated: int) -> None:
        """A request that ran has its result."""
        self.finishes[result.finish] += 1
        self.generated_tokens += result.completion_tokens
        self.prompt_seconds += result.timings.prompt_ms / 1000
        self.predicted_seconds += result.timings.predicted_ms / 1000
        self.held_steps += result.stream.held_steps
        self.held_bytes.observe(result.stream.held_max_bytes)
        self.evaluated_per_request.observe(n_evaluated)

    def failed(self, n_evaluated: int) -> None:
        """A request that ran has ended with an error."""
        self.failures += 1
        self.evaluated_per_request.observe(n_evaluated)


@dataclass(slots=True)
class RequestCounters:
    """The event loop counts here what happens before the engine's queue, and in place of it.

    `continued` requests got the rest of an answer that was known; `superseded` ones came after a
    newer one of their session, or were planned when it came.
    """

    continued: int = 0
    superseded: int = 0
    encode_wait_s: Tally = field(default_factory=_seconds)
    encode_s: Tally = field(default_factory=_seconds)


@dataclass(slots=True)
class EncodeCounters:
    """The encoding queue's thread counts here. `batches_cut` went without texts that were there
    and had other special-token flags.
    """

    batch_texts: Tally = field(default_factory=_texts)
    batches_cut: int = 0


@dataclass(slots=True)
class ShownCounters:
    """What users did with the texts that they were shown, as their clients tell; the event loop
    counts here.

    `events` by what was done ("view", "select", "dismiss") and with how much of the text: "all"
    or the first "line".
    """

    events: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)


@dataclass(slots=True)
class TenantCounters:
    """What the tenants asked for; the event loop counts here.

    `requests` by tenant and by whether they got a place: "accepted", or "refused" for a limit.
    """

    requests: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)


@dataclass(frozen=True, slots=True)
class HeldModel:
    """A model that may be served, and the bytes that it takes or would take; 0: not known."""

    name: str
    is_loaded: bool
    n_bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredBackend:
    """A server that runs the model, and what was asked of it; `level` None until it was probed.

    `why` says what it lacks, or what its level rests on. `first_event_s` is how long its first
    events take of late, None before the first.
    """

    name: str
    state: str
    why: str
    kind: str | None
    version: str
    level: HealingLevel | None
    running: int
    requests: int
    failures: Mapping[str, int]
    first_event_s: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """All there is to see at one moment.

    `spare` is of work that nobody asked for. `preparing` requests are being planned.
    """

    counters: Counters = field(default_factory=Counters)
    requests: RequestCounters = field(default_factory=RequestCounters)
    spare: Counters = field(default_factory=Counters)
    encoding: EncodeCounters = field(default_factory=EncodeCounters)
    shown: ShownCounters = field(default_factory=ShownCounters)
    tenants: TenantCounters = field(default_factory=TenantCounters)
    running: int = 0
    waiting: int = 0
    preparing: int = 0
    prefill_tokens_per_s: float = 0.0
    models: tuple[HeldModel, ...] = ()
    backends: tuple[MeasuredBackend, ...] = ()

    def summary(self) -> dict[str, object]:
        """The most telling of the numbers, by the names that `/v1/status` has for them."""
        counters = self.counters
        return {
            "running": self.running,
            "waiting": self.waiting,
            "requests": counters.jobs,
            "failures": counters.failures,
            "prompt_tokens": counters.prompt_tokens,
            "reused_tokens": counters.reused_tokens,
            "generated_tokens": counters.generated_tokens,
            "prefill_tokens_per_s": round(self.prefill_tokens_per_s, 1),
        }


def together(measured: Sequence[Measured]) -> Measured:
    """What several models have counted, as if one had; the speed is that of the first."""
    if len(measured) == 1:
        return measured[0]
    return Measured(
        counters=_sum([one.counters for one in measured]),
        requests=_sum([one.requests for one in measured]),
        spare=_sum([one.spare for one in measured]),
        encoding=_sum([one.encoding for one in measured]),
        running=sum(one.running for one in measured),
        waiting=sum(one.waiting for one in measured),
        preparing=sum(one.preparing for one in measured),
        prefill_tokens_per_s=next((one.prefill_tokens_per_s for one in measured), 0.0),
    )


Counts = TypeVar("Counts", Counters, RequestCounters, EncodeCounters)


def _sum(parts: Sequence[Counts]) -> Any:
    whole = type(parts[0])()
    for one in fields(whole):
        values = [getattr(part, one.name) for part in parts]
        setattr(whole, one.name, _added(one.name, values))
    return whole


def _added(name: str, values: Sequence[Any]) -> Any:
    if name == "longest_sequence":
        return max(values)
    added = values[0]
    for value in values[1:]:
        added = _both(added, value)
    return added


def _both(one: Any, other: Any) -> Any:
    if isinstance(one, collections.Counter):
        # Copies made at one moment: the engine's thread may be counting in them.
        return collections.Counter(dict(one)) + collections.Counter(dict(other))
    return one + other
