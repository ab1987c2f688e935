"""One completion from request to response: the part that is the same in every dialect.

D1  A client that leaves ends its completion: while it waits, and while it streams.
D2  An error before the first chunk has its own status; after it, it is the stream's last event.
D3  Every failure has the dialect's shape; what nobody foresaw is a 500 and a traceback in the
    log, without values, which may be a user's source code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from suture.server.errors import EngineError, Loading, RequestError, SutureError, Unavailable
from suture.server.logs import without_values
from suture.server.openapi.operation import Operation
from suture.server.recent import Recent
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    ScoredToken,
)
from suture.server.routes.asker import asked_by
from suture.server.routes.awaited_loads import AwaitedLoads
from suture.server.routes.body import read_json
from suture.server.routes.candidates import Completed, parse_errors, ranked
from suture.server.routes.completer import ModelInfo, Pool, ServedModel, model_asked_for
from suture.server.routes.limits import places_for
from suture.server.routes.recording import recorded
from suture.server.settings import Settings
from suture.server.sse import EVENTS, EventStream, Framing, encode_json

logger = logging.getLogger("suture.server")


class Answer(Protocol):
    """One request's candidates in a dialect's words."""

    def delta(self, chunk: CompletionChunk) -> bytes:
        """The stream event of a chunk that is not its candidate's last."""
        ...

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        """A candidate's closing event: `chunk` is its last one, `completed` the sum of all."""
        ...

    def end(self, candidates: list[Completed]) -> bytes:
        """What closes the stream behind the last candidate's closing event."""
        ...

    def whole(self, candidates: list[Completed]) -> object:
        """The body of an answer that is not streamed."""
        ...


Wants = Literal["text", "loaded", "unloaded"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A body, understood. `sends_ids`: a chunk without text is worth an event for its ids.

    `wants` is "text", or only that the model is loaded, or unloaded. `others` are the requests of
    a body with several prompts, behind its first one.
    """

    request: CompletionRequest
    answer: Answer
    streamed: bool
    sends_ids: bool
    others: Sequence[CompletionRequest] = ()
    wants: Wants = "text"

    @property
    def requests(self) -> list[CompletionRequest]:
        """That of each candidate."""
        return [one for one in (self.request, *self.others) for _ in range(one.n)]


class Dialect(Protocol):
    """How one family of clients writes requests, answers and errors.

    `operation` is the document's part about its completions, `error_shape` the type of an error's
    body.
    """

    operation: Operation
    error_shape: Any

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        """The request that `body` makes; raises `InvalidRequest`."""
        ...

    def error_body(self, status: int, message: str, field: str | None) -> dict[str, object]:
        """The body of an error response."""
        ...


class CompletionRoute:
    """ASGI endpoint that answers completions in one dialect, whose streams are of `framing`."""

    def __init__(
        self,
        dialect: Dialect,
        pool: Pool,
        settings: Settings,
        recent: Recent,
        framing: Framing = EVENTS,
    ) -> None:
        self._dialect = dialect
        self._pool = pool
        self._settings = settings
        self._recent = recent
        self._framing = framing
        self._loads = AwaitedLoads(settings.parallel + settings.queue)

    @property
    def operation(self) -> Operation:
        """What the document says of this route."""
        return replace(self._dialect.operation, framing=self._framing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = EventStream(send, self._framing)
        try:
            body = await read_json(Request(scope, receive))
            model = model_asked_for(self._pool, body)
            asked = self._parse(body, model)
            others = [asked_by(other, scope) for other in asked.others]
            asked = replace(asked, request=asked_by(asked.request, scope), others=others)
            with places_for(asked.request, scope):
                delivery = self._deliver(asked, model, stream, scope, receive, send)
                await while_connected(receive, delivery)
        except ClientDisconnect:
            return
        except Exception as raised:
            error = public_error(raised)
            if stream.started:
                await stream.write(self._framing.frame(describe(self._dialect, error)))
                await stream.close()
            else:
                await error_response(self._dialect, error)(scope, receive, send)

    def _parse(self, body: dict[str, Any], model: ServedModel) -> Asked:
        try:
            return self._dialect.parse(body, self._settings, model.info)
        except Loading:
            # Only a loaded model says what the body means. Asking for it has it loaded, and says
            # why it cannot be.
            with model.lease():
                raise

    async def _deliver(
        self,
        asked: Asked,
        model: ServedModel,
        stream: EventStream,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        if asked.wants == "unloaded":
            model.unload()
            await self._tell(_nothing(), asked, stream, scope, receive, send)
            return
        if asked.wants == "loaded":
            await self._loads.loaded(model)
        completion = recorded(_completion(model, asked), len(asked.requests), self._recent)
        async with aclosing(completion) as chunks:
            await self._tell(chunks, asked, stream, scope, receive, send)

    async def _tell(
        self,
        chunks: AsyncGenerator[CompletionChunk, None],
        asked: Asked,
        stream: EventStream,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        if asked.streamed:
            async for events in stream_events(chunks, asked):
                await stream.write(events)
            await stream.close()
        else:
            body = encode_json(asked.answer.whole(await collect(chunks, asked)))
            await Response(body, media_type="application/json")(scope, receive, send)


async def _nothing() -> AsyncGenerator[CompletionChunk, None]:
    yield CompletionChunk("", result=CompletionResult("stop"))


async def _completion(model: ServedModel, asked: Asked) -> AsyncGenerator[CompletionChunk, None]:
    """The chunks of all prompts, one prompt after the other: their candidates count on."""
    first = 0
    with model.lease() as completer:
        for request in (asked.request, *asked.others):
            async with aclosing(completer.complete(request)) as chunks:
                async for chunk in chunks:
                    yield replace(chunk, index=first + chunk.index) if first else chunk
            first += request.n


class _Joined:
    """The candidates of a request as they come, chunk by chunk."""

    def __init__(self, n: int) -> None:
        self._texts: list[list[str]] = [[] for _ in range(n)]
        self._token_ids: list[list[int]] = [[] for _ in range(n)]
        self._scores: list[list[ScoredToken]] = [[] for _ in range(n)]
        self._completed: dict[int, Completed] = {}

    def add(self, chunk: CompletionChunk) -> Completed | None:
        """The candidate, if this was its last chunk."""
        texts, token_ids = self._texts[chunk.index], self._token_ids[chunk.index]
        texts.append(chunk.text)
        token_ids += chunk.token_ids
        scores = self._scores[chunk.index]
        scores += chunk.scores
        if chunk.result is None:
            return None
        text = "".join(texts)
        completed = Completed(text, token_ids, chunk.result, chunk.index, tuple(scores))
        self._completed[chunk.index] = completed
        return completed

    @property
    def candidates(self) -> list[Completed] | None:
        """All of them, once they are complete."""
        if len(self._completed) < len(self._texts):
            return None
        return [self._completed[index] for index in range(len(self._texts))]


async def collect(chunks: AsyncGenerator[CompletionChunk, None], asked: Asked) -> list[Completed]:
    """All candidates of a request, the best first, each text once.

    Of raw text they are samples, each as good as the next one, and none is left out; nor is one of
    several prompts, where clients count them.
    """
    request, requests = asked.request, asked.requests
    joined = _Joined(len(requests))
    async for chunk in chunks:
        joined.add(chunk)
        if joined.candidates is not None:
            candidates = [*map(_up_to_a_line, joined.candidates, requests)]
            if request.n == 1 or request.shape == "raw" or asked.others:
                return candidates
            # Parsing takes some milliseconds each.
            return await asyncio.to_thread(ranked, candidates, parse_errors(request))
    raise EngineError("the completion ended without a result")


def _up_to_a_line(completed: Completed, request: CompletionRequest) -> Completed:
    """What a deadline cut off inside a line is given up to the line before, if there is one."""
    if completed.result.finish != "deadline" or request.shape == "raw":
        return completed
    end = max(completed.text.rfind("\n"), completed.text.rfind("\r")) + 1
    # An edit goes on behind the text, into the line that was cut off.
    result = replace(completed.result, edit=None)
    text = completed.text[: end or None]
    scores = tuple(score for score in completed.scores if score.offset < len(text))
    return replace(completed, text=text, result=result, scores=scores)


async def stream_events(
    chunks: AsyncGenerator[CompletionChunk, None], asked: Asked
) -> AsyncGenerator[bytes, None]:
    """The events of a streamed completion; no text is an event only for its ids."""
    n_candidates = len(asked.requests)
    joined = _Joined(n_candidates)
    unsent: list[list[int]] = [[] for _ in range(n_candidates)]
    async for chunk in chunks:
        completed = joined.add(chunk)
        # Ids of chunks that had no text wait for the next event.
        unsent[chunk.index] += chunk.token_ids
        if completed is None and not (chunk.text or asked.sends_ids):
            continue
        outgoing = replace(chunk, token_ids=tuple(unsent[chunk.index]))
        unsent[chunk.index].clear()
        if completed is None:
            yield asked.answer.delta(outgoing)
            continue
        event_of_end = asked.answer.last(outgoing, completed)
        if joined.candidates is not None:
            yield event_of_end + asked.answer.end(joined.candidates)
            return
        yield event_of_end
    raise EngineError("the completion ended without a result")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end, or cancel it when the client leaves.

    Servers differ in whether sending to a client that left raises, so this asks by receiving. The
    request's body must have been read.
    """
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        left = not running.done()
        running.cancel()
        leaving.cancel()
        outcome, _ = await asyncio.gather(running, leaving, return_exceptions=True)
    if isinstance(outcome, BaseException) and not left:
        raise outcome
    if isinstance(outcome, Exception):
        logger.warning("a cancelled completion failed: %s", type(outcome).__name__)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def public_error(raised: Exception) -> SutureError:
    """What a client is told of `raised`; logs what is ours to mend."""
    if isinstance(raised, SutureError):
        if isinstance(raised, EngineError):
            logger.error("engine error: %s", raised)
        return raised
    logger.error("unexpected %s", without_values(raised))
    return EngineError("internal error")


def describe(dialect: Dialect, error: SutureError) -> dict[str, object]:
    """The error body for `error`, in the dialect's words, and its reason in ours."""
    body = dialect.error_body(error.status, str(error), getattr(error, "field", None))
    return body if error.reason is None else body | {"suture": {"reason": error.reason}}


def error_response(dialect: Dialect, error: SutureError) -> Response:
    """The response for an error before anything was sent."""
    headers = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, RequestError) and error.ends_connection:
        headers["Connection"] = "close"
    body = encode_json(describe(dialect, error))
    return Response(body, error.status, headers, media_type="application/json")
