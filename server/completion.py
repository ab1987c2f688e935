"""complete(): one request, from text to text, on one page."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Literal

from typing_extensions import TypeVar

from suture.healing import (
    BoundaryError,
    Encode,
    Posterior,
    TokenTransducer,
    Vocabulary,
    coverable,
    stable_boundary,
)
from suture.server.answers import (
    EXCLUDED,
    SUPERSEDED,
    Answer,
    Answers,
    Item,
    Recalled,
    for_each_candidate,
    reported_for_rest,
)
from suture.server.codec import Codec, Specials
from suture.server.counters import EncodeCounters, RequestCounters
from suture.server.decoding.covering import Coverings
from suture.server.decoding.drafts import DraftIndex
from suture.server.decoding.generation import Generation
from suture.server.decoding.output import special_tokens, stop_strings
from suture.server.decoding.text_stream import TextStream, byte_stream, window_stream
from suture.server.encoding import Encoding, EncodingThread
from suture.server.engine.job import Job, Work
from suture.server.engine.protocol import Engine
from suture.server.errors import Excluded, InvalidRequest, SutureError, Unavailable
from suture.server.explanation import (
    MAX_TOKENS,
    Covers,
    Explanation,
    MethodName,
    Tried,
    explain,
    explain_covers,
    trials,
)
from suture.server.outbox import Outbox
from suture.server.prompt.anchors import Anchors
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily, LayoutDefaults
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.prompt.secrets import is_secret_path
from suture.server.prompt.text_encoding import text_encoding
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    FinishReason,
    SamplingParams,
)
from suture.server.runner import Model, Runner
from suture.server.sessions import Sessions
from suture.server.shaping.line_ends import lf_only
from suture.server.timed_text import TimedText

W = TypeVar("W", bound=Work, default=Generation)

PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that an engine of ours has loaded (`runner.Model`).

    `coverings` are None where nothing is exact: its memory cannot branch, or no bytes be healed.
    `defaults` are what "auto" stands for if the model was calibrated, None: its family's.
    """

    engine: Engine
    family: FimFamily | None
    budget: PromptBudget
    codec: Codec
    coverings: Coverings | None = None
    defaults: LayoutDefaults | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        return self.engine.vocabulary

    def check(self, request: CompletionRequest) -> None:
        _check_grammar(request, self.engine)

    def fit(self, plan: PromptPlan) -> PromptPlan:
        return plan

    def generation(
        self,
        request: CompletionRequest,
        plan: PromptPlan,
        text: TextStream,
        known: Callable[[], DraftIndex] | None = None,
    ) -> Generation:
        engine, drafts = self.engine, known() if known is not None else None
        return Generation(request, plan, engine.vocabulary, text, engine, drafts, self.coverings)

    def observed(self, observe: Callable[[Posterior], None]) -> LoadedModel:
        return replace(self, coverings=self.coverings and self.coverings.observed(observe))


class Completions(Generic[W]):
    """Completes requests with what one runner runs; used from one event loop.

    `pause_s` without a request is a pause, in which the anchor may move.
    """

    def __init__(
        self,
        runner: Runner[W],
        encoding: Encoding | None = None,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.counters = RequestCounters()
        self._runner = runner
        self._encoding = encoding or EncodingThread()
        self._transducers = TransducerCache()
        self._anchors = Anchors()
        self._sessions: Sessions[Answer] = Sessions()
        self._answers = Answers()
        self._n_preparing = 0
        self._outbox: Outbox[Item] | None = None
        self._pause_s = pause_s
        self._in_pause: asyncio.Task[None] | None = None
        self._is_closed = False

    async def complete(
        self, request: CompletionRequest, model: Model[W]
    ) -> AsyncGenerator[CompletionChunk, None]:
        """The text, chunk by chunk; a candidate's last has its result. Closing it cancels.

        Raises a `RequestError` or `Unavailable` before the first chunk, `EngineError` at any
        point.
        """
        self._end_pause()
        session, seq = request.session, request.seq
        if not self._sessions.arrive(session, seq):
            for chunk in self._overtaken(request):
                yield chunk
            return
        if (known := self._typed_through(request)) is not None:
            self.counters.continued += 1
            answer, chunks = known
            async with aclosing(self._listen(request, model, answer, chunks)) as heard:
                async for chunk in heard:
                    yield reported_for_rest(chunk)
            return
        if is_secret_path(request.path):
            for chunk in for_each_candidate(EXCLUDED, request):
                yield chunk
            return
        try:
            generations = await self._prepare(request, model)
            answer = self._answer(request, generations)
            if not generations or not self._sessions.attach(session, seq, answer):
                for chunk in self._overtaken(request):
                    yield chunk
                return
            self._runner.submit(*answer.jobs)
        except BaseException:
            self._sessions.retract(session, seq)
            raise
        self._answers.add(answer)
        async with aclosing(self._listen(request, model, answer, answer.listener)) as heard:
            async for chunk in heard:
                yield chunk

    async def explain(self, request: CompletionRequest, model: Model[W]) -> Explanation:
        """What becomes of a request, and why. Cancelling ends it.

        Each method runs as a short request of its own, one after the other, so that an explanation
        takes one place among those who complete. Raises as `complete` does.
        """
        if is_secret_path(request.path):
            raise Excluded()
        tracing = Tracing()

        def plan(encode: Encode) -> _Tries[W]:
            return self._tries(request, model, tracing, encode)

        self._runner.check_room(self._n_preparing)
        self._n_preparing += 1
        try:
            tries = await self._encoding.run(plan, model.codec.encoder)
        finally:
            self._n_preparing -= 1
        outcomes: dict[W, Tried] = {}
        for generation in dict.fromkeys(tries.generations.values()):
            text, result = await self._run_alone(generation, self._runner.submit)
            if result.finish == "cancelled":
                raise Unavailable("the explanation was cancelled")
            outcomes[generation] = Tried(generation.plan, text, result)
        return explain(
            request,
            {name: outcomes[generation] for name, generation in tries.generations.items()},
            tracing.covers,
            tries.typed_ids,
            tries.stable_pending,
            model.vocabulary,
            model.codec.heals,
        )

    async def tokenize(self, text: str, specials: Specials, model: Model[W]) -> Sequence[int]:
        """The token ids of a text by itself. Cancelling leaves the others alone."""
        if not text:
            return ()
        text_bytes = text.encode()
        return await self._encoding.run(
            lambda encode: encode(text_bytes), model.codec.reading(specials)
        )

    async def _run_alone(
        self, generation: W, submit: Callable[[Job[W]], None]
    ) -> tuple[str, CompletionResult]:
        """The text and result of a generation that nobody else listens to; `submit` begins it."""
        told: asyncio.Queue[Item] = asyncio.Queue()
        request = generation.request
        deadlines = request.deadline_ms, request.prompt_deadline_ms
        job = Job(generation, partial(self._outbox_here().put, told), *deadlines)
        submit(job)
        text = ""
        try:
            async for chunk in _chunks(told, 1):
                text += chunk.text
                result = chunk.result
        finally:
            self._runner.cancel(job, "cancelled")
        assert result is not None
        return text, result

    def _tries(
        self, request: CompletionRequest, model: Model[W], tracing: Tracing, encode: Encode
    ) -> _Tries[W]:
        """A generation for each method, one for those whose prompts and healing are the same."""
        vocabulary = model.vocabulary
        traced = model.observed(partial(tracing.observe, vocabulary))
        model.check(request)
        generations: dict[MethodName, W] = {}
        alike: dict[object, W] = {}
        for name, trial in trials(request).items():
            plan = self._plan(trial, model, self._anchors, encode)
            plan = replace(plan, max_tokens=min(plan.max_tokens, MAX_TOKENS))
            key = plan.kept_ids, plan.pending, plan.level
            if key not in alike:
                text = self._text_stream(trial, plan, model)
                alike[key] = traced.generation(trial, plan, text)
            generations[name] = alike[key]
        window = generations["exact"].plan.windows.prefix
        encoding = text_encoding(encode, vocabulary, model.family)
        encode = encoding.inner if window.truncated else encoding.opening
        segment = window.text.encode()
        return _Tries(generations, encode(segment), _stable_pending(segment, encode, vocabulary))

    async def _listen(
        self,
        request: CompletionRequest,
        model: Model[W],
        answer: Answer,
        items: asyncio.Queue[Item],
    ) -> AsyncGenerator[CompletionChunk, None]:
        """An answer's chunks; leaving early cancels its generation, unless others listen now."""
        try:
            async for chunk in _chunks(items, request.n):
                if chunk.result is not None and answer.listener is items:
                    self._begin_pause(request, model, answer)
                    if request.max_tokens == 0 and chunk.result.finish == "length":
                        self._anchors.warmed.add(request.extra, request.cache_salt)
                yield chunk
        finally:
            if answer.listener is items:
                answer.leave()
                self._cancel(answer, "cancelled")
                self._sessions.leave(request.session, answer)

    def _begin_pause(self, request: CompletionRequest, model: Model[W], answer: Answer) -> None:
        """Have the anchor move, if it is to, once nobody has asked for anything in a while."""
        if answer.is_far_at(request):
            self._end_pause()
            self._in_pause = asyncio.ensure_future(self._move_anchor(request, model))

    def _end_pause(self) -> None:
        if self._in_pause is not None:
            self._in_pause.cancel()
            self._in_pause = None

    async def _move_anchor(self, request: CompletionRequest, model: Model[W]) -> None:
        """Read the prompt with an anchor at the cursor's line, unless another request comes."""
        await asyncio.sleep(self._pause_s)
        if self._is_closed:
            return
        anchors = Anchors(self._anchors.sent, self._anchors.warmed)
        encoder = model.codec.encoder

        def plan(encode: Encode) -> W:
            prompt = replace(
                request,
                n=1,
                grammar=None,
                sampling=SamplingParams(),
                deadline_ms=None,
                prompt_deadline_ms=None,
            )
            planned = replace(self._plan(prompt, model, anchors, encode), max_tokens=0)
            text = self._text_stream(prompt, planned, model)
            return model.generation(prompt, planned, text)

        with suppress(SutureError):
            generation = await self._encoding.run(plan, encoder)
            _, result = await self._run_alone(generation, self._runner.submit_spare)
            if result.finish == "length":
                await self._encoding.run(lambda _: self._anchors.adopt(anchors), encoder)

    @property
    def n_preparing(self) -> int:
        return self._n_preparing

    @property
    def encode_counters(self) -> EncodeCounters:
        return self._encoding.counters

    def close(self) -> None:
        """End what is planned and wait for it. From any thread."""
        self._is_closed = True
        pause = self._in_pause
        if pause is not None:
            # A loop that has been closed meanwhile has ended it.
            with suppress(RuntimeError):
                pause.get_loop().call_soon_threadsafe(pause.cancel)
        self._encoding.close()

    def _overtaken(self, request: CompletionRequest) -> list[CompletionChunk]:
        """The answer to a request after which a newer one has come."""
        self.counters.superseded += 1
        return for_each_candidate(SUPERSEDED, request)

    def _cancel(self, answer: Answer, reason: FinishReason) -> None:
        for job in answer.jobs:
            self._runner.cancel(job, reason)

    async def _prepare(self, request: CompletionRequest, model: Model[W]) -> list[W]:
        """A planned generation for each candidate.

        None where a newer request has come meanwhile. A full queue is noticed before any work is
        done for them.
        """
        if request.n > self._runner.capacity:
            message = f'"n" must be at most {self._runner.capacity}, all that may run and wait'
            raise InvalidRequest(message, "n")
        self._runner.check_room(self._n_preparing + request.n - 1)
        self._n_preparing += request.n
        asked = time.perf_counter()
        recalled = self._answers.recall(request)

        def plan(encode: Encode) -> tuple[list[W], float, float]:
            began = time.perf_counter()
            if not self._sessions.is_newest(request.session, request.seq):
                return [], began, began
            generations = self._generations(request, model, recalled, encode)
            return generations, began, time.perf_counter()

        try:
            generations, began, ended = await self._encoding.run(plan, model.codec.encoder)
        finally:
            self._n_preparing -= request.n
        self.counters.encode_wait_s.observe(began - asked)
        self.counters.encode_s.observe(ended - began)
        return generations

    def _generations(
        self, request: CompletionRequest, model: Model[W], recalled: Recalled, encode: Encode
    ) -> list[W]:
        """Plan the prompt and build what the loops need; one thread at a time."""
        plan = self._plan(request, model, self._anchors, encode)
        model.check(request)
        return [
            model.generation(
                candidate,
                plan,
                TimedText(self._text_stream(request, plan, model), self._runner.counters),
                partial(_known, plan, recalled, encode) if request.n == 1 else DraftIndex,
            )
            for candidate in _candidates(request)
        ]

    def _plan(
        self, request: CompletionRequest, model: Model[W], anchors: Anchors, encode: Encode
    ) -> PromptPlan:
        if not model.codec.heals:
            request = replace(request, healing="off")
        vocabulary, defaults = model.vocabulary, model.defaults
        return model.fit(
            plan_prompt(request, vocabulary, model.family, encode, model.budget, anchors, defaults)
        )

    def _text_stream(
        self, request: CompletionRequest, plan: PromptPlan, model: Model[W]
    ) -> TextStream:
        stops, special = stop_strings(request, plan), special_tokens(request)
        vocabulary, windows = model.vocabulary, model.codec.windows
        if windows is None:
            return byte_stream(request, plan, self._transducers.get(vocabulary, stops, special))
        return window_stream(request, plan, vocabulary, windows[special], stops)

    def _answer(self, request: CompletionRequest, generations: list[W]) -> Answer:
        """An answer on the running event loop, with the jobs that its chunks come from."""
        outbox = self._outbox_here()
        # All candidates have one plan.
        plan = generations[0].plan if generations else None
        answer = Answer(request, plan.rest, plan.is_far) if plan else Answer(request)
        deadlines = request.deadline_ms, request.prompt_deadline_ms
        answer.jobs = tuple(
            Job(generation, partial(_put, outbox, answer, index), *deadlines)
            for index, generation in enumerate(generations)
        )
        return answer

    def _outbox_here(self) -> Outbox[Item]:
        """The outbox of the running event loop."""
        if self._outbox is None:
            self._outbox = Outbox()
        return self._outbox

    def _typed_through(
        self, request: CompletionRequest
    ) -> tuple[Answer, asyncio.Queue[Item]] | None:
        """The answer whose beginning was typed, and its chunks; what else runs here ends."""
        found = self._answers.find(request)
        before = self._sessions.take_running(request.session, request.seq)
        if before is not None and (found is None or before is not found[0]):
            before.leave()
            self._cancel(before, "superseded")
        if found is None:
            return None
        answer, rest = found
        for job in answer.jobs:
            job.clock.restart()
        self._sessions.attach(request.session, request.seq, answer)
        return answer, answer.hand_over(rest)


class Tracing:
    """Keeps what the covers of an explained request were, as plain data."""

    def __init__(self) -> None:
        self.covers: Covers | None = None

    def observe(self, vocabulary: Vocabulary, posterior: Posterior) -> None:
        self.covers = explain_covers(posterior, vocabulary)


@dataclass(frozen=True, slots=True)
class _Tries(Generic[W]):
    """What an explanation runs, by method, the one asked for first, and what the text says."""

    generations: dict[MethodName, W]
    typed_ids: Sequence[int]
    stable_pending: bytes | None


def _stable_pending(segment: bytes, encode: Encode, vocabulary: Vocabulary) -> bytes | None:
    """What a stable cut gives back; None where no tokens could say it again."""
    try:
        pending = stable_boundary(segment, encode, vocabulary).pending
    except BoundaryError:
        return None
    return pending if coverable(vocabulary, pending) else None


class TransducerCache:
    """The transducers of the last few stop sets: warm from a session's second request on.

    `max_stop_bytes` bounds the automata that are kept, which take some 2 kB a byte of stop
    string. For one vocabulary, and one thread at a time.
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


def _check_grammar(request: CompletionRequest, engine: Engine) -> None:
    """Raise `InvalidRequest`, about the field it came from, for a grammar that is none."""
    if request.grammar is None:
        return
    try:
        engine.check_grammar(request.grammar)
    except InvalidRequest as error:
        if request.grammar_field == "grammar":
            raise
        reason = str(error).removeprefix("grammar: ")
        message = f'"{request.grammar_field}" makes a grammar that cannot be taken: {reason}'
        raise InvalidRequest(message, request.grammar_field) from None


def _known(plan: PromptPlan, recalled: Recalled, encode: Encode) -> DraftIndex:
    """Where drafts are looked up: an earlier answer, then the prompt, and what is expected next.

    There is a draft only where one generation runs alone, and so none among candidates.
    """
    text, rest = (lf_only(part).encode() for part in (recalled.text, recalled.rest))
    expected = encode(plan.pending + rest) if rest else ()
    return DraftIndex((*encode(text), *plan.kept_ids), expected)


def _candidates(request: CompletionRequest) -> list[CompletionRequest]:
    """The request once for each candidate, each with a seed and a sampling of its own."""
    if request.n == 1:
        return [request]
    first = request.sampling
    others = request.sampling_of_others or first
    samplings = [first, *[others] * (request.n - 1)]
    if first.seed is not None:
        samplings = [replace(one, seed=first.seed + n) for n, one in enumerate(samplings)]
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
