"""The loop on the scripted engine: reuse, cancelling, failures; the text depends on none of it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.driving import TIMEOUT_S, collect
from support.toy import special, toy_encode, toy_generation, toy_vocabulary
from suture.server.engine.abort import AbortFlag
from suture.server.engine.job import Job
from suture.server.engine.protocol import Batch, Logits
from suture.server.engine.runs import PREFILL_CHUNK
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine, random_model, speaking_model
from suture.server.errors import EngineError, Loading, QueueFull, SetupError
from suture.server.request import (
    CompletionRequest,
    CompletionResult,
    SamplingParams,
)

VOCABULARY = toy_vocabulary()


class Running:
    """A scheduler over a scripted engine, and what its jobs answered."""

    def __init__(self, engine: ScriptedEngine, queue_size: int = 8, parallel: int = 1) -> None:
        self.engine = engine
        self.scheduler = Scheduler(lambda: engine, queue_size, parallel)
        self.scheduler.start()
        self.scheduler.wait_ready(TIMEOUT_S)

    def submit(self, request: CompletionRequest) -> tuple[Job, queue.Queue[object]]:
        answers: queue.Queue[object] = queue.Queue()
        deadlines = request.deadline_ms, request.prompt_deadline_ms
        job = Job(toy_generation(request, self.engine), answers.put, *deadlines)
        self.scheduler.submit(job)
        return job, answers

    def complete(self, request: CompletionRequest) -> tuple[str, CompletionResult]:
        _job, answers = self.submit(request)
        return collect(answers)


Start = Callable[[Model], Running]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Running] = []

    def make(model: Model) -> Running:
        started.append(Running(ScriptedEngine(VOCABULARY, toy_encode, model)))
        return started[-1]

    yield make
    for running in started:
        running.scheduler.close()


def says(text: bytes) -> Model:
    return speaking_model(VOCABULARY, text)


def test_it_says_what_the_model_says(start: Start) -> None:
    text, result = start(says(b"def x = (me)")).complete(CompletionRequest("def x ="))
    assert (text, result.finish) == (" (me)", "eos")


def test_healing_finishes_the_identifier(start: Start) -> None:
    running = start(says(b"const userName = x"))
    healed, result = running.complete(CompletionRequest("const userNa"))
    assert healed == "me = x"
    assert result.healing.level == "exact"
    assert result.healing.pending.endswith(b"Na") and result.healing.dropped_tokens >= 2


def test_h4_healed_tokens_count_for_no_limit(start: Start) -> None:
    running = start(says(b"const userName = x"))
    text, result = running.complete(CompletionRequest("const userNa", max_tokens=1))
    assert (text, result.completion_tokens, result.finish) == ("me", 1, "length")


def test_k1_the_reused_prefix_is_token_equal(start: Start) -> None:
    running = start(random_model(VOCABULARY.n_vocab))
    running.complete(CompletionRequest("def x = me + " * 20, max_tokens=5))
    _, again = running.complete(CompletionRequest("def x = me + " * 20, max_tokens=5))
    assert again.prompt.evaluated == 1
    _, other = running.complete(CompletionRequest("Def x = me + " * 20, max_tokens=5))
    assert other.prompt.reused == 0


texts = st.text("abx =(\n", min_size=1, max_size=30)


@settings(max_examples=25, deadline=None)
@given(st.lists(texts, min_size=2, max_size=4), st.integers(0, 3), st.booleans())
def test_k2_a_request_gives_the_same_cold_and_warm(
    prefixes: list[str], seed: int, sampled: bool
) -> None:
    sampling = SamplingParams(temperature=0.8 if sampled else 0.0, top_k=40, seed=seed)
    model = random_model(VOCABULARY.n_vocab, seed)
    requests = [CompletionRequest(p, max_tokens=6, sampling=sampling) for p in prefixes]
    warm = Running(ScriptedEngine(VOCABULARY, toy_encode, model))
    together = [warm.complete(request)[0] for request in requests]
    warm.scheduler.close()
    for request, text in zip(requests, together, strict=True):
        cold = Running(ScriptedEngine(VOCABULARY, toy_encode, model))
        assert cold.complete(request)[0] == text
        cold.scheduler.close()


def test_n1_a_fixed_seed_gives_fixed_output(start: Start) -> None:
    sampling = SamplingParams(temperature=1.0, seed=7)
    request = CompletionRequest("def x", max_tokens=20, sampling=sampling)
    running = start(random_model(VOCABULARY.n_vocab))
    texts_of = {running.complete(request)[0] for _ in range(3)}
    other = SamplingParams(temperature=1.0, seed=8)
    changed = running.complete(CompletionRequest("def x", max_tokens=20, sampling=other))[0]
    assert len(texts_of) == 1 and changed not in texts_of


def test_a_long_prompt_is_evaluated_in_chunks(start: Start) -> None:
    running = start(random_model(VOCABULARY.n_vocab))
    sizes: list[int] = []
    evaluate = running.engine.evaluate

    def spy(batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        sizes.append(sum(len(tree) for _, tree in batch))
        return evaluate(batch, abort)

    running.engine.evaluate = spy  # type: ignore[method-assign]
    running.complete(CompletionRequest("z" * 300, max_tokens=1, healing="off"))
    assert max(sizes) == PREFILL_CHUNK and sum(sizes) == 300


class Gate:
    """A model that stops at a number of evaluated rows until it is let go."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, tokens: Sequence[int]) -> Logits:
        self.reached.set()
        assert self.go.wait(TIMEOUT_S)
        return self.model(tokens)


def test_x1_a_cancel_while_decoding_ends_after_the_step_under_way(start: Start) -> None:
    gate = Gate(random_model(VOCABULARY.n_vocab))
    running = start(gate)
    job, answers = running.submit(CompletionRequest("def x", max_tokens=500, ignore_eos=True))
    assert gate.reached.wait(TIMEOUT_S)
    before = running.engine.n_evaluated
    running.scheduler.cancel(job, "cancelled")
    gate.go.set()
    _, result = collect(answers)
    assert result.finish == "cancelled" and result.reason == "CANCELLED"
    assert running.engine.n_evaluated <= before + PREFILL_CHUNK


def test_x1_a_cancel_while_waiting_answers_at_once(start: Start) -> None:
    gate = Gate(random_model(VOCABULARY.n_vocab))
    running = start(gate)
    _, first = running.submit(CompletionRequest("def x", max_tokens=2))
    waiting, answers = running.submit(CompletionRequest("const", max_tokens=2))
    assert gate.reached.wait(TIMEOUT_S)
    running.scheduler.cancel(waiting, "superseded")
    _, result = collect(answers)  # while the first still holds the engine
    assert result.finish == "superseded" and running.scheduler.n_waiting == 0
    gate.go.set()
    assert collect(first)[1].finish in ("length", "eos")


def test_what_was_evaluated_before_a_cancel_is_kept(start: Start) -> None:
    gate = Gate(random_model(VOCABULARY.n_vocab))
    running = start(gate)
    job, answers = running.submit(CompletionRequest("z" * 200, max_tokens=50, healing="off"))
    assert gate.reached.wait(TIMEOUT_S)
    running.scheduler.cancel(job, "cancelled")
    gate.go.set()
    collect(answers)
    _, result = running.complete(CompletionRequest("z" * 200, max_tokens=1, healing="off"))
    assert result.prompt.reused >= 192


def test_a_full_queue_is_refused_and_harms_nobody(start: Start) -> None:
    gate = Gate(says(b"def x = (me)"))
    running = start(gate)
    running.scheduler._queue_size = 1
    _, first = running.submit(CompletionRequest("def x ="))
    assert gate.reached.wait(TIMEOUT_S)
    _, second = running.submit(CompletionRequest("def x ="))
    with pytest.raises(QueueFull) as caught:
        running.submit(CompletionRequest("def x ="))
    assert caught.value.retry_after >= 1
    gate.go.set()
    assert collect(first)[0] == collect(second)[0] == " (me)"


def test_an_error_in_one_request_leaves_the_next_one_working(start: Start) -> None:
    good = says(b"def x = (me)")
    failing = iter([True])

    def model(tokens: Sequence[int]) -> Logits:
        if next(failing, False):
            raise RuntimeError("broken on purpose")
        return good(tokens)

    running = start(model)
    with pytest.raises(EngineError, match="RuntimeError"):
        running.complete(CompletionRequest("def x ="))
    assert running.complete(CompletionRequest("def x ="))[0] == " (me)"
    assert running.scheduler.counters.failures == 1


def test_an_answer_that_cannot_be_handed_over_stops_nobody_else(start: Start) -> None:
    running = start(says(b"def x = (me)"))

    def emit(item: object) -> None:
        raise RuntimeError("the event loop is closed")

    request = CompletionRequest("def x =")
    running.scheduler.submit(Job(toy_generation(request, running.engine), emit))
    assert running.complete(request)[0] == " (me)"


def test_an_engine_that_cannot_be_cut_back_fails_for_everybody(start: Start) -> None:
    gate = Gate(says(b"def x = (me)"))
    running = start(gate)
    _, first = running.submit(CompletionRequest("def x ="))
    assert gate.reached.wait(TIMEOUT_S)
    _, second = running.submit(CompletionRequest("def x ="))

    def broken(*_: object) -> int:
        raise RuntimeError("broken on purpose")

    running.engine.commit = broken  # type: ignore[assignment]
    running.engine.truncate = broken  # type: ignore[assignment]
    gate.go.set()
    for answers in (first, second):
        with pytest.raises(EngineError):
            collect(answers)
    with pytest.raises(EngineError):
        running.submit(CompletionRequest("def x ="))
    assert running.scheduler.state == "failed"


def test_a_deadline_ends_with_the_text_so_far(start: Start) -> None:
    slow = random_model(VOCABULARY.n_vocab)

    def model(tokens: Sequence[int]) -> Logits:
        time.sleep(0.005)
        return slow(tokens)

    request = CompletionRequest("def", max_tokens=4000, deadline_ms=100, ignore_eos=True)
    text, result = start(model).complete(request)
    assert result.finish == "deadline" and result.reason == "DEADLINE" and text


def test_a_prompt_that_takes_too_long_is_gone_on_with_next_time(start: Start) -> None:
    slow = random_model(VOCABULARY.n_vocab)

    def model(tokens: Sequence[int]) -> Logits:
        return slow(tokens)

    running = start(model)
    evaluate = running.engine.evaluate

    def evaluate_slowly(batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        time.sleep(0.02)
        return evaluate(batch, abort)

    running.engine.evaluate = evaluate_slowly  # type: ignore[method-assign]
    request = CompletionRequest("z" * 600, max_tokens=5, prompt_deadline_ms=30, healing="off")
    text, result = running.complete(request)
    assert (text, result.finish, result.reason) == ("", "deadline", "BUDGET")
    assert result.completion_tokens == 0
    n_tries = 1
    while result.finish == "deadline":
        _, result = running.complete(request)
        n_tries += 1
    assert result.completion_tokens == 5
    # However slow the machine is, a try reads a chunk at least.
    assert 2 < n_tries <= 600 // PREFILL_CHUNK + 2


def test_zero_tokens_only_warm_the_cache(start: Start) -> None:
    running = start(says(b"def x = (me)"))
    text, result = running.complete(CompletionRequest("def x =", max_tokens=0))
    assert (text, result.completion_tokens, result.reason) == ("", 0, None)
    assert running.complete(CompletionRequest("def x ="))[1].prompt.evaluated == 1


def test_a_context_that_fills_up_ends_the_text() -> None:
    model = random_model(VOCABULARY.n_vocab)
    running = Running(ScriptedEngine(VOCABULARY, toy_encode, model, n_ctx=96))
    larger = ScriptedEngine(VOCABULARY, toy_encode, model, n_ctx=2048)
    request = CompletionRequest("def x", max_tokens=1000, ignore_eos=True)
    generation = toy_generation(request, larger)  # may take more than there is room for
    answers: queue.Queue[object] = queue.Queue()
    running.scheduler.submit(Job(generation, answers.put))
    _, result = collect(answers)
    assert result.finish == "length"
    assert result.prompt.tokens + result.completion_tokens == 96 + 1
    running.scheduler.close()


def test_closing_answers_everybody() -> None:
    gate = Gate(random_model(VOCABULARY.n_vocab))
    running = Running(ScriptedEngine(VOCABULARY, toy_encode, gate))
    _, first = running.submit(CompletionRequest("def x", max_tokens=50))
    _, second = running.submit(CompletionRequest("def x", max_tokens=50))
    assert gate.reached.wait(TIMEOUT_S)
    closing = threading.Thread(target=running.scheduler.close)
    closing.start()
    gate.go.set()
    closing.join(TIMEOUT_S)
    assert collect(first)[1].finish == collect(second)[1].finish == "cancelled"
    with pytest.raises(EngineError, match="shutting down"):
        running.submit(CompletionRequest("def x"))


def test_requests_before_the_model_is_loaded_are_told_to_wait() -> None:
    loaded = threading.Event()
    engine = ScriptedEngine(VOCABULARY, toy_encode, says(b"x"))

    def load() -> ScriptedEngine:
        assert loaded.wait(TIMEOUT_S)
        return engine

    scheduler = Scheduler(load)
    scheduler.start()
    with pytest.raises(Loading) as caught:
        scheduler.submit(Job(toy_generation(CompletionRequest("x"), engine), print))
    assert caught.value.retry_after >= 1
    loaded.set()
    scheduler.wait_ready(TIMEOUT_S)
    scheduler.close()


def test_a_model_that_does_not_load_is_told_to_every_request() -> None:
    def load() -> ScriptedEngine:
        raise SetupError("no such model")

    scheduler = Scheduler(load)
    scheduler.start()
    for _ in range(2):
        with pytest.raises(SetupError, match="no such model"):
            scheduler.wait_ready(TIMEOUT_S)
    scheduler.close()


def test_v1_special_and_padding_rows_are_never_drawn(start: Start) -> None:
    def model(tokens: Sequence[int]) -> Logits:
        row = np.zeros(VOCABULARY.n_vocab, np.float32)
        row[special("<|im_start|>")] = 50.0
        row[VOCABULARY.n_vocab - 1] = 90.0
        row[ord("y")] = 10.0
        return row

    request = CompletionRequest("def x", max_tokens=4, healing="off")
    assert start(model).complete(request)[0] == "yyyy"
