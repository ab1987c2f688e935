"""One completion from request to response: the part that is the same in every dialect.

D1  A client that leaves ends its completion: while it waits, and while it streams.
D2  An error before the first chunk has its own status; after it, it is the stream's last event.
D3  Every failure has the dialect's shape; what nobody foresaw is a 500 and a traceback in the
    log, without values, which may be a user's source code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from suture.server.errors import EngineError, SutureError, Unavailable
from suture.server.logs import without_values
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult
from suture.server.routes.body import read_json
from suture.server.routes.completer import Completer, ModelInfo
from suture.server.settings import Settings
from suture.server.sse import EventStream, encode_json, event

logger = logging.getLogger("suture.server")


@dataclass(frozen=True, slots=True)
class Completed:
    """A whole completion: the joined text and token ids of its chunks, and the result."""

    text: str
    token_ids: list[int]
    result: CompletionResult


class Answer(Protocol):
    """One completion in a dialect's words."""

    def delta(self, chunk: CompletionChunk) -> bytes:
        """The stream event of a chunk that is not the last."""
        ...

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        """The closing events: `chunk` is the last one, `completed` the sum of all."""
        ...

    def whole(self, completed: Completed) -> dict[str, object]:
        """The body of an answer that is not streamed."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A body, understood. `sends_ids`: a chunk without text is worth an event for its ids."""

    request: CompletionRequest
    answer: Answer
    streamed: bool
    sends_ids: bool


class Dialect(Protocol):
    """How one family of clients writes requests, answers and errors."""

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        """The request that `body` makes; raises `InvalidRequest`."""
        ...

    def error_body(self, status: int, message: str, field: str | None) -> dict[str, object]:
        """The body of an error response."""
        ...


# The key of an ASGI scope under which the caller is named; no key, no name.
CALLER = "suture.caller"


class CompletionRoute:
    """ASGI endpoint that answers completions in one dialect."""

    def __init__(self, dialect: Dialect, completer: Completer, settings: Settings) -> None:
        self._dialect = dialect
        self._completer = completer
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = EventStream(send)
        try:
            body = await read_json(Request(scope, receive))
            asked = _scoped(self._dialect.parse(body, self._settings, self._completer.model), scope)
            await while_connected(receive, self._deliver(asked, stream, scope, receive, send))
        except ClientDisconnect:
            return
        except Exception as raised:
            error = public_error(raised)
            if stream.started:
                await stream.write(event(describe(self._dialect, error)))
                await stream.close()
            else:
                await error_response(self._dialect, error)(scope, receive, send)

    async def _deliver(
        self, asked: Asked, stream: EventStream, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async with aclosing(self._completer.complete(asked.request)) as chunks:
            if asked.streamed:
                async for events in stream_events(chunks, asked):
                    await stream.write(events)
                await stream.close()
            else:
                body = encode_json(asked.answer.whole(await collect(chunks)))
                await Response(body, media_type="application/json")(scope, receive, send)


def _scoped(asked: Asked, scope: Scope) -> Asked:
    """The same, its session the caller's own: two keys may use one name."""
    request = asked.request
    if request.session is None:
        return asked
    session = f"{scope.get(CALLER, '')}/{request.session}"
    return replace(asked, request=replace(request, session=session))


async def collect(chunks: AsyncGenerator[CompletionChunk, None]) -> Completed:
    """All of a completion."""
    texts: list[str] = []
    token_ids: list[int] = []
    async for chunk in chunks:
        texts.append(chunk.text)
        token_ids += chunk.token_ids
        if chunk.result is not None:
            return Completed("".join(texts), token_ids, chunk.result)
    raise EngineError("the completion ended without a result")


async def stream_events(
    chunks: AsyncGenerator[CompletionChunk, None], asked: Asked
) -> AsyncGenerator[bytes, None]:
    """The events of a streamed completion; no text is an event only for its ids."""
    texts: list[str] = []
    token_ids: list[int] = []
    n_sent = 0
    async for chunk in chunks:
        texts.append(chunk.text)
        token_ids += chunk.token_ids
        # Ids of chunks that had no text wait for the next event.
        outgoing = replace(chunk, token_ids=tuple(token_ids[n_sent:]))
        if chunk.result is not None:
            yield asked.answer.last(outgoing, Completed("".join(texts), token_ids, chunk.result))
            return
        if chunk.text or asked.sends_ids:
            yield asked.answer.delta(outgoing)
            n_sent = len(token_ids)
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
    """The error body for `error`."""
    return dialect.error_body(error.status, str(error), getattr(error, "field", None))


def error_response(dialect: Dialect, error: SutureError) -> Response:
    """The response for an error before anything was sent."""
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, Unavailable) else None
    body = encode_json(describe(dialect, error))
    return Response(body, error.status, headers, media_type="application/json")
