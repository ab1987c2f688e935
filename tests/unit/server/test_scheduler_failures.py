"""A failing engine under several generations: who fails, who goes on, who is told to retry."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from support.driving import TIMEOUT_S, collect
from support.toy import toy_encode, toy_generation, toy_vocabulary
from suture.server.engine.abort import AbortFlag
from suture.server.engine.job import Job
from suture.server.engine.protocol import Batch, Logits, Memory
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import ScriptedEngine, random_model
from suture.server.errors import EngineError, Unavailable
from suture.server.request import CompletionRequest, CompletionResult

VOCABULARY = toy_vocabulary()
MODEL = random_model(VOCABULARY.n_vocab)
POISON = toy_encode(b"?")[0]
REQUESTS = [
    CompletionRequest(text, max_tokens=30, ignore_eos=True)
    for text in ("def x", "a? b", "const user", "import nu")
]

Answers = queue.Queue[object]


class Failing(ScriptedEngine):
    """Cannot decode a batch with the poison in it; its rows lie in one buffer, as llama.cpp's do.

    Where the memory is a state, a failure empties every sequence.
    """

    def __init__(self, *, has_state: bool = False) -> None:
        memory: Memory = "recurrent" if has_state else "full"
        super().__init__(VOCABULARY, toy_encode, MODEL, memory=memory)
        self.gate = threading.Event()
        self._buffer = np.empty((64, VOCABULARY.n_vocab), np.float32)

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        assert self.gate.wait(TIMEOUT_S)
        self._buffer[:] = np.nan
        if any(POISON in tree.tokens for _, tree in batch):
            if not self.can_branch:
                for sequence in list(self._tokens):
                    self.truncate(sequence, 0)
            raise EngineError("llama_decode failed with code -3: broken on purpose")
        rows, n_used = [], 0
        for part in super().evaluate(batch, abort):
            self._buffer[n_used : n_used + len(part)] = part
            rows.append(self._buffer[n_used : n_used + len(part)])
            n_used += len(part)
        return rows


@contextmanager
def running(engine: ScriptedEngine) -> Iterator[Scheduler]:
    scheduler = Scheduler(lambda: engine, parallel=4)
    scheduler.start()
    scheduler.wait_ready(TIMEOUT_S)
    try:
        yield scheduler
    finally:
        scheduler.close()


def submit(scheduler: Scheduler, engine: ScriptedEngine, request: CompletionRequest) -> Answers:
    answers: Answers = queue.Queue()
    scheduler.submit(Job(toy_generation(request, engine), answers.put))
    return answers


def together(engine: Failing, scheduler: Scheduler) -> list[Answers]:
    """All requests, in the engine at once from its first step on."""
    answers = [submit(scheduler, engine, request) for request in REQUESTS]
    engine.gate.set()
    return answers


def expected(requests: Sequence[CompletionRequest]) -> list[tuple[str, CompletionResult]]:
    engine = ScriptedEngine(VOCABULARY, toy_encode, MODEL)
    with running(engine) as scheduler:
        return [collect(submit(scheduler, engine, request)) for request in requests]


def test_a_decode_that_fails_fails_one_and_the_others_say_the_same() -> None:
    """llama.cpp#10072: after a batch in which one failed, each has its own rows and no other's."""
    engine = Failing()
    with running(engine) as scheduler:
        first, poisoned, third, fourth = together(engine, scheduler)
        with pytest.raises(EngineError, match="code -3"):
            collect(poisoned)
        said = [collect(answer)[0] for answer in (first, third, fourth)]
        assert scheduler.counters.failures == 1
    assert said == [text for text, _ in expected([*REQUESTS[:1], *REQUESTS[2:]])]


def test_where_a_failure_empties_all_states_nobody_goes_on_from_nothing() -> None:
    engine = Failing(has_state=True)
    with running(engine) as scheduler:
        texts, told_to_retry = [], 0
        for request, answer in zip(REQUESTS, together(engine, scheduler), strict=True):
            try:
                texts.append((request, collect(answer)[0]))
            except Unavailable as error:
                told_to_retry += 1
                assert error.retry_after == 1
            except EngineError:
                assert request is REQUESTS[1]
        again = collect(submit(scheduler, engine, REQUESTS[0]))[0]
    assert told_to_retry + len(texts) == 3
    for (_, text), (whole, _) in zip(texts, expected([one for one, _ in texts]), strict=True):
        assert text == whole
    assert again == expected(REQUESTS[:1])[0][0]
