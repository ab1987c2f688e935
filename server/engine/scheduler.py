"""The engine's one thread: it loads the model, runs jobs side by side, and frees it.

Up to `parallel` generations run at once, and each step is one evaluation for all of them. What
draws a token goes first; of the prompts that are still read, one at a time gets a chunk, a small
one where others draw, so that nobody's long prompt stalls another's typing. Where the cache is
full the generation that began last steps aside until there is room, and is read in again.

A job is cancelled between steps, and inside an evaluation through the engine's `should_abort` if
nobody else's tokens are in it; after a cancel at most the chunk under way is evaluated (X1).
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from suture.server.counters import Counters, Phase
from suture.server.decoding.drafts import DraftWidth
from suture.server.decoding.generation import Generation
from suture.server.engine.kv import KvCache
from suture.server.engine.protocol import Aborted, Engine, Logits, SequenceId
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError, Loading, QueueFull, SutureError, Unavailable
from suture.server.logs import without_values
from suture.server.request import CompletionChunk, FinishReason, Timings

PREFILL_CHUNK = 64  # an abort then takes effect within some 10 ms; larger ones are hardly faster
PREFILL_SLICE = 16  # beside others that draw tokens: six times their own step, on two cores

State = Literal["loading", "ready", "failed", "closed"]
Emit = Callable[[CompletionChunk | SutureError], None]

_log = logging.getLogger("suture.engine")


class Job:
    """A generation on its way through the queue and the engine.

    `emit` gets each chunk, and an error if one ends the job; it is called on the engine's
    thread, or on the thread that cancels a job which has not begun. `deadline_ms` counts from
    the first token drawn. `place` is which of the `parallel` ones it has while it runs, `number`
    the how manieth that was submitted.
    """

    def __init__(
        self,
        generation: Generation,
        emit: Emit,
        deadline_ms: int | None = None,
        prompt_deadline_ms: int | None = None,
    ) -> None:
        self.generation = generation
        self.emit = emit
        self.deadline_ms = deadline_ms
        self.prompt_deadline_ms = prompt_deadline_ms
        self.end_early: FinishReason | None = None
        self.cancelled_at: float | None = None
        self.submitted_at = 0.0
        self.number = 0
        self.place = 0


class Scheduler:
    """Owns the engine thread. `make_engine` is called on it; so is everything of the engine.

    `start()` begins loading and returns at once. `submit` raises `Loading` until that is done,
    the loading's own error if it failed, and `QueueFull` while `queue_size` jobs wait beside the
    `parallel` ones that run.
    """

    def __init__(
        self, make_engine: Callable[[], Engine], queue_size: int = 32, parallel: int = 4
    ) -> None:
        self.counters = Counters()
        self._make_engine = make_engine
        self._queue_size = queue_size
        self._parallel = parallel
        self._waiting: collections.deque[Job] = collections.deque()
        self._running: list[Job] = []
        self._n_submitted = 0
        self._progress_at = 0.0
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
            for job in self._running:
                job.end_early = job.end_early or "cancelled"
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
    def n_running(self) -> int:
        return len(self._running)

    @property
    def running(self) -> list[Job]:
        """The jobs that run, each in its place."""
        return list(self._running)

    @property
    def stalled_s(self) -> float:
        """For how long there has been work and no step was completed; 0 where there is none."""
        if not (self._running or self._waiting):
            return 0.0
        return time.perf_counter() - self._progress_at

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
            # The first of those that wait will not have to where fewer run than may.
            n_waiting = len(self._waiting) + n_coming - (self._parallel - len(self._running))
            if n_waiting >= self._queue_size:
                raise QueueFull(f"{n_waiting} requests wait already", retry_after=2)

    def submit(self, job: Job) -> None:
        with self._condition:
            self.check_room()
            job.submitted_at = time.perf_counter()
            job.number = self._n_submitted
            self._n_submitted += 1
            if not (self._running or self._waiting):
                self._progress_at = job.submitted_at
            self._waiting.append(job)
            self._condition.notify_all()

    def cancel(self, job: Job, reason: FinishReason) -> None:
        """End a job early, wherever it is; nothing happens to one that has ended."""
        with self._condition:
            if job.generation.finished or job.end_early is not None:
                return
            job.cancelled_at = time.perf_counter()
            job.end_early = reason
            if job not in self._waiting:
                return
            self._waiting.remove(job)
            self.counters.cancelled_waiting[reason] += 1
        _tell(job, job.generation.finish(reason))

    def cancel_all(self) -> None:
        """End every job early, those that wait and the one that runs."""
        with self._condition:
            jobs = [*self._waiting, *self._running]
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
            self._run_jobs(_Runs(engine, self.counters))
        except Exception as error:
            # Nobody may wait for a thread that is gone: the server notices and starts again.
            _log.error("the engine's thread failed: %s", without_values(error))
            self._fail(EngineError("the engine failed"))
        finally:
            engine.close()

    def _run_jobs(self, runs: _Runs) -> None:
        while self._admit(runs):
            runs.step()
            self._progress_at = time.perf_counter()
            with self._condition:
                self._running = runs.jobs

    def _fail(self, error: EngineError) -> None:
        with self._condition:
            self._error, self._state = error, "failed"
            left, self._waiting = list(self._waiting), collections.deque()
            left += [job for job in self._running if not job.generation.finished]
            self._running = []
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
            _log.error("loading the model failed: %s", without_values(reason))
            error = EngineError(f"loading the model failed: {reason}")
        with self._condition:
            self._engine, self._error = engine, error
            if self._state == "loading":
                self._state = "ready" if engine is not None else "failed"
            self._condition.notify_all()
        return engine

    def _admit(self, runs: _Runs) -> bool:
        """Begin jobs that wait, as many as may run; wait for one if none does. False at the end."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._waiting or self._running or self._state == "closed"
            )
            if self._state == "closed" and not self._running:
                return False
            begun = []
            while self._waiting and len(self._running) < self._parallel:
                begun.append(self._waiting.popleft())
                taken = {job.place for job in self._running}
                begun[-1].place = next(i for i in range(self._parallel) if i not in taken)
                self._running = [*self._running, begun[-1]]
        for job in begun:
            runs.begin(job)
        return True


def _tell(job: Job, item: CompletionChunk | SutureError) -> None:
    """Hand over a job's chunk or error; one that cannot be told must not stop the others."""
    try:
        job.emit(item)
    except Exception as error:
        _log.error("an answer could not be handed over: %s", without_values(error))


class _Run:
    """A job on the engine. `tree` is what it wants evaluated, of which `n_done` nodes are.

    `sequence` is None until it begins, and while it has stepped aside. `n_read` counts the
    prompt's tokens as they are evaluated.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.clock = _Clock(job.deadline_ms, job.prompt_deadline_ms)
        self.sequence: SequenceId | None = None
        self.n_read = 0
        self.want(TokenTree.chain(()), 0)

    def want(self, tree: TokenTree, n_before: int) -> None:
        """Another tree, on top of `n_before` tokens; nothing of it is evaluated."""
        self.tree = tree
        self.n_before = n_before
        self.n_done = 0
        # A long prompt asks for many chunks.
        self._n_trunk = tree.trunk_length()

    @property
    def n_left(self) -> int:
        return len(self.tree) - self.n_done

    def chunk(self, n_tokens: int) -> TokenTree:
        """The next part of the tree: a part of its trunk, or all that is left."""
        if self.n_left <= n_tokens or self.n_done >= self._n_trunk:
            return self.tree.after(self.n_done)
        end = min(self.n_done + n_tokens, self._n_trunk)
        return TokenTree.chain(self.tree.tokens[self.n_done : end], wants=())


class _Runs:
    """The jobs that run, one step after the other. Every outcome is told to the job it is of.

    Raises only where the engine cannot even free what a failed job held.
    """

    def __init__(self, engine: Engine, counters: Counters) -> None:
        self._engine = engine
        self._counters = counters
        self._kv = KvCache(engine)
        # What is drafted and does not come true is cut back, which some architectures cannot do.
        self._width = DraftWidth() if engine.can_branch else None
        # In the order in which they began; those without a sequence wait for room.
        self._runs: list[_Run] = []
        self._last_read: _Run | None = None
        self._show_memory()

    @property
    def jobs(self) -> list[Job]:
        return [run.job for run in self._runs]

    def begin(self, job: Job) -> None:
        """Take a job in; it gets its sequence in the next step."""
        self._counters.jobs += 1
        self._runs.append(_Run(job))

    def step(self) -> None:
        """One evaluation for all jobs that have something to evaluate."""
        for run in list(self._runs):
            if run.job.end_early is not None:
                self._end(run, run.job.generation.finish(run.job.end_early))
            elif run.clock.past_deadline():
                self._end(run, run.job.generation.finish("deadline"))
        for run in list(self._runs):
            if run.sequence is None and not self._settle(run):
                break
        batch = self._compose()
        while batch and not self._kv.make_room(sum(len(chunk) for _, chunk in batch)):
            self._step_aside(batch)
            batch = self._compose()
        started = time.perf_counter()
        evaluated = self._evaluate(batch)
        if self._width is not None and len(evaluated) == 1:
            _, chunk, _ = evaluated[0]
            if len(chunk) == len(chunk.wants):
                self._width.observe_cost(len(chunk), time.perf_counter() - started)
        for run, chunk, rows in evaluated:
            self._take(run, chunk, rows)
        self._show_memory()

    def _show_memory(self) -> None:
        counters, kv = self._counters, self._kv
        counters.cells_free = self._engine.n_free
        counters.sequences_running = kv.n_running
        counters.sequences_idle = kv.n_idle
        counters.sequences_saved = kv.n_saved

    def _settle(self, run: _Run) -> bool:
        """Give a run its sequence; False where those before it must end first."""
        generation = run.job.generation
        is_first = run is self._runs[0]
        tokens = generation.tree(0).tokens
        if not is_first and not self._kv.has_room(len(tokens)):
            return False
        try:
            run.sequence = self._kv.start(tokens)
        except EngineError as error:
            if is_first:
                self._fail(run, error)
            return False
        n_reused = len(self._engine.tokens(run.sequence))
        if run.clock.begin():
            generation.reuse(n_reused)
            self._counters.prompt_tokens += len(generation.prompt_ids)
            self._counters.reused_tokens += n_reused
            self._counters.queue_s.observe(time.perf_counter() - run.job.submitted_at)
            if self._width is not None:
                self._width.begin_text()
        self._want_more(run)
        return True

    def _compose(self) -> list[tuple[_Run, TokenTree]]:
        """What the next evaluation is of: all that draw a token, and a piece of one prompt."""
        runs = [run for run in self._runs if run.sequence is not None]
        drawing = [run for run in runs if run.n_left <= PREFILL_SLICE]
        reading = [run for run in runs if run.n_left > PREFILL_SLICE]
        batch: list[tuple[_Run, TokenTree]] = []
        n_tokens = n_rows = 0
        for run in drawing:
            chunk = run.chunk(PREFILL_SLICE)
            n_tokens += len(chunk)
            n_rows += len(chunk.wants)
            if n_tokens > self._engine.n_batch or n_rows > self._engine.n_rows:
                break
            batch.append((run, chunk))
        if reading:
            run = self._next_to_read(reading)
            n_tokens = PREFILL_SLICE if batch else PREFILL_CHUNK
            batch.append((run, run.chunk(min(n_tokens, self._engine.n_batch))))
        return batch

    def _next_to_read(self, reading: list[_Run]) -> _Run:
        """Prompts take turns: the one after the one that was read last."""
        if self._last_read in reading:
            at = reading.index(self._last_read) + 1
            reading = [*reading[at:], *reading[:at]]
        self._last_read = reading[0]
        return reading[0]

    def _step_aside(self, batch: list[tuple[_Run, TokenTree]]) -> None:
        """The cache is full: the run that began last gives its cells up; a lone one ends."""
        holding = [run for run in self._runs if run.sequence is not None]
        run = holding[-1]
        if len(holding) == 1:
            # Healed tokens came on top of what the plan made room for.
            self._end(run, run.job.generation.finish("length"))
            return
        assert run.sequence is not None
        self._kv.finish(run.sequence)
        run.sequence = None

    def _evaluate(
        self, batch: list[tuple[_Run, TokenTree]]
    ) -> list[tuple[_Run, TokenTree, Logits]]:
        """The rows of each part; none where the batch fails, and each was tried and taken alone."""
        if not batch:
            return []
        jobs = [run.job for run, _ in batch]
        self._engine.should_abort = lambda: all(job.end_early is not None for job in jobs)
        try:
            parts = [(run.sequence, chunk) for run, chunk in batch if run.sequence is not None]
            rows = self._engine.evaluate(parts)
        except Aborted:
            return []
        except Exception as error:
            if len(batch) > 1:
                self._fail_lost()
                self._evaluate_each(batch)
                return []
            if not isinstance(error, SutureError):
                _log.error("a request failed in the engine: %s", without_values(error))
                error = EngineError(f"the engine failed: {type(error).__name__}")
            self._fail(batch[0][0], error)
            self._fail_lost()
            return []
        finally:
            self._engine.should_abort = _never
        self._counters.evaluated(len(batch))
        return [(run, chunk, row) for (run, chunk), row in zip(batch, rows, strict=True)]

    def _evaluate_each(self, batch: list[tuple[_Run, TokenTree]]) -> None:
        for pair in batch:
            if pair[0] not in self._runs:
                continue
            for run, chunk, rows in self._evaluate([pair]):
                # At once: the next evaluation overwrites the rows.
                self._take(run, chunk, rows)

    def _fail_lost(self) -> None:
        """Tell those to retry whose sequences a failure of the engine has emptied."""
        for run in list(self._runs):
            if run.sequence is None:
                continue
            if len(self._engine.tokens(run.sequence)) < run.n_before + run.n_done:
                self._fail(run, Unavailable("what was read was lost with another request"))

    def _take(self, run: _Run, chunk: TokenTree, rows: Logits) -> None:
        """Feed the rows of a part that was evaluated, if it is the last; commit what is kept."""
        assert run.sequence is not None
        run.n_done += len(chunk)
        n_drafted = max(len(chunk.wants) - 1, 0)
        if run.clock.phase != "decode":
            run.n_read += len(chunk) - n_drafted
            self._counters.evaluated_tokens += len(chunk) - n_drafted
        if run.n_left or run.job.end_early is not None:
            # A draft has not been looked at.
            self._engine.commit(run.sequence, len(chunk) - max(len(chunk.wants), 1))
            return
        generation = run.job.generation
        try:
            chunk_of_text = generation.feed(rows)
        except Exception as error:
            _log.error("a request failed while its text was made: %s", without_values(error))
            self._fail(run, EngineError(f"the engine failed: {type(error).__name__}"))
            return
        self._engine.commit(run.sequence, len(chunk) - 1 - generation.n_rejected)
        self._counters.drawn(run.clock.token_drawn())
        if n_drafted:
            self._counters.drafted(n_drafted, n_drafted - generation.n_rejected)
        if generation.finished:
            assert chunk_of_text is not None
            self._end(run, chunk_of_text)
            return
        if chunk_of_text is not None:
            _tell(run.job, chunk_of_text)
        self._want_more(run)

    def _want_more(self, run: _Run) -> None:
        assert run.sequence is not None
        # Beside others a draft's tokens cost what theirs do, and pay seldom.
        width = self._width if len(self._runs) == 1 else None
        n_before = len(self._engine.tokens(run.sequence))
        run.want(run.job.generation.tree(n_before, width), n_before)

    def _end(self, run: _Run, chunk: CompletionChunk) -> None:
        self._runs.remove(run)
        if run.sequence is not None:
            self._counters.longest_sequence = max(
                self._counters.longest_sequence, len(self._engine.tokens(run.sequence))
            )
            self._kv.finish(run.sequence)
        assert chunk.result is not None
        result = replace(chunk.result, timings=run.clock.timings())
        self._counters.ended(result, run.n_read)
        if result.finish in ("cancelled", "superseded", "deadline"):
            self._counters.ended_early[result.finish, run.clock.phase] += 1
        if run.job.cancelled_at is not None:
            self._counters.cancel_s.observe(time.perf_counter() - run.job.cancelled_at)
        _tell(run.job, replace(chunk, result=result))

    def _fail(self, run: _Run, error: SutureError) -> None:
        self._counters.failed(run.n_read)
        self._runs.remove(run)
        _tell(run.job, error)
        if run.sequence is not None:
            self._kv.discard(run.sequence)


def _never() -> bool:
    return False


class _Clock:
    """Times one job: its prompt until the first token is drawn, then its generation."""

    def __init__(self, deadline_ms: int | None, prompt_deadline_ms: int | None) -> None:
        self._deadline_ms = deadline_ms
        self._prompt_deadline_ms = prompt_deadline_ms
        self._started: float | None = None
        self._first_token: float | None = None
        self._last_token = 0.0

    @property
    def phase(self) -> Phase:
        if self._started is None:
            return "queued"
        return "prompt" if self._first_token is None else "decode"

    def begin(self) -> bool:
        """Start, if it was not started before."""
        if self._started is not None:
            return False
        self._started = time.perf_counter()
        return True

    def token_drawn(self) -> float | None:
        """Note the time; how many seconds ago a token was drawn before, None for the first."""
        now, before = time.perf_counter(), self._last_token
        self._last_token = now
        if self._first_token is None:
            self._first_token = now
            return None
        return now - before

    def past_deadline(self) -> bool:
        """Whether the time is over that the phase may take: reading the prompt, or generating."""
        limit_ms, since = self._deadline_ms, self._first_token
        if since is None:
            limit_ms, since = self._prompt_deadline_ms, self._started
        if limit_ms is None or since is None:
            return False
        return (time.perf_counter() - since) * 1000 >= limit_ms

    def timings(self) -> Timings:
        now = time.perf_counter()
        started = now if self._started is None else self._started
        first = self._first_token or now
        return Timings((first - started) * 1000, (now - first) * 1000)
