"""complete(): one request, from text to text, on one page."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from suture.healing import Encode, TokenTransducer, Vocabulary
from suture.server.answers import Answer, Answers, Item, Recalled, reported_for_rest, superseded
from suture.server.codec import Codec
from suture.server.counters import RequestCounters
from suture.server.decoding.drafts import DraftIndex
from suture.server.decoding.generation import Generation, special_tokens, stop_strings
from suture.server.decoding.line_ends import lf_only
from suture.server.decoding.text_stream import TextStream, byte_stream, window_stream
from suture.server.encoding import EncodingThread
from suture.server.engine.job import Job
from suture.server.engine.protocol import Engine
from suture.server.engine.scheduler import Scheduler
from suture.server.errors import SutureError
from suture.server.outbox import Outbox
from suture.server.prompt.anchors import Anchors
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionChunk, CompletionRequest, FinishReason
from suture.server.sessions import Sessions
from suture.server.timed_text import TimedText


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What planning needs to know of the engine's model."""

    engine: Engine
    family: FimFamily | None
    budget: PromptBudget
    codec: Codec


class Completions:
    """Completes requests on one scheduler; used from one event loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.counters = RequestCounters()
        self._scheduler = scheduler
        self._encoding = EncodingThread()
        self._transducers = TransducerCache()
        self._anchors = Anchors()
        self._sessions: Sessions[Answer] = Sessions()
        self._answers = Answers()
        self._n_preparing = 0
        self._outbox: Outbox[Item] | None = None

    async def complete(
        self, request: CompletionRequest, model: LoadedModel
    ) -> AsyncGenerator[CompletionChunk, None]:
        """The text, chunk by chunk; a candidate's last has its result. Closing it cancels.

        Raises a `RequestError` or `Unavailable` before the first chunk, `EngineError` at any
        point.
        """
        if not self._arrives_in_time(request):
            self.counters.superseded += 1
            for chunk in superseded(request):
                yield chunk
            return
        if (known := self._typed_through(request)) is not None:
            self.counters.continued += 1
            answer, chunks = known
            async for chunk in self._listen(request, answer, chunks):
                yield reported_for_rest(chunk)
            return
        try:
            generations = await self._prepare(request, model)
            answer = self._answer(request, generations)
            if not self._attach(request, answer):
                self.counters.superseded += 1
                for chunk in superseded(request):
                    yield chunk
                return
            self._scheduler.submit(*answer.jobs)
        except BaseException:
            self._retract(request)
            raise
        self._answers.add(answer)
        async for chunk in self._listen(request, answer, answer.listener):
            yield chunk

    async def _listen(
        self, request: CompletionRequest, answer: Answer, items: asyncio.Queue[Item]
    ) -> AsyncGenerator[CompletionChunk, None]:
        """An answer's chunks; leaving early cancels its generation, unless others listen now."""
        try:
            async for chunk in _chunks(items, request.n):
                yield chunk
        finally:
            if answer.listener is items:
                answer.leave()
                self._cancel(answer, "cancelled")
                if request.session is not None:
                    self._sessions.leave(request.session, answer)

    @property
    def n_preparing(self) -> int:
        return self._n_preparing

    def close(self) -> None:
        self._encoding.close()

    def _cancel(self, answer: Answer, reason: FinishReason) -> None:
        for job in answer.jobs:
            self._scheduler.cancel(job, reason)

    async def _prepare(self, request: CompletionRequest, model: LoadedModel) -> list[Generation]:
        """A planned generation for each candidate.

        A full queue is noticed before any work is done for them.
        """
        self._scheduler.check_room(self._n_preparing + request.n - 1)
        self._n_preparing += request.n
        asked = time.perf_counter()
        recalled = self._answers.recall(request)

        def plan() -> tuple[list[Generation], float, float]:
            began = time.perf_counter()
            return self._generations(request, model, recalled), began, time.perf_counter()

        try:
            generations, began, ended = await self._encoding.run(plan)
        finally:
            self._n_preparing -= request.n
        self.counters.encode_wait_s.observe(began - asked)
        self.counters.encode_s.observe(ended - began)
        return generations

    def _generations(
        self, request: CompletionRequest, model: LoadedModel, recalled: Recalled
    ) -> list[Generation]:
        """Plan the prompt and build what the loops need; on the encoding thread."""
        vocabulary, codec = model.engine.vocabulary, model.codec
        if not codec.heals:
            request = replace(request, healing="off")
        plan = plan_prompt(
            request, vocabulary, model.family, codec.encode, model.budget, self._anchors
        )
        return [
            Generation(
                candidate,
                plan,
                vocabulary,
                TimedText(self._text_stream(request, plan, model), self._scheduler.counters),
                _known(plan, recalled, codec.encode),
            )
            for candidate in _candidates(request)
        ]

    def _text_stream(
        self, request: CompletionRequest, plan: PromptPlan, model: LoadedModel
    ) -> TextStream:
        stops, special = stop_strings(request, plan), special_tokens(request)
        vocabulary, windows = model.engine.vocabulary, model.codec.windows
        if windows is None:
            return byte_stream(request, plan, self._transducers.get(vocabulary, stops, special))
        return window_stream(request, plan, vocabulary, windows[special], stops)

    def _answer(self, request: CompletionRequest, generations: list[Generation]) -> Answer:
        """An answer on the running event loop, with the jobs that its chunks come from."""
        if self._outbox is None:
            self._outbox = Outbox()
        answer = Answer(request, generations[0].rest)
        deadlines = request.deadline_ms, request.prompt_deadline_ms
        answer.jobs = tuple(
            Job(generation, partial(_put, self._outbox, answer, index), *deadlines)
            for index, generation in enumerate(generations)
        )
        return answer

    def _typed_through(
        self, request: CompletionRequest
    ) -> tuple[Answer, asyncio.Queue[Item]] | None:
        """The answer whose beginning was typed, and its chunks; what else runs here ends."""
        found = self._answers.find(request)
        if request.session is not None and request.seq is not None:
            before = self._sessions.take_running(request.session)
            if before is not None and (found is None or before is not found[0]):
                self._cancel(before, "superseded")
        if found is None:
            return None
        answer, rest = found
        self._attach(request, answer)
        return answer, answer.hand_over(rest)

    def _arrives_in_time(self, request: CompletionRequest) -> bool:
        """Whether no newer request of its session has come."""
        if request.session is None or request.seq is None:
            return True
        return self._sessions.arrive(request.session, request.seq)

    def _retract(self, request: CompletionRequest) -> None:
        if request.session is not None and request.seq is not None:
            self._sessions.retract(request.session, request.seq)

    def _attach(self, request: CompletionRequest, answer: Answer) -> bool:
        if request.session is None or request.seq is None:
            return True
        return self._sessions.attach(request.session, request.seq, answer)


class TransducerCache:
    """The transducers of the last few stop sets: warm from a session's second request on.

    `max_stop_bytes` bounds the automata that are kept, which take some 2 kB a byte of stop
    string. For one vocabulary, and one thread.
    """

    def __init__(self, max_stop_bytes: int = 8192, max_entries: int = 16) -> None:
        self._max_stop_bytes = max_stop_bytes
        self._max_entries = max_entries
        self._transducers: collections.OrderedDict[tuple[tuple[str, ...], str], TokenTransducer] = (
            collections.OrderedDict()
        )

    def get(
        self, vocabulary: Vocabulary, stops: tuple[str, ...], special: Literal["skip", "show"]
    ) -> TokenTransducer:
        key = (stops, special)
        found = self._transducers.pop(key, None)
        if found is None:
            found = TokenTransducer(vocabulary, stops, special)
        self._transducers[key] = found
        while len(self._transducers) > 1 and self._is_over_its_bounds():
            self._transducers.popitem(last=False)
        return found

    def _is_over_its_bounds(self) -> bool:
        n_bytes = sum(len(stop.encode()) for stops, _ in self._transducers for stop in stops)
        return n_bytes > self._max_stop_bytes or len(self._transducers) > self._max_entries


def _known(plan: PromptPlan, recalled: Recalled, encode: Encode) -> DraftIndex:
    """Where drafts are looked up: an earlier answer, then the prompt, and what is expected next."""
    text, rest = (lf_only(part).encode() for part in (recalled.text, recalled.rest))
    expected = encode(plan.pending + rest) if rest else ()
    return DraftIndex((*encode(text), *plan.kept_ids), expected)


def _candidates(request: CompletionRequest) -> list[CompletionRequest]:
    """The request once for each candidate, each with a seed of its own."""
    seed = request.sampling.seed
    if request.n == 1 or seed is None:
        return [request] * request.n
    samplings = [replace(request.sampling, seed=seed + index) for index in range(request.n)]
    return [replace(request, sampling=sampling) for sampling in samplings]


def _put(outbox: Outbox[Item], answer: Answer, index: int, item: Item) -> None:
    """Send what one of an answer's jobs has said."""
    if index and isinstance(item, CompletionChunk):
        item = replace(item, index=index)
    outbox.put(answer, item)


async def _chunks(
    items: asyncio.Queue[Item], n_candidates: int
) -> AsyncGenerator[CompletionChunk, None]:
    n_complete = 0
    while n_complete < n_candidates:
        item = await items.get()
        if isinstance(item, SutureError):
            raise item
        n_complete += item.result is not None
        yield item
