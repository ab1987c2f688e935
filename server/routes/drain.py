"""How a server goes: what runs goes on, what is new is told to come again, or go elsewhere.

Q1  A request that was taken up before is answered, however long ago; the server waits for it.
Q2  A request that comes after `refuse()` is answered at once, in its dialect: 503 with
    `Retry-After`, `/health` too, so that whoever balances loads sends nothing more.
    Its body is read first, for a while: a connection that is closed with some of it unread is
    reset, and the answer lost.
Q3  Every answer that begins after `close_connections()` or `refuse()` says `Connection: close`:
    no client goes on to use what will be closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suture.server.errors import Stopping
from suture.server.routes.body import MAX_BODY_BYTES
from suture.server.routes.delivery import Dialect, error_response

# How long who is refused has to send the rest of a body that nobody wants.
UNWANTED_S = 2.0


class Drain:
    """ASGI middleware, around everything else, that knows what runs and ends it in order."""

    def __init__(self, app: ASGIApp, dialect_of: Callable[[str], Dialect]) -> None:
        self._app = app
        self._dialect_of = dialect_of
        self._n_running = 0
        self._refuses = False
        self._closes = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def n_running(self) -> int:
        """Requests that are not answered to the end."""
        return self._n_running

    def refuse(self) -> None:
        """Take up no request from here on."""
        self._refuses = self._closes = True

    def close_connections(self) -> None:
        """Take up requests, and have each connection closed behind the next answer."""
        self._closes = True

    async def idle(self) -> None:
        """Return once nothing runs."""
        await self._idle.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._refuse if self._refuses else self._app
        self._n_running += 1
        self._idle.clear()
        try:
            await answer(scope, receive, partial(self._send, send))
        finally:
            self._n_running -= 1
            if not self._n_running:
                self._idle.set()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Who asks whether to send a body sends none then.
        if "expect" not in Headers(scope=scope):
            with suppress(TimeoutError):
                await asyncio.wait_for(_read_unwanted(receive), UNWANTED_S)
        refusal = error_response(self._dialect_of(scope["path"]), Stopping())
        await refusal(scope, receive, send)

    async def _send(self, send: Send, message: Message) -> None:
        if self._closes and message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Connection"] = "close"
        await send(message)


async def _read_unwanted(receive: Receive) -> None:
    """Read to a body's end, or as much as any body may have."""
    n_left = MAX_BODY_BYTES
    while n_left > 0:
        message = await receive()
        n_left -= len(message.get("body", b""))
        if not message.get("more_body", False):  # nor is there more of one who left
            return
