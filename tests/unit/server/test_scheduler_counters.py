"""What the scheduler counts and shows while it runs, on the scripted engine."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

import pytest

from support.toy import toy_encode, toy_generation, toy_vocabulary
from suture.server.counters import Phase
from suture.server.engine.job import Job
from suture.server.engine.protocol import Logits
from suture.server.engine.runs import PREFILL_CHUNK
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import ScriptedEngine, random_model
from suture.server.errors import SutureError
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult

VOCABULARY = toy_vocabulary()
TIMEOUT_S = 20.0
LONG = "def x = me + " * 60
Answers = queue.Queue[object]


class Stepping:
    """A scheduler whose engine evaluates one row for each permission, or freely."""

    def __init__(self, parallel: int = 2) -> None:
        self._permits = threading.Semaphore(0)
        self._is_free = False
        self.n_asked = 0
        random = random_model(VOCABULARY.n_vocab)

        def model(tokens: Sequence[int]) -> Logits:
            self.n_asked += 1
            if not self._is_free:
                assert self._permits.acquire(timeout=TIMEOUT_S)
            return random(tokens)

        self.engine = ScriptedEngine(VOCABULARY, toy_encode, model)
        self.scheduler = Scheduler(lambda: self.engine, 8, parallel)
        self.counters = self.scheduler.counters
        self.scheduler.start()
        self.scheduler.wait_ready(TIMEOUT_S)

    def permit(self, n_rows: int) -> None:
        for _ in range(n_rows):
            self._permits.release()

    def free(self) -> None:
        self._is_free = True
        self.permit(100)

    def submit(self, text: str = "def x", max_tokens: int = 50) -> tuple[Job, Answers]:
        request = CompletionRequest(text, ignore_eos=True, max_tokens=max_tokens)
        answers: Answers = queue.Queue()
        job = Job(toy_generation(request, self.engine), answers.put, request.deadline_ms)
        self.scheduler.submit(job)
        return job, answers


@pytest.fixture
def stepping() -> Iterator[Stepping]:
    made = Stepping()
    yield made
    made.free()
    made.scheduler.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def finished(answers: Answers) -> CompletionResult:
    while True:
        item = answers.get(timeout=TIMEOUT_S)
        if isinstance(item, SutureError):
            raise item
        assert isinstance(item, CompletionChunk)
        if item.result is not None:
            return item.result


def test_tokens_evaluations_and_gaps_are_those_of_the_requests(stepping: Stepping) -> None:
    stepping.free()
    first = finished(stepping.submit(LONG, max_tokens=6)[1])
    again = finished(stepping.submit(LONG, max_tokens=6)[1])
    counters = stepping.counters

    evaluated = first.prompt.evaluated, again.prompt.evaluated
    assert evaluated[0] > PREFILL_CHUNK and evaluated[1] == 1
    assert counters.evaluated_tokens == sum(evaluated) == counters.evaluated_per_request.total
    assert counters.reused_tokens == again.prompt.reused
    assert counters.prompt_tokens == counters.evaluated_tokens + counters.reused_tokens
    assert counters.generated_tokens == 12
    assert counters.finishes == {"length": 2}
    assert counters.first_tokens == 2
    assert counters.evaluations == counters.busy_places
    assert sum(counters.queue_s.counts) == 2
    assert sum(counters.held_bytes.counts) == 2
    n_prompt = first.prompt.tokens
    assert n_prompt < counters.longest_sequence <= n_prompt + 12
    assert counters.prompt_seconds > 0 and counters.predicted_seconds > 0
    proposed = first.draft.proposed + again.draft.proposed
    accepted = first.draft.accepted + again.draft.accepted
    assert counters.drafted_tokens == proposed
    assert sum(n * times for n, times in counters.accepted.items()) == accepted
    # Every step that draws draws one token and what came true of a draft; some say pending bytes.
    n_steps = counters.first_tokens + sum(counters.inter_token_s.counts)
    assert n_steps + accepted >= counters.generated_tokens


def test_requests_together_are_busy_places_of_one_evaluation(stepping: Stepping) -> None:
    answers = [stepping.submit(max_tokens=20)[1] for _ in range(2)]
    stepping.free()
    for answer in answers:
        finished(answer)
    counters = stepping.counters
    assert counters.evaluations < counters.busy_places < 2 * counters.evaluations + 1


def test_a_cancel_is_counted_in_its_phase_with_the_time_it_took(stepping: Stepping) -> None:
    """The engine's thread stands in one evaluation until it is permitted to go on."""
    job, answers = stepping.submit()
    stepping.permit(1)
    until(lambda: stepping.n_asked == 2)
    reading, reading_answers = stepping.submit("x" * 300)
    waiting, waiting_answers = stepping.submit()
    extra, extra_answers = stepping.submit()
    until(lambda: stepping.scheduler.n_waiting == 3)
    stepping.scheduler.cancel(extra, "superseded")
    stepping.permit(1)
    until(lambda: stepping.n_asked == 3)
    assert stepping.scheduler.n_running == 2

    for cancelled in (job, reading, waiting):
        stepping.scheduler.cancel(cancelled, "cancelled")
    time.sleep(0.02)
    stepping.free()
    for answer in (answers, reading_answers, waiting_answers, extra_answers):
        finished(answer)
    counters = stepping.counters

    assert counters.ended_early == {("cancelled", "decode"): 1, ("cancelled", "prompt"): 1}
    assert counters.cancelled_waiting == {"superseded": 1, "cancelled": 1}
    assert sum(counters.cancel_s.counts) == 2
    assert 0.04 <= counters.cancel_s.total < TIMEOUT_S
    assert {phase for _, phase in counters.ended_early} < set(get_args(Phase))


def test_the_cache_is_shown_after_each_step(stepping: Stepping) -> None:
    n_ctx = stepping.engine.n_ctx
    assert stepping.counters.cells_free == n_ctx
    stepping.free()
    finished(stepping.submit(max_tokens=5)[1])
    until(lambda: stepping.counters.sequences_running == 0)
    assert stepping.counters.sequences_idle == 1
    assert stepping.counters.cells_free == stepping.engine.n_free < n_ctx


def test_it_has_stalled_only_where_there_is_work_and_no_step(stepping: Stepping) -> None:
    scheduler = stepping.scheduler
    time.sleep(0.05)
    assert scheduler.stalled_s == 0
    before = time.perf_counter()
    _, answers = stepping.submit(max_tokens=3)
    assert scheduler.stalled_s <= time.perf_counter() - before
    time.sleep(0.1)
    assert scheduler.stalled_s >= 0.1
    before = time.perf_counter()
    stepping.permit(1)
    until(lambda: stepping.n_asked == 2)
    assert scheduler.stalled_s <= time.perf_counter() - before
    stepping.free()
    finished(answers)
    until(lambda: scheduler.n_running == 0)
    assert scheduler.stalled_s == 0


def test_running_jobs_keep_their_places_and_numbers(stepping: Stepping) -> None:
    jobs = [stepping.submit() for _ in range(3)]
    until(lambda: stepping.n_asked == 1)
    stepping.permit(1)
    until(lambda: stepping.scheduler.n_running == 2)
    stepping.scheduler.cancel(jobs[0][0], "cancelled")
    stepping.permit(3)
    until(lambda: jobs[2][0] in stepping.scheduler.running)
    running = stepping.scheduler.running

    assert [job.number for job in running] == [1, 2]
    assert [job.place for job in running] == [1, 0]
