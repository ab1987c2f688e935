"""What a client really sends: bodies as they come in, before the application reads them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from support.http_server import Json


class Recorded:
    """An application, and the JSON of all requests with a body that it was asked."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._changed = threading.Condition()
        self.bodies: list[Json] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces: list[bytes] = []

        async def listen() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                pieces.append(message.get("body", b""))
                if not message.get("more_body"):
                    self._add(b"".join(pieces))
            return message

        await self._app(scope, listen, send)

    def _add(self, raw: bytes) -> None:
        if raw:
            with self._changed:
                self.bodies.append(json.loads(raw))
                self._changed.notify_all()

    def wait_for(self, wanted: Callable[[Json], bool], timeout_s: float = 15.0) -> Json:
        """The first body that is `wanted`, once it has come."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (found := [body for body in self.bodies if wanted(body)]):
                left = deadline - time.monotonic()
                assert left > 0 and self._changed.wait(left), f"not among {self.bodies}"
        return found[0]
