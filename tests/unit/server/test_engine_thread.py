"""The engine's thread with several models on it: whose turn it is, and that there is one thread."""

from __future__ import annotations

import gc
import itertools
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from support.driving import TIMEOUT_S, collect
from support.toy import toy_encode, toy_generation, toy_vocabulary
from suture.server.engine.abort import AbortFlag
from suture.server.engine.job import Job
from suture.server.engine.protocol import Batch, Logits
from suture.server.engine.runs import PREFILL_CHUNK, PREFILL_SLICE
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import ScriptedEngine, random_model, speaking_model
from suture.server.engine.thread import Demand, EngineThread
from suture.server.errors import EngineError
from suture.server.request import CompletionRequest

VOCABULARY = toy_vocabulary()
Evaluations = list[tuple[str, int]]


class Counted:
    """A member that demands each of its turns, and notes them."""

    def __init__(self, name: str, turns: list[str], *demands: Demand) -> None:
        self.name = name
        self.demands = list(demands)
        self.done = threading.Event()
        self._turns = turns

    def demand(self) -> Demand | None:
        return self.demands[0] if self.demands else None

    def end_spare(self) -> None:
        self.demands = [demand for demand in self.demands if demand != "spare"]

    def turn(self) -> None:
        self._turns.append(self.name)
        self.demands.pop(0)
        if not self.demands:
            self.done.set()


def turns_of(*members: tuple[str, list[Demand]]) -> list[str]:
    """The turns of members that are all there when the thread looks for the first time."""
    turns: list[str] = []
    thread = EngineThread()
    counted = [Counted(name, turns, *demands) for name, demands in members]
    with thread.changed:
        for member in counted:
            thread.join(member)
    for member in counted:
        assert member.done.wait(TIMEOUT_S)
    thread.close()
    return turns


def test_w1_members_with_work_have_turns_one_after_the_other() -> None:
    members: list[tuple[str, list[Demand]]] = [
        ("a", ["work"] * 3),
        ("b", ["load", "work"]),
        ("c", ["work"] * 3),
    ]
    assert turns_of(*members) == ["a", "b", "c", "a", "b", "c", "a", "c"]


def test_w1_what_is_to_be_freed_goes_first() -> None:
    members: list[tuple[str, list[Demand]]] = [("a", ["work"] * 2), ("b", ["free"])]
    assert turns_of(*members) == ["b", "a", "a"]


def test_w2_spare_work_is_done_while_nobody_has_any_other() -> None:
    members: list[tuple[str, list[Demand]]] = [("a", ["spare"] * 2), ("b", ["work"] * 3)]
    assert turns_of(*members) == ["b", "b", "b", "a", "a"]


def test_w2_work_that_comes_ends_the_spare_work_of_every_model() -> None:
    with two(None, b"def x = user") as models:
        engine = models.engines["a"]
        engine.gate.clear()
        told: queue.Queue[object] = queue.Queue()
        spare = toy_generation(CompletionRequest("def x = me + " * 300, max_tokens=0), engine)
        models.schedulers["a"].submit_spare(Job(spare, told.put))
        answer = models.submit("b", CompletionRequest("def x ="))
        engine.gate.set()
        assert collect(answer)[0] == " user"
        assert collect(told)[1].finish == "cancelled"


def test_a_turn_that_raises_takes_no_other_member_with_it() -> None:
    class Broken(Counted):
        def turn(self) -> None:
            super().turn()
            raise ValueError("broken on purpose")

    turns: list[str] = []
    thread = EngineThread()
    broken, whole = Broken("a", turns, "work", "work"), Counted("b", turns, "work", "work")
    with thread.changed:
        thread.join(broken)
        thread.join(whole)
    assert whole.done.wait(TIMEOUT_S)
    thread.close()
    assert turns == ["a", "b", "b"]


def test_a_turn_that_raises_while_another_model_is_loaded_fails_none_but_its_own() -> None:
    class Broken(Counted):
        def turn(self) -> None:
            raise ValueError("broken on purpose")

    turns: list[str] = []
    thread = EngineThread()
    broken, whole = Broken("a", turns, "work"), Counted("b", turns, "work")
    loading = Counted("c", turns, "load")
    thread._members = [broken, whole, loading]
    thread.give_way(loading)
    assert turns == ["b"] and thread._members == [whole, loading]


class Watched(ScriptedEngine):
    """Notes its evaluations, and on which threads it was called."""

    def __init__(self, name: str, text: bytes | None, evaluations: Evaluations) -> None:
        model = random_model(VOCABULARY.n_vocab)
        super().__init__(
            VOCABULARY, toy_encode, model if text is None else speaking_model(VOCABULARY, text)
        )
        self.threads = {threading.get_ident()}
        self.gate = threading.Event()
        self.gate.set()
        self.is_closed = False
        self._name = name
        self._evaluations = evaluations

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        assert self.gate.wait(TIMEOUT_S)
        self.threads.add(threading.get_ident())
        self._evaluations.append((self._name, sum(len(tree) for _, tree in batch)))
        return super().evaluate(batch, abort)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True


class Two:
    """Two models on one thread, and what was evaluated for which."""

    def __init__(self, first: bytes | None, second: bytes | None) -> None:
        self.thread = EngineThread()
        self.evaluations: Evaluations = []
        self.engines: dict[str, Watched] = {}
        self.schedulers = {
            name: Scheduler(self._maker(name, text), thread=self.thread)
            for name, text in (("a", first), ("b", second))
        }
        for scheduler in self.schedulers.values():
            scheduler.start()
            scheduler.wait_ready(TIMEOUT_S)

    def _maker(self, name: str, text: bytes | None) -> Callable[[], ScriptedEngine]:
        def make() -> ScriptedEngine:
            self.engines[name] = Watched(name, text, self.evaluations)
            return self.engines[name]

        return make

    def submit(self, name: str, request: CompletionRequest) -> queue.Queue[object]:
        answers: queue.Queue[object] = queue.Queue()
        job = Job(toy_generation(request, self.engines[name]), answers.put)
        self.schedulers[name].submit(job)
        return answers

    def close(self) -> None:
        for scheduler in self.schedulers.values():
            scheduler.close()
        self.thread.close()


@contextmanager
def two(first: bytes | None, second: bytes | None) -> Iterator[Two]:
    models = Two(first, second)
    try:
        yield models
    finally:
        models.close()


def test_each_model_says_its_own_text_and_one_thread_does_it_all() -> None:
    with two(b"def x = (me)", b"def x = user") as models:
        answers = [models.submit(name, CompletionRequest("def x =")) for name in "abab"]
        assert [collect(answer)[0] for answer in answers] == [" (me)", " user"] * 2
    assert all(engine.is_closed for engine in models.engines.values())
    threads = {ident for engine in models.engines.values() for ident in engine.threads}
    assert len(threads) == 1


def test_w1_a_long_prompt_of_one_model_stalls_who_types_in_another_by_a_chunk() -> None:
    with two(None, None) as models:
        models.engines["b"].gate.clear()
        prompt = CompletionRequest("def x = me + " * 300, max_tokens=1)
        typed = [
            models.submit("b", CompletionRequest("def x", max_tokens=12, ignore_eos=True)),
            models.submit("a", prompt),
        ]
        models.engines["b"].gate.set()
        for answer in typed:
            collect(answer)
        evaluations = models.evaluations
    of_b = [i for i, (name, _) in enumerate(evaluations) if name == "b"]
    between = [evaluations[i + 1 : j] for i, j in itertools.pairwise(of_b)]
    assert sum(map(len, between)) >= 8
    assert all(len(others) <= 1 for others in between)
    assert all(n <= PREFILL_SLICE for others in between for _, n in others)
    # Alone, it is read in larger ones.
    assert max(n for _, n in evaluations[of_b[-1] + 1 :]) == PREFILL_CHUNK


def test_one_is_freed_while_the_other_goes_on() -> None:
    with two(b"def x = (me)", b"def x = user") as models:
        models.schedulers["a"].close()
        assert models.engines["a"].is_closed
        with pytest.raises(EngineError, match="shutting down"):
            models.submit("a", CompletionRequest("def x ="))
        assert collect(models.submit("b", CompletionRequest("def x =")))[0] == " user"
        assert not models.engines["b"].is_closed


def test_an_engine_that_is_gone_is_one_models_alone() -> None:
    with two(None, b"def x = user") as models:

        def broken(sequence: object) -> Sequence[int]:
            raise ValueError("broken on purpose")

        vars(models.engines["a"]).update(tokens=broken, release=broken)
        with pytest.raises(EngineError, match="the engine failed"):
            collect(models.submit("a", CompletionRequest("def x")))
        assert models.schedulers["a"].state == "failed"
        assert collect(models.submit("b", CompletionRequest("def x =")))[0] == " user"


def test_w3_while_one_is_loaded_the_other_goes_on() -> None:
    with two(None, b"") as models:
        models.schedulers["b"].close()
        began, n_meanwhile = threading.Event(), list[int]()

        def load() -> ScriptedEngine:
            began.set()
            n_before = len(models.evaluations)
            while len(models.evaluations) < n_before + 10:
                assert scheduler.may_load_on()
            n_meanwhile.append(len(models.evaluations) - n_before)
            return Watched("c", b"def x = user", models.evaluations)

        answer = models.submit("a", CompletionRequest("def x", max_tokens=200, ignore_eos=True))
        scheduler = Scheduler(load, thread=models.thread)
        scheduler.start()
        assert began.wait(TIMEOUT_S)
        scheduler.wait_ready(TIMEOUT_S)
        assert n_meanwhile == [10]
        assert collect(answer)[1].completion_tokens == 200
        scheduler.close()


def test_w3_who_goes_on_gets_no_more_time_than_the_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    turns: list[str] = []
    thread = EngineThread()

    class Slow(Counted):
        def turn(self) -> None:
            nonlocal now
            now += 2.0
            super().turn()

    demands: list[Demand] = ["work"] * 9
    loading = Counted("b", turns)
    thread._members = [Slow("a", turns, *demands), loading]
    for _ in range(8):
        now += 0.5
        thread.give_way(loading)
    # Of the twelve seconds four are loading's: at 0.5, and each time when 2 more have passed.
    assert len(turns) == 2


def test_a_thread_that_gives_no_turns_holds_nobody() -> None:
    thread = EngineThread()
    member = Counted("a", [], "work")
    thread.join(member)
    assert member.done.wait(TIMEOUT_S)
    thread.leave(member)
    held = weakref.ref(member)
    del member
    gc.collect()
    assert held() is None
    thread.close()


def test_w3_one_is_freed_while_another_is_loaded() -> None:
    with two(None, b"") as models:
        models.schedulers["b"].close()
        began, is_closed = threading.Event(), list[bool]()

        def load() -> ScriptedEngine:
            began.set()
            while not models.engines["a"].is_closed:
                scheduler.may_load_on()
            is_closed.append(True)
            return Watched("c", b"def x = user", models.evaluations)

        scheduler = Scheduler(load, thread=models.thread)
        scheduler.start()
        assert began.wait(TIMEOUT_S)
        models.schedulers["a"].close()
        scheduler.close()
        assert is_closed
