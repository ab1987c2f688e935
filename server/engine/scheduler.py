"""The engine's one thread: it loads the model, runs jobs in turn, and frees it.

One generation runs at a time, on one sequence whose tokens stay in the KV cache: the next job
evaluates only what differs from them (K1). A job is cancelled between chunks of its prompt,
between tokens, and inside an evaluation through the engine's `should_abort`; after a cancel at
most the chunk under way is evaluated (X1).
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from suture.server.decoding.generation import Generation
from suture.server.engine.protocol import Aborted, Engine, Logits, SequenceId
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError, Loading, QueueFull, SutureError
from suture.server.request import CompletionChunk, FinishReason, Timings

PREFILL_CHUNK = 64  # an abort then takes effect within some 10 ms; larger ones are hardly faster

State = Literal["loading", "ready", "failed", "closed"]
Emit = Callable[[CompletionChunk | SutureError], None]

_log = logging.getLogger("suture.engine")


class Job:
    """A generation on its way through the queue and the engine.

    `emit` gets each chunk, and an error if one ends the job; it is called on the engine's
    thread, or on the thread that cancels a job which has not begun. `deadline_ms` counts from
    the first token drawn.
    """

    def __init__(self, generation: Generation, emit: Emit, deadline_ms: int | None = None) -> None:
        self.generation = generation
        self.emit = emit
        self.deadline_ms = deadline_ms
        self.end_early: FinishReason | None = None


@dataclass(slots=True)
class Counters:
    """What the engine has done since it was started."""

    jobs: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    failures: int = 0


class Scheduler:
    """Owns the engine thread. `make_engine` is called on it; so is everything of the engine.

    `start()` begins loading and returns at once. `submit` raises `Loading` until that is done,
    the loading's own error if it failed, and `QueueFull` while `queue_size` jobs wait.
    """

    def __init__(self, make_engine: Callable[[], Engine], queue_size: int = 32) -> None:
        self.counters = Counters()
        self._make_engine = make_engine
        self._queue_size = queue_size
        self._waiting: collections.deque[Job] = collections.deque()
        self._running: Job | None = None
        self._state: State = "loading"
        self._error: SutureError | None = None
        self._engine: Engine | None = None
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Cancel everything, free the engine and wait for its thread."""
        with self._condition:
            self._state = "closed"
            waiting, self._waiting = list(self._waiting), collections.deque()
            if self._running is not None:
                self._running.end_early = "cancelled"
            self._condition.notify_all()
        for job in waiting:
            _tell(job, job.generation.finish("cancelled"))
        if self._thread.is_alive():
            self._thread.join()

    @property
    def state(self) -> State:
        return self._state

    @property
    def is_closed(self) -> bool:
        """Whether `close()` was called: `make_engine` may ask while it loads."""
        return self._state == "closed"

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def check_ready(self) -> None:
        """Raise `Loading`, or what loading or the engine's thread ended with."""
        with self._condition:
            self._ready_engine()

    def wait_ready(self, timeout_s: float | None = None) -> Engine:
        """Block until the engine is loaded. Raises as `engine` does."""
        with self._condition:
            self._condition.wait_for(lambda: self._state != "loading", timeout_s)
            return self._ready_engine()

    def check_room(self, n_coming: int = 0) -> None:
        """Raise what `submit` would raise after `n_coming` others."""
        with self._condition:
            self._ready_engine()
            # While nothing runs, the first of those that wait will not have to.
            n_waiting = len(self._waiting) + n_coming - (self._running is None)
            if n_waiting >= self._queue_size:
                raise QueueFull(f"{n_waiting} requests wait already", retry_after=2)

    def submit(self, job: Job) -> None:
        with self._condition:
            self.check_room()
            self._waiting.append(job)
            self._condition.notify_all()

    def cancel(self, job: Job, reason: FinishReason) -> None:
        """End a job early, wherever it is; nothing happens to one that has ended."""
        with self._condition:
            if job.generation.finished or job.end_early is not None:
                return
            job.end_early = reason
            if job not in self._waiting:
                return
            self._waiting.remove(job)
        _tell(job, job.generation.finish(reason))

    def cancel_all(self) -> None:
        """End every job early, those that wait and the one that runs."""
        with self._condition:
            jobs = [*self._waiting, *([self._running] if self._running is not None else [])]
        for job in jobs:
            self.cancel(job, "cancelled")

    def _ready_engine(self) -> Engine:
        if self._error is not None:
            raise self._error
        if self._state == "closed":
            raise EngineError("the server is shutting down")
        if self._engine is None:
            raise Loading("Loading model", retry_after=2)
        return self._engine

    def _work(self) -> None:
        engine = self._load()
        if engine is None:
            return
        try:
            self._run_jobs(_Runner(engine, self.counters))
        except Exception:
            # Nobody may wait for a thread that is gone: the server notices and starts again.
            _log.exception("the engine's thread failed")
            self._fail(EngineError("the engine failed"))
        finally:
            engine.close()

    def _run_jobs(self, runner: _Runner) -> None:
        while (job := self._next_job()) is not None:
            runner.run(job)
            with self._condition:
                self._running = None

    def _fail(self, error: EngineError) -> None:
        with self._condition:
            self._error, self._state = error, "failed"
            left, self._waiting = list(self._waiting), collections.deque()
            left += [self._running] if self._running is not None else []
            self._running = None
        for job in left:
            _tell(job, error)

    def _load(self) -> Engine | None:
        error: SutureError | None = None
        engine: Engine | None = None
        try:
            engine = self._make_engine()
        except SutureError as reason:
            error = reason
        except Exception as reason:
            _log.exception("loading the model failed")
            error = EngineError(f"loading the model failed: {reason}")
        with self._condition:
            self._engine, self._error = engine, error
            if self._state == "loading":
                self._state = "ready" if engine is not None else "failed"
            self._condition.notify_all()
        return engine

    def _next_job(self) -> Job | None:
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._state == "closed")
            if self._state == "closed":
                return None
            self._running = self._waiting.popleft()
            return self._running


def _tell(job: Job, item: CompletionChunk | SutureError) -> None:
    """Hand over a job's chunk or error; one that cannot be told must not stop the others."""
    try:
        job.emit(item)
    except Exception:
        _log.exception("an answer could not be handed over")


class _Cancelled(Exception):
    """The job that runs was asked to end."""


class _Runner:
    """Runs one job after the other on one sequence of the engine."""

    def __init__(self, engine: Engine, counters: Counters) -> None:
        self._engine = engine
        self._counters = counters
        self._sequence: SequenceId = engine.open()

    def run(self, job: Job) -> None:
        """Every outcome is told, and the sequence is sound afterwards.

        Raises only where the engine cannot even be cut back.
        """
        self._engine.should_abort = lambda: job.end_early is not None
        try:
            self._run(job)
        finally:
            self._engine.should_abort = _never

    def _run(self, job: Job) -> None:
        self._counters.jobs += 1
        clock = _Clock(job.deadline_ms)
        try:
            self._steps(job, clock)
        except (_Cancelled, Aborted):
            self._emit(job, clock, job.generation.finish(job.end_early or "cancelled"))
        except SutureError as error:
            self._counters.failures += 1
            _tell(job, error)
        except Exception as error:
            _log.exception("a request failed in the engine")
            self._counters.failures += 1
            _tell(job, EngineError(f"the engine failed: {error}"))
            self._engine.truncate(self._sequence, 0)

    def _steps(self, job: Job, clock: _Clock) -> None:
        generation = job.generation
        self._reuse(generation)
        while not generation.finished:
            tree = generation.tree(self._n_committed)
            if self._n_committed + len(tree) > self._engine.n_ctx:
                # Healed tokens came on top of what the plan made room for.
                self._emit(job, clock, generation.finish("length"))
                return
            rows = self._evaluate(job, tree)
            clock.token_drawn()
            chunk = generation.feed(rows)
            if chunk is not None:
                self._emit(job, clock, chunk)
            if not generation.finished and clock.past_deadline():
                self._emit(job, clock, generation.finish("deadline"))

    def _reuse(self, generation: Generation) -> None:
        """Keep the cached tokens that begin this prompt, but its last one: its row is wanted."""
        prompt_ids = generation.prompt_ids
        n_common = 0
        for cached, token_id in zip(
            self._engine.tokens(self._sequence), prompt_ids[:-1], strict=False
        ):
            if cached != token_id:
                break
            n_common += 1
        n_reused = self._engine.truncate(self._sequence, n_common)
        generation.reuse(n_reused)
        self._counters.prompt_tokens += len(prompt_ids)
        self._counters.reused_tokens += n_reused

    @property
    def _n_committed(self) -> int:
        return len(self._engine.tokens(self._sequence))

    def _evaluate(self, job: Job, tree: TokenTree) -> Logits:
        """Evaluate and commit a tree's last path, a long trunk in chunks; the rows of its end."""
        n_trunk = tree.trunk_length()
        n_done = 0
        while len(tree) - n_done > PREFILL_CHUNK and n_done < n_trunk:
            n_next = min(n_done + PREFILL_CHUNK, n_trunk)
            self._evaluate_chunk(job, TokenTree.chain(tree.tokens[n_done:n_next], wants=()))
            n_done = n_next
        return self._evaluate_chunk(job, tree.after(n_done))

    def _evaluate_chunk(self, job: Job, chunk: TokenTree) -> Logits:
        if job.end_early is not None:
            raise _Cancelled
        [rows] = self._engine.evaluate([(self._sequence, chunk)])
        self._engine.commit(self._sequence, len(chunk) - 1)
        return rows

    def _emit(self, job: Job, clock: _Clock, chunk: CompletionChunk) -> None:
        if chunk.result is not None:
            self._counters.generated_tokens += chunk.result.completion_tokens
            chunk = replace(chunk, result=replace(chunk.result, timings=clock.timings()))
        _tell(job, chunk)


def _never() -> bool:
    return False


class _Clock:
    """Times one job: its prompt until the first token is drawn, then its generation."""

    def __init__(self, deadline_ms: int | None) -> None:
        self._deadline_ms = deadline_ms
        self._started = time.perf_counter()
        self._first_token: float | None = None

    def token_drawn(self) -> None:
        if self._first_token is None:
            self._first_token = time.perf_counter()

    def past_deadline(self) -> bool:
        if self._deadline_ms is None or self._first_token is None:
            return False
        return (time.perf_counter() - self._first_token) * 1000 >= self._deadline_ms

    def timings(self) -> Timings:
        now = time.perf_counter()
        first = self._first_token or now
        return Timings((first - self._started) * 1000, (now - first) * 1000)
