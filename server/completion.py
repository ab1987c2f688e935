"""complete(): one request, from text to text, on one page."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from suture.healing import TokenTransducer, Vocabulary
from suture.server.decoding.generation import Generation, special_tokens, stop_strings
from suture.server.encoding import EncodingThread
from suture.server.engine.protocol import Engine
from suture.server.engine.scheduler import Job, Scheduler
from suture.server.errors import SutureError
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult
from suture.server.sessions import Sessions

Answer = asyncio.Queue[CompletionChunk | SutureError]

_SUPERSEDED = CompletionChunk("", result=CompletionResult("superseded", "SUPERSEDED"))


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What planning needs to know of the engine's model."""

    engine: Engine
    family: FimFamily | None
    budget: PromptBudget


class Completions:
    """Completes requests on one scheduler; used from one event loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._encoding = EncodingThread()
        self._transducers = TransducerCache()
        self._sessions: Sessions[Job] = Sessions()

    async def complete(
        self, request: CompletionRequest, model: LoadedModel
    ) -> AsyncGenerator[CompletionChunk, None]:
        """The text, chunk by chunk; the last chunk has the result. Closing it cancels.

        Raises a `RequestError` or `Unavailable` before the first chunk, `EngineError` at any
        point.
        """
        if not self._arrives_in_time(request):
            yield _SUPERSEDED
            return
        plan = await self._encoding.run(lambda: _plan(request, model))
        generation = self._generation(request, plan, model.engine.vocabulary)
        job, answer = _job(request, generation)
        if not self._attach(request, job):
            yield _SUPERSEDED
            return
        self._scheduler.submit(job)
        try:
            async for chunk in _chunks(answer):
                yield chunk
        finally:
            self._scheduler.cancel(job, "cancelled")
            if request.session is not None:
                self._sessions.leave(request.session, job)

    def close(self) -> None:
        self._encoding.close()

    def _generation(
        self, request: CompletionRequest, plan: PromptPlan, vocabulary: Vocabulary
    ) -> Generation:
        transducer = self._transducers.get(vocabulary, request)
        return Generation(request, plan, vocabulary, transducer)

    def _arrives_in_time(self, request: CompletionRequest) -> bool:
        """Whether no newer request of its session has come; what runs for an older one ends."""
        if request.session is None or request.seq is None:
            return True
        if not self._sessions.arrive(request.session, request.seq):
            return False
        before = self._sessions.take_running(request.session)
        if before is not None:
            self._scheduler.cancel(before, "superseded")
        return True

    def _attach(self, request: CompletionRequest, job: Job) -> bool:
        if request.session is None or request.seq is None:
            return True
        return self._sessions.attach(request.session, request.seq, job)


class TransducerCache:
    """The transducers of the last few stop sets: warm from a session's second request on."""

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._transducers: collections.OrderedDict[tuple[tuple[str, ...], str], TokenTransducer] = (
            collections.OrderedDict()
        )

    def get(self, vocabulary: Vocabulary, request: CompletionRequest) -> TokenTransducer:
        key = (stop_strings(request), special_tokens(request))
        found = self._transducers.pop(key, None)
        if found is None:
            found = TokenTransducer(vocabulary, stop_strings(request), special_tokens(request))
        self._transducers[key] = found
        while len(self._transducers) > self._capacity:
            self._transducers.popitem(last=False)
        return found


def _plan(request: CompletionRequest, model: LoadedModel) -> PromptPlan:
    engine = model.engine
    return plan_prompt(request, engine.vocabulary, model.family, engine.encode, model.budget)


def _job(request: CompletionRequest, generation: Generation) -> tuple[Job, Answer]:
    """A job whose chunks arrive in a queue of the running event loop."""
    loop = asyncio.get_running_loop()
    answer: Answer = asyncio.Queue()

    def emit(item: CompletionChunk | SutureError) -> None:
        # A loop that has been closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(answer.put_nowait, item)

    return Job(generation, emit, request.deadline_ms), answer


async def _chunks(answer: Answer) -> AsyncGenerator[CompletionChunk, None]:
    while True:
        item = await answer.get()
        if isinstance(item, SutureError):
            raise item
        yield item
        if item.result is not None:
            return
