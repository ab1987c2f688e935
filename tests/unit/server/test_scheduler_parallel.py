"""Several generations in one loop: each says what it says alone, and none stalls another."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.driving import TIMEOUT_S, collect
from support.toy import toy_encode, toy_generation, toy_vocabulary
from suture.server.engine.abort import AbortFlag
from suture.server.engine.job import Job
from suture.server.engine.protocol import Aborted, Batch, Logits
from suture.server.engine.runs import PREFILL_CHUNK, PREFILL_SLICE
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine, random_model
from suture.server.errors import EngineError
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    SamplingParams,
)

VOCABULARY = toy_vocabulary()
Answers = queue.Queue[object]


class Gated(ScriptedEngine):
    """An engine that evaluates only while its gate is open, and remembers its batches."""

    def __init__(self, model: Model, n_ctx: int = 4096) -> None:
        super().__init__(VOCABULARY, toy_encode, model, n_ctx=n_ctx)
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[int]] = []
        self.reached = threading.Event()

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        self.reached.set()
        assert self.gate.wait(TIMEOUT_S)
        self.batches.append([len(tree) for _, tree in batch])
        return super().evaluate(batch, abort)


Start = Callable[..., Scheduler]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[tuple[Scheduler, ScriptedEngine]] = []

    def make(engine: ScriptedEngine, parallel: int = 4) -> Scheduler:
        scheduler = Scheduler(lambda: engine, queue_size=64, parallel=parallel)
        scheduler.start()
        scheduler.wait_ready(TIMEOUT_S)
        started.append((scheduler, engine))
        return scheduler

    yield make
    for scheduler, engine in started:
        if isinstance(engine, Gated):
            engine.gate.set()
        scheduler.close()


def submit(
    scheduler: Scheduler, engine: ScriptedEngine, request: CompletionRequest
) -> tuple[Job, Answers]:
    answers: Answers = queue.Queue()
    deadlines = request.deadline_ms, request.prompt_deadline_ms
    job = Job(toy_generation(request, engine), answers.put, *deadlines)
    scheduler.submit(job)
    return job, answers


def alone(model: Model, request: CompletionRequest) -> tuple[str, str]:
    """The text and the end of a request that has a fresh engine to itself."""
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    scheduler = Scheduler(lambda: engine, parallel=1)
    scheduler.start()
    scheduler.wait_ready(TIMEOUT_S)
    text, result = collect(submit(scheduler, engine, request)[1])
    scheduler.close()
    return text, result.finish


prefixes = st.text("abx =(\n", min_size=1, max_size=60)


@settings(max_examples=30, deadline=None)
@given(st.lists(prefixes, min_size=2, max_size=8), st.integers(0, 3), st.sampled_from([90, 4096]))
def test_k2_requests_together_say_what_each_says_alone(
    texts: list[str], seed: int, n_ctx: int
) -> None:
    """In a cache that is too small for all of them, too: some step aside and come back."""
    model = random_model(VOCABULARY.n_vocab, seed)
    sampling = SamplingParams(temperature=0.8, top_k=40, seed=seed)
    requests = [
        CompletionRequest(text, max_tokens=5 + n, sampling=sampling) for n, text in enumerate(texts)
    ]
    engine = ScriptedEngine(VOCABULARY, toy_encode, model, n_ctx=n_ctx)
    scheduler = Scheduler(lambda: engine, queue_size=64, parallel=4)
    scheduler.start()
    scheduler.wait_ready(TIMEOUT_S)
    answers = [submit(scheduler, engine, request)[1] for request in requests]
    together = [collect(answer) for answer in answers]
    scheduler.close()

    for request, (text, result) in zip(requests, together, strict=True):
        assert (text, result.finish) == alone(model, request)


def test_those_that_draw_share_a_step(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    engine.gate.clear()
    request = CompletionRequest("def x", max_tokens=30, ignore_eos=True)
    answers = [submit(scheduler, engine, request)[1] for _ in range(4)]
    engine.gate.set()
    texts = {collect(answer)[0] for answer in answers}

    assert len(texts) == 1
    assert [1, 1, 1, 1] in engine.batches
    assert len(engine.batches) < 60


def test_a_long_prompt_is_read_in_slices_beside_one_that_draws(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    drawing = submit(
        scheduler, engine, CompletionRequest("def x", max_tokens=100, ignore_eos=True)
    )[1]
    assert isinstance(drawing.get(timeout=TIMEOUT_S), CompletionChunk)
    reading = submit(scheduler, engine, CompletionRequest("z" * 600, max_tokens=2))[1]
    assert collect(reading)[1].finish in ("length", "eos")
    collect(drawing)
    beside = [sizes for sizes in engine.batches if len(sizes) == 2]

    assert len(beside) > 10
    assert all(sizes[0] == 1 and sizes[1] <= PREFILL_SLICE for sizes in beside)


def test_prompts_take_turns(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    engine.gate.clear()
    long = submit(scheduler, engine, CompletionRequest("y" * 3000, max_tokens=1))[1]
    assert engine.reached.wait(TIMEOUT_S)
    n_evaluated: queue.Queue[int] = queue.Queue()
    short = toy_generation(CompletionRequest("z" * 100, max_tokens=1), engine)
    scheduler.submit(Job(short, lambda _: n_evaluated.put(engine.n_evaluated)))
    engine.gate.set()

    assert n_evaluated.get(timeout=TIMEOUT_S) <= 100 + 3 * PREFILL_CHUNK
    assert collect(long)[1].prompt.tokens > 1000
    assert max(map(sum, engine.batches)) <= PREFILL_CHUNK


@pytest.mark.parametrize("phase", ["reading", "drawing"])
def test_x1_a_cancel_ends_one_and_no_other(start: Start, phase: str) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    length = 2000 if phase == "reading" else 5
    leaving = CompletionRequest("y" * length, max_tokens=3000, ignore_eos=True)
    job, left = submit(scheduler, engine, leaving)
    if phase == "drawing":
        left.get(timeout=TIMEOUT_S)
    staying = CompletionRequest("def x", max_tokens=40, ignore_eos=True)
    answers = submit(scheduler, engine, staying)[1]
    answers.get(timeout=TIMEOUT_S)
    engine.gate.clear()
    scheduler.cancel(job, "superseded")
    n_before = engine.n_evaluated
    engine.gate.set()

    assert collect(left)[1].finish == "superseded"
    assert collect(answers)[1].completion_tokens == 40
    assert engine.n_evaluated <= n_before + 2 * PREFILL_CHUNK + 42


def test_an_error_fails_the_request_that_it_is_of(start: Start) -> None:
    good = random_model(VOCABULARY.n_vocab)
    bad_token = toy_encode(b"?")[0]

    def model(tokens: Sequence[int]) -> Logits:
        if bad_token in tokens:
            raise RuntimeError("broken on purpose")
        return good(tokens)

    engine = Gated(model)
    scheduler = start(engine)
    engine.gate.clear()
    requests = [CompletionRequest(text, max_tokens=9) for text in ("def x", "a? b", "const user")]
    answers = [submit(scheduler, engine, request)[1] for request in requests]
    engine.gate.set()

    with pytest.raises(EngineError, match="RuntimeError"):
        collect(answers[1])
    for request, answer in ((requests[0], answers[0]), (requests[2], answers[2])):
        text, result = collect(answer)
        assert (text, result.finish) == alone(model, request)


def test_a_request_whose_text_cannot_be_made_fails_alone(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    engine.gate.clear()
    request = CompletionRequest("def x", max_tokens=9, ignore_eos=True)
    job, broken = submit(scheduler, engine, request)

    def feed(rows: Logits) -> CompletionChunk | None:
        raise RuntimeError("broken on purpose")

    job.generation.feed = feed  # type: ignore[method-assign]
    sound = submit(scheduler, engine, request)[1]
    engine.gate.set()

    with pytest.raises(EngineError, match="RuntimeError"):
        collect(broken)
    assert collect(sound)[1].completion_tokens == 9


def test_many_clients_with_random_leavers_lose_nothing(start: Start) -> None:
    engine = ScriptedEngine(VOCABULARY, toy_encode, random_model(VOCABULARY.n_vocab), n_ctx=600)
    scheduler = start(engine)
    rng = random.Random(0)
    n_done = 0
    open_jobs: list[tuple[Job, Answers]] = []
    for n in range(200):
        text = "def x = " * rng.randint(1, 20) + str(n % 7)
        request = CompletionRequest(text, max_tokens=rng.randint(0, 20))
        open_jobs.append(submit(scheduler, engine, request))
        if rng.random() < 0.4:
            job, _ = rng.choice(open_jobs)
            scheduler.cancel(job, "cancelled")
        while len(open_jobs) > 12:
            n_done += bool(collect(open_jobs.pop(0)[1])[1].finish)
        time.sleep(0)
    n_done += sum(bool(collect(answers)[1].finish) for _, answers in open_jobs)

    assert n_done == 200
    assert (scheduler.n_running, scheduler.n_waiting) == (0, 0)
    assert scheduler.counters.failures == 0


def test_the_end_of_the_server_answers_all_that_run(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    request = CompletionRequest("def x", max_tokens=3000, ignore_eos=True)
    answers = [submit(scheduler, engine, request)[1] for _ in range(6)]
    scheduler.close()

    assert [collect(answer)[1].finish for answer in answers] == ["cancelled"] * 6


@pytest.mark.parametrize("can_branch", [True, False])
def test_a_step_is_given_up_where_who_stays_is_served_sooner_without_it(
    start: Start, can_branch: bool
) -> None:
    """Not where sequences cannot be cut back: what is given up would have to be read again."""
    n_aborted = 0

    class Slow(Gated):
        leaving: Job | None = None

        def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
            nonlocal n_aborted
            time.sleep(0.005)
            if len(batch) == 2 and self.leaving is not None:
                scheduler.cancel(self.leaving, "cancelled")
            try:
                return super().evaluate(batch, abort)
            except Aborted:
                n_aborted += 1
                raise

    engine = Slow(random_model(VOCABULARY.n_vocab))
    engine.can_branch = can_branch
    scheduler = start(engine)
    request = CompletionRequest("def x", max_tokens=30, ignore_eos=True)
    answers = submit(scheduler, engine, request)[1]
    answers.get(timeout=TIMEOUT_S)
    engine.gate.clear()
    engine.leaving, left = submit(scheduler, engine, CompletionRequest("y" * 2000, max_tokens=1))
    engine.gate.set()

    assert collect(left)[1].finish == "cancelled"
    assert collect(answers)[1].completion_tokens == 30
    assert n_aborted == (1 if can_branch else 0)


def test_a_deadline_passes_for_those_that_wait(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine, parallel=1)
    request = CompletionRequest("def x", max_tokens=3000, ignore_eos=True)
    job, first = submit(scheduler, engine, request)
    late = CompletionRequest("const", max_tokens=2, prompt_deadline_ms=20)
    text, result = collect(submit(scheduler, engine, late)[1])

    assert (text, result.finish, result.reason) == ("", "deadline", "BUDGET")
    assert (scheduler.n_running, scheduler.n_waiting) == (1, 0)
    scheduler.cancel(job, "cancelled")
    collect(first)


def test_one_prompt_of_many_is_read_once(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    prompt = "def x = me + " * 40
    n_tokens = len(toy_generation(CompletionRequest(prompt), engine).prompt_ids)
    engine.gate.clear()
    sampling = [SamplingParams(temperature=1.0, seed=seed) for seed in range(6)]
    requests = [CompletionRequest(prompt, max_tokens=4, sampling=params) for params in sampling]
    answers = [submit(scheduler, engine, request)[1] for request in requests]
    engine.gate.set()
    results = [collect(answer)[1] for answer in answers]

    assert sorted(result.prompt.evaluated for result in results)[-1] == n_tokens
    assert sum(result.prompt.evaluated for result in results) <= n_tokens + 5
    assert engine.n_evaluated <= n_tokens + 6 * 5


def test_who_shares_a_prompt_goes_on_when_its_reader_leaves(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    request = CompletionRequest("def x = me + " * 40, max_tokens=2)
    engine.gate.clear()
    job, first = submit(scheduler, engine, request)
    second = submit(scheduler, engine, request)[1]
    assert engine.reached.wait(TIMEOUT_S)
    scheduler.cancel(job, "cancelled")
    engine.gate.set()

    assert collect(first)[1].finish == "cancelled"
    assert collect(second)[1].completion_tokens == 2


def test_spare_work_is_done_when_there_is_nothing_else(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    request = CompletionRequest("def x = me + " * 40, max_tokens=0)
    told: Answers = queue.Queue()
    scheduler.submit_spare(Job(toy_generation(request, engine), told.put))

    assert collect(told)[1].finish == "length"
    assert scheduler.counters.jobs == scheduler.counters.evaluated_tokens == 0
    _, result = collect(submit(scheduler, engine, request)[1])
    assert result.prompt.evaluated == 1


def test_spare_work_ends_when_there_is_other_work(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine, parallel=1)
    told: Answers = queue.Queue()
    engine.gate.clear()
    long = CompletionRequest("y" * 3000, max_tokens=0)
    scheduler.submit_spare(Job(toy_generation(long, engine), told.put))
    assert engine.reached.wait(TIMEOUT_S)
    answers = submit(scheduler, engine, CompletionRequest("def x", max_tokens=3))[1]
    refused: Answers = queue.Queue()
    scheduler.submit_spare(Job(toy_generation(long, engine), refused.put))
    assert collect(refused)[1].finish == "cancelled"
    engine.gate.set()

    assert collect(told)[1].finish == "cancelled"
    assert collect(answers)[1].completion_tokens == 3
    assert engine.n_evaluated < 2 * PREFILL_CHUNK


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_is_read_for_a_superseded_request_is_kept_if_the_newer_one_begins_with_it(
    start: Start, goes_on: bool
) -> None:
    """Else nothing would ever be read of a long prompt while keys come faster than chunks."""
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine, parallel=1)
    engine.gate.clear()
    job, first = submit(scheduler, engine, CompletionRequest("y" * 1000, max_tokens=1))
    assert engine.reached.wait(TIMEOUT_S)
    scheduler.cancel(job, "superseded")
    newer = ("y" if goes_on else "z") * 1000 + "k"
    second = submit(scheduler, engine, CompletionRequest(newer, max_tokens=1))[1]
    engine.gate.set()

    assert collect(first)[1].finish == "superseded"
    assert collect(second)[1].prompt.reused == (PREFILL_CHUNK if goes_on else 0)


def test_candidates_over_half_of_the_cache_share_it(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab), n_ctx=600)
    scheduler = start(engine)
    engine.gate.clear()
    request = CompletionRequest("y" * 400, max_tokens=30, ignore_eos=True)
    answers = [submit(scheduler, engine, request)[1] for _ in range(3)]
    engine.gate.set()

    assert [collect(answer)[1].completion_tokens for answer in answers] == [30] * 3
    assert [1, 1, 1] in engine.batches


def test_who_cannot_be_told_its_end_fails_alone(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    engine.gate.clear()
    request = CompletionRequest("def x", max_tokens=30, ignore_eos=True)
    job, broken = submit(scheduler, engine, request)

    def finish(reason: object) -> CompletionChunk:
        raise RuntimeError("broken on purpose")

    job.generation.finish = finish  # type: ignore[method-assign]
    sound = submit(scheduler, engine, request)[1]
    assert engine.reached.wait(TIMEOUT_S)
    scheduler.cancel(job, "cancelled")
    engine.gate.set()

    with pytest.raises(EngineError, match="RuntimeError"):
        collect(broken)
    assert collect(sound)[1].completion_tokens == 30


@pytest.mark.parametrize("other", [("red", "ann"), ("blue", "bob")])
def test_who_asks_thirty_times_delays_another_by_no_job_that_waits(
    start: Start, other: tuple[str, str]
) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine, parallel=1)
    engine.gate.clear()
    ended: queue.Queue[str] = queue.Queue()

    def ask(name: str, tenant: str, user: str) -> None:
        request = CompletionRequest("def x", max_tokens=1, tenant=tenant, user=user)
        scheduler.submit(Job(toy_generation(request, engine), lambda _: ended.put(name)))

    for n in range(30):
        ask(f"flood {n}", "blue", "ann")
    assert engine.reached.wait(TIMEOUT_S)
    ask("other", *other)
    engine.gate.set()
    order = [ended.get(timeout=TIMEOUT_S) for _ in range(31)]

    assert order == ["flood 0", "other", *(f"flood {n}" for n in range(1, 30))]


def test_who_is_cancelled_while_waiting_has_had_no_turn(start: Start) -> None:
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine, parallel=1)
    engine.gate.clear()
    request = CompletionRequest("def x", max_tokens=1)
    submit(scheduler, engine, request)
    assert engine.reached.wait(TIMEOUT_S)
    left = submit(scheduler, engine, replace(request, tenant="blue"))
    assert scheduler.n_waiting == 1
    scheduler.cancel(left[0], "superseded")
    stays = submit(scheduler, engine, replace(request, tenant="blue"))[1]
    assert scheduler.n_waiting == 1
    engine.gate.set()

    assert collect(left[1])[1].finish == "superseded"
    assert collect(stays)[1].finish in ("length", "eos")


def test_k4_a_prompt_that_is_being_read_for_another_salt_is_read_again(start: Start) -> None:
    """Also where both are read at the same time, and where one comes after the other."""
    engine = Gated(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    engine.gate.clear()
    prompt = "def x = me + " * 40
    salts = ["blue", "red", None]
    requests = [CompletionRequest(prompt, max_tokens=1, cache_salt=salt) for salt in salts]
    together = [submit(scheduler, engine, request)[1] for request in requests]
    engine.gate.set()
    reused = [collect(answer)[1].prompt.reused for answer in together]
    again = [collect(submit(scheduler, engine, one)[1])[1].prompt.reused for one in requests]
    fourth = replace(requests[0], cache_salt="green")
    late = collect(submit(scheduler, engine, fourth)[1])[1].prompt.reused

    assert reused == [0, 0, 0]
    assert all(n > 100 for n in again)
    assert late == 0


@pytest.mark.parametrize(("salt", "waits"), [("blue", True), ("red", False)])
def test_k4_nobody_waits_for_a_prompt_that_is_read_for_another_salt(
    start: Start, salt: str, waits: bool
) -> None:
    """Who waited would show that it is being read."""
    sequences: list[int] = []

    class Watched(Gated):
        def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
            sequences.extend(sequence for sequence, _ in batch)
            return super().evaluate(batch, abort)

    engine = Watched(random_model(VOCABULARY.n_vocab))
    scheduler = start(engine)
    engine.gate.clear()
    request = CompletionRequest("y" * 1000, max_tokens=1, cache_salt="blue")
    first = submit(scheduler, engine, request)[1]
    assert engine.reached.wait(TIMEOUT_S)
    second = submit(scheduler, engine, replace(request, cache_salt=salt))[1]
    engine.gate.set()
    collect(first)
    collect(second)

    last = len(sequences) - sequences[::-1].index(sequences[0])
    assert (set(sequences[:last]) == {sequences[0]}) == waits
