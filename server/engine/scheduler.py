"""One model on the engine's thread: it is loaded there, runs jobs side by side, and is freed.

Up to `parallel` jobs run at once (`runs.py`), and the others wait, until their tenants and users
have their turns (`fair_queue.py`). What nobody waits for is spare work: it runs while there is
nothing else to do, and ends when there is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

from suture.server.counters import Counters
from suture.server.engine.job import Job
from suture.server.engine.protocol import Engine
from suture.server.engine.runs import PREFILL_CHUNK, PREFILL_SLICE, Runs
from suture.server.engine.thread import Demand, EngineThread
from suture.server.errors import EngineError, Loading, QueueFull, SutureError
from suture.server.fair_queue import FairQueue
from suture.server.logs import without_values
from suture.server.request import FinishReason

State = Literal["loading", "ready", "failed", "closed"]

_log = logging.getLogger("suture.engine")


class Scheduler:
    """Has turns on the engine's thread, where `make_engine` and everything of the engine is called.

    `start()` begins loading and returns at once. `submit` raises `Loading` until that is done,
    the loading's own error if it failed, and `QueueFull` while `queue_size` jobs wait beside the
    `parallel` ones that run. `spare` counts what nobody asked for. `thread` is one that others
    have turns on as well, None: one of its own.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        queue_size: int = 32,
        parallel: int = 4,
        thread: EngineThread | None = None,
    ) -> None:
        self.counters = Counters()
        self.spare = Counters()
        self._make_engine = make_engine
        self._queue_size = queue_size
        self._parallel = parallel
        self._waiting: FairQueue[Job] = FairQueue()
        self._running: list[Job] = []
        self._spare: Job | None = None
        self._n_submitted = 0
        self._progress_at = 0.0
        self._state: State = "loading"
        self._error: SutureError | None = None
        self._engine: Engine | None = None
        self._runs: Runs | None = None
        self._chunk = PREFILL_CHUNK
        self._thread = thread or EngineThread()
        self._owns_thread = thread is None
        self._condition = self._thread.changed

    def start(self) -> None:
        self._thread.join(self)

    def close(self) -> None:
        """Cancel everything, free the engine and wait until that is done."""
        with self._condition:
            self._state = "closed"
            waiting, self._waiting = list(self._waiting), FairQueue()
            for job in self._running:
                job.end_early = job.end_early or "cancelled"
            self.end_spare()
            self._reconsider()
            self._condition.notify_all()
        for job in waiting:
            job.end("cancelled")
        with self._condition:
            self._condition.wait_for(lambda: not self._thread.has(self))
        if self._owns_thread:
            self._thread.close()

    @property
    def state(self) -> State:
        return self._state

    def may_load_on(self) -> bool:
        """Whether the model is still wanted, for `make_engine` to ask; others have turns then."""
        self._thread.give_way(self)
        return self._state != "closed"

    @property
    def capacity(self) -> int:
        """The most jobs that may run and wait."""
        return self._parallel + self._queue_size

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
        """Block until the engine is loaded. Raises as `check_ready` does."""
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

    def submit(self, *jobs: Job) -> None:
        """Have jobs run, each when it can; all are taken or none."""
        with self._condition:
            self.check_room(len(jobs) - 1)
            if not (self._running or self._waiting):
                self._progress_at = time.perf_counter()
            for job in jobs:
                job.clock.submit()
                job.number = self._n_submitted
                self._n_submitted += 1
                request = job.generation.request
                self._waiting.put(job, request.tenant, request.user)
            self._thread.end_spare()
            self._reconsider()
            self._condition.notify_all()

    def submit_spare(self, job: Job) -> None:
        """Have a job run if nothing else is to be done; whatever is submitted then ends it."""
        with self._condition:
            is_idle = not (self._running or self._waiting or self._spare)
            if is_idle and self._state == "ready":
                self._spare = job
                self._condition.notify_all()
                return
        job.end("cancelled")

    def cancel(self, job: Job, reason: FinishReason) -> None:
        """End a job early, wherever it is; nothing happens to one that has ended."""
        with self._condition:
            if job.generation.finished or job.end_early is not None:
                return
            job.cancelled_at = time.perf_counter()
            job.end_early = reason
            if job not in self._waiting:
                self._reconsider()
                return
            self._waiting.remove(job)
            self.counters.cancelled_waiting[reason] += 1
        job.end(reason)

    def cancel_all(self) -> None:
        """End every job early, those that wait and those that run."""
        with self._condition:
            jobs = [*self._waiting, *self._running]
        for job in jobs:
            self.cancel(job, "cancelled")

    def _reconsider(self) -> None:
        """Ask whether the evaluation under way is still worth its end."""
        if self._runs is not None:
            self._runs.reconsider()

    def _ready_engine(self) -> Engine:
        if self._error is not None:
            raise self._error
        if self._state == "closed":
            raise EngineError("the server is shutting down")
        if self._engine is None:
            raise Loading("Loading model", retry_after=2)
        return self._engine

    def demand(self) -> Demand | None:
        """What the next turn would be for. With the lock held."""
        if self._waiting or self._running:
            return "work"
        if self._state == "closed":
            return "work" if self._spare else "free"
        if self._runs is None:
            return "load"
        return "spare" if self._spare else None

    def end_spare(self) -> None:
        """Have spare work end at the next chance. With the lock held."""
        if self._spare is not None:
            self._spare.end_early = "cancelled"
            self._reconsider()

    def turn(self) -> None:
        """One step; before the first the loading, after the last the freeing."""
        if self._state == "closed" and not (self._running or self._spare):
            self._free()
        elif self._runs is None:
            self._load()
        else:
            self._step(self._runs)

    def _free(self) -> None:
        try:
            if self._runs is not None and self._engine is not None:
                self._engine.close()
        finally:
            self._runs = None
            self._thread.leave(self)

    def _step(self, runs: Runs) -> None:
        try:
            self._admit(runs)
            runs.step(self._chunk)
            self._progress_at = time.perf_counter()
            with self._condition:
                jobs = runs.jobs
                if self._spare not in jobs:
                    self._spare = None
                self._running = [job for job in jobs if job is not self._spare]
        except Exception as error:
            # Nobody may wait for an engine that is gone: the server notices and starts again. The
            # model is not freed: prompts are planned with its vocabulary still.
            _log.error("the engine's thread failed: %s", without_values(error))
            self._fail(EngineError("the engine failed"))

    def _waiting_jobs(self) -> list[Job]:
        with self._condition:
            return list(self._waiting)

    def _fail(self, error: EngineError) -> None:
        with self._condition:
            self._error, self._state = error, "failed"
            left, self._waiting = list(self._waiting), FairQueue()
            left += [*self._running, *([self._spare] if self._spare else [])]
            self._running, self._spare = [], None
        for job in left:
            job.generation.close()
            job.tell(error)
        self._thread.leave(self)

    def _load(self) -> None:
        error: SutureError | None = None
        engine: Engine | None = None
        runs: Runs | None = None
        try:
            engine = self._make_engine()
            runs = Runs(engine, self.counters, self._waiting_jobs)
        except SutureError as reason:
            error = reason
        except Exception as reason:
            _log.error("loading the model failed: %s", without_values(reason))
            error = EngineError(f"loading the model failed: {reason}")
        with self._condition:
            self._engine, self._error, self._runs = engine, error, runs
            if self._state == "loading":
                self._state = "ready" if error is None else "failed"
            self._condition.notify_all()
        if error is not None:
            self._thread.leave(self)

    def _admit(self, runs: Runs) -> None:
        """Begin jobs that wait, as many as may run."""
        with self._condition:
            late = [job for job in self._waiting if job.clock.past_deadline()]
            for job in late:
                self._waiting.remove(job)
                self.counters.cancelled_waiting["deadline"] += 1
            begun = self._take_places()
            spare = self._spare
            is_shared = self._thread.is_shared_by_work(self)
            # Requests of other models wait for a chunk as those of this one do.
            self._chunk = PREFILL_SLICE if is_shared else PREFILL_CHUNK
        for job in late:
            job.end("deadline")
        for job in begun:
            runs.begin(job, self.counters)
        if spare is not None and spare not in runs.jobs:
            runs.begin(spare, self.spare)

    def _take_places(self) -> list[Job]:
        """The jobs that may run now, each with its place."""
        begun = []
        while self._waiting and len(self._running) < self._parallel:
            job = self._waiting.popleft()
            taken = {job.place for job in self._running}
            job.place = next(i for i in range(self._parallel) if i not in taken)
            self._running = [*self._running, job]
            begun.append(job)
        return begun
