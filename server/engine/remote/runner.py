"""Runs generations on a fleet of backends, side by side (`runner.Runner`).

  F1  A failure before anything was heard is asked of the next backend (`fleet.py`); one behind that
      is the request's error, as what was shown cannot be taken back.
  F2  A backend whose answer does not begin with what was given back is asked again, once, for the
      text behind it, with the level "none"; and one that ignores its constraint is not asked to
      heal for a while. Where nothing is forced it was no constraint, and others are healed.
  F3  Whoever cancels a job, a deadline or a client that left, closes its connection: engines stop.
  F4  Every job is told its end, also one that ends before it has begun.
  F5  An answer is read to its end, where the backend has ended it: its connection can be used again
      then. Nobody waits for that.

Used on one event loop, on which nothing here waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from suture.healing import Vocabulary
from suture.server.counters import Counters
from suture.server.engine.job import Job, failure
from suture.server.engine.remote.backend import Backend
from suture.server.engine.remote.errors import ConstraintIgnored
from suture.server.engine.remote.fleet import Fleet
from suture.server.engine.remote.generation import RemoteGeneration
from suture.server.engine.remote.protocol import Heard, Level
from suture.server.engine.remote.served import Served
from suture.server.errors import EngineError, QueueFull, RequestError, SutureError
from suture.server.fair_queue import FairQueue
from suture.server.request import CompletionChunk, FinishReason

# What an engine counted, and the end of its answer, come at once or are not waited for.
COUNTS_S = 0.25
# How long a backend that has ignored its constraint is asked for unhealed texts.
DISTRUST_S = 60.0

RemoteJob = Job[RemoteGeneration]
T = TypeVar("T")

_log = logging.getLogger("suture.remote")


class RemoteRunner:
    """Has up to `parallel` jobs run at once for each backend that is well, and `queue_size` wait
    beside them in fair turns.

    `spare` counts what nobody asked for.
    """

    def __init__(
        self,
        fleet: Fleet[Served],
        vocabulary: Vocabulary,
        parallel: int,
        queue_size: int,
    ) -> None:
        self.counters = Counters()
        self.spare = Counters()
        self._fleet = fleet
        self._vocabulary = vocabulary
        self._parallel = parallel
        self._n_places = parallel * fleet.n_backends
        self._queue_size = queue_size
        self._waiting: FairQueue[RemoteJob] = FairQueue()
        self._running: dict[RemoteJob, asyncio.Task[None]] = {}
        # Of those that have a deadline.
        self._timers: dict[RemoteJob, asyncio.TimerHandle] = {}
        self._spare: tuple[RemoteJob, asyncio.Task[None]] | None = None
        self._distrusted: dict[str, float] = {}
        self._n_submitted = 0
        self._is_closed = False

    @property
    def capacity(self) -> int:
        return self._n_places + self._queue_size

    @property
    def n_places(self) -> int:
        """The most jobs that may run at once."""
        return self._n_places

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> list[RemoteJob]:
        """The jobs that run, each in its place."""
        return list(self._running)

    def check_ready(self) -> None:
        """Raise what `submit` would raise however few run."""
        if self._is_closed:
            raise EngineError("the server is shutting down")
        self._fleet.check_ready()

    def check_room(self, n_coming: int = 0) -> None:
        self.check_ready()
        n_waiting = len(self._waiting) + n_coming - (self._n_most - len(self._running))
        if n_waiting >= self._queue_size:
            raise QueueFull(f"{n_waiting} requests wait already", retry_after=2)

    def submit(self, *jobs: RemoteJob) -> None:
        self.check_room(len(jobs) - 1)
        self._end_spare()
        for job in jobs:
            job.clock.submit()
            job.number = self._n_submitted
            self._n_submitted += 1
            request = job.generation.request
            self._waiting.put(job, request.tenant, request.user)
        self._begin_more()
        for job in jobs:
            self._end_if_late(job)

    def submit_spare(self, job: RemoteJob) -> None:
        if self._running or self._waiting or self._spare or not self._fleet.is_ready:
            job.end("cancelled")
            return
        task = asyncio.get_running_loop().create_task(self._run(job, self.spare))
        self._spare = job, task
        task.add_done_callback(partial(self._on_spare_done, job))

    def cancel(self, job: RemoteJob, reason: FinishReason) -> None:
        if job.generation.finished or job.end_early is not None:
            return
        job.cancelled_at = time.perf_counter()
        job.end_early = reason
        if job in self._waiting:
            self._waiting.remove(job)
            self._end_unbegun(job, reason, self.counters)
        elif (task := self._running.get(job)) is not None:
            task.cancel()
        elif self._spare is not None and self._spare[0] is job:
            self._spare[1].cancel()

    def cancel_all(self) -> None:
        """End every job early, those that wait and those that run."""
        for job in [*self._waiting, *self._running]:
            self.cancel(job, "cancelled")

    def close(self) -> None:
        """Take up nothing any more."""
        self._is_closed = True

    @property
    def _n_most(self) -> int:
        """How many may run now. Where no backend is well, those that wait are told so at once."""
        return self._parallel * max(self._fleet.n_ready, 1)

    def _begin_more(self) -> None:
        """Begin jobs that wait, as many as may run."""
        while self._waiting and len(self._running) < self._n_most:
            job = self._waiting.popleft()
            taken = {other.place for other in self._running}
            job.place = next(i for i in range(self._n_places) if i not in taken)
            task = asyncio.get_running_loop().create_task(self._run(job, self.counters))
            self._running[job] = task
            task.add_done_callback(partial(self._on_done, job))

    def _on_done(self, job: RemoteJob, task: asyncio.Task[None]) -> None:
        del self._running[job]
        self._stop_timer(job)
        if task.cancelled():
            self._end_unbegun(job, job.end_early or "cancelled", self.counters)
        self._begin_more()

    def _on_spare_done(self, job: RemoteJob, task: asyncio.Task[None]) -> None:
        self._spare = None
        if task.cancelled():
            self._end_unbegun(job, job.end_early or "cancelled", self.spare)

    def _end_unbegun(self, job: RemoteJob, reason: FinishReason, counters: Counters) -> None:
        """Tell the end of a job of which no step was taken: it waits, or its task was to begin."""
        self._stop_timer(job)
        counters.cancelled_waiting[reason] += 1
        job.end(reason)

    def _end_if_late(self, job: RemoteJob) -> None:
        """End a job once its time is over; that may begin anew meanwhile, and is asked for then."""
        self._stop_timer(job)
        if (left_s := job.clock.left_s()) is None:
            return
        if left_s > 0:
            loop = asyncio.get_running_loop()
            self._timers[job] = loop.call_later(left_s, self._end_if_late, job)
        elif job in self._waiting:
            self._waiting.remove(job)
            self._end_unbegun(job, "deadline", self.counters)
        elif (task := self._running.get(job)) is not None and not job.generation.is_over:
            job.end_early = job.end_early or "deadline"
            task.cancel()

    def _stop_timer(self, job: RemoteJob) -> None:
        if (timer := self._timers.pop(job, None)) is not None:
            timer.cancel()

    def _end_spare(self) -> None:
        if self._spare is not None:
            self.cancel(self._spare[0], "cancelled")

    async def _run(self, job: RemoteJob, counters: Counters) -> None:
        """Have one job answered, to its end, whatever that is."""
        counters.jobs += 1
        try:
            await self._answer(job, counters)
        except asyncio.CancelledError:
            # Whoever cancels, a deadline, a newer request or a client that left, is no error.
            if not job.is_told:
                self._tell_last(job, job.last(job.end_early or "cancelled"), counters)
        except Exception as error:
            self._tell_last(job, failure(error, "while a backend answered it"), counters)

    def _tell_last(
        self, job: RemoteJob, last: CompletionChunk | SutureError, counters: Counters
    ) -> None:
        if isinstance(last, SutureError):
            if not isinstance(last, RequestError):
                counters.failed(0)
            job.tell(last)
            return
        assert last.result is not None
        result = replace(last.result, timings=job.clock.timings())
        counters.reused_tokens += result.prompt.reused
        counters.evaluated_tokens += result.prompt.evaluated
        counters.ended(result, result.prompt.evaluated)
        if result.finish in ("cancelled", "superseded", "deadline"):
            counters.ended_early[result.finish, job.clock.phase] += 1
        if job.cancelled_at is not None:
            counters.cancel_s.observe(time.perf_counter() - job.cancelled_at)
        job.tell(replace(last, result=result))

    async def _answer(self, job: RemoteJob, counters: Counters) -> None:
        """Tell a job's chunks, to the last one."""
        waited_s = job.clock.begin()
        if waited_s is not None:
            counters.queue_s.observe(waited_s)
            counters.prompt_tokens += len(job.generation.prompt_ids)
        with suppress(ConstraintIgnored):
            await self._follow(job, counters, self._level)
            return
        await self._follow(job, counters, lambda _: "none")

    async def _follow(
        self, job: RemoteJob, counters: Counters, level: Callable[[Backend], Level]
    ) -> None:
        """As `_answer`, healed as `level` says of the backend that is asked."""
        generation = job.generation
        ask = partial(self._ask, generation=generation, level=level)
        async with aclosing(self._fleet.stream(generation.affinity.key, ask)) as answer:
            while not job.is_told:
                try:
                    # Not `wait_for`, which before Python 3.12 may lose a cancellation.
                    async with asyncio.timeout(COUNTS_S if generation.is_over else None):
                        backend, heard = await anext(answer)
                except (StopAsyncIteration, TimeoutError):
                    self._tell_last(job, self._trusted(backend, generation.end), counters)
                    return
                chunk = self._trusted(backend, partial(generation.feed, heard))
                if heard.token_ids or heard.text:
                    self._token_drawn(job, counters)
                if chunk is not None and chunk.result is not None:
                    self._tell_last(job, chunk, counters)
                elif chunk is not None:
                    job.tell(chunk)
            if generation.is_ending:
                await _read_out(answer)

    def _token_drawn(self, job: RemoteJob, counters: Counters) -> None:
        since_s = job.clock.token_drawn()
        counters.drawn(since_s)
        if since_s is None:
            # Another deadline begins with the first one.
            self._end_if_late(job)

    def _trusted(self, backend: Backend, step: Callable[[], T]) -> T:
        """The result of a step; a backend that ignored its constraint is not asked to heal (F2)."""
        try:
            return step()
        except ConstraintIgnored as ignored:
            # Where nothing is forced, what was given back may well not be said again.
            if self._level(backend) != "hygiene":
                _log.warning("%s: %s", backend.name, ignored)
                self._distrusted[backend.name] = time.monotonic() + DISTRUST_S
            raise

    async def _ask(
        self, backend: Backend, generation: RemoteGeneration, level: Callable[[Backend], Level]
    ) -> AsyncGenerator[Heard, None]:
        """One backend's answer."""
        served = self._fleet.probed(backend)
        adapter = served.adapter
        asked = generation.asked(level(backend))
        if asked.pending and adapter.level(asked) == "none":
            asked = generation.asked("none")
        body = adapter.body(asked, served.probed.model, self._vocabulary)
        read = adapter.reader(self._vocabulary)
        stream = backend.stream(adapter.path, body, adapter.headers(asked.affinity))
        async with aclosing(stream) as events:
            async for event in events:
                if (heard := read(event)) is not None:
                    generation.check(heard)
                    yield heard

    def _level(self, backend: Backend) -> Level:
        if self._distrusted.get(backend.name, 0.0) > time.monotonic():
            return "none"
        return self._fleet.probed(backend).probed.level


async def _read_out(answer: AsyncGenerator[object, None]) -> None:
    """Read what comes behind the end of an answer, as much as comes at once."""
    with suppress(SutureError, TimeoutError):
        async with asyncio.timeout(COUNTS_S):
            async for _ in answer:
                pass
