"""HTTP/1.1 connections: uvicorn's, with h11 as the parser, and bounds on what they may cost.

uvicorn lets a client be silent for ever before its first request, inside a request's head, behind
an answer that came before the body had, and where it does not read its answer. Its words for what
is no HTTP are plain text. And where descriptors run out, nobody is served.

  W1  Every wait for a client ends: for a head after `HEAD_S`, for the rest of a body that was
      answered already after `LINGER_S`, for a next request after `KEEP_ALIVE_S`, for one that takes
      nothing of an answer after `UNREAD_S`. A body that is still wanted is waited for in
      `routes/body.py`.
  W2  There are never more connections than descriptors for them. At that bound a new one takes
      the place of the one that has been idle longest, and is refused where none is.
  W3  Who ends sending has left, as for nginx, Go and llama-server: editors cancel by closing, and
      that looks the same. What can be answered at once still is.
  W4  Who is still sending a body sees the answer that came before its end: what comes then is read
      and dropped. A connection that is closed with some of it unread is reset, and the answer
      lost, so one that is to end has its own half closed first, and the rest when the client has
      closed the other, or after `LINGER_S`.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any, Literal, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from suture.server.app import dialect_of
from suture.server.routes.access import MAX_HEAD_BYTES
from suture.server.routes.body import READ_S
from suture.server.settings import Settings
from suture.server.sse import encode_json
from suture.server.tls import tls_context

HEAD_S = 20.0
# Many clients send all of a body before they look at an answer: as long as one may take.
LINGER_S = READ_S
# Longer than the pauses of who types: an editor's next request finds its connection still open.
KEEP_ALIVE_S = 75
# The laptop of who asked may have been closed.
UNREAD_S = 120.0
MAX_CONNECTIONS = 2048
# What the model's files, the cache and the log may need beside connections.
OTHER_DESCRIPTORS = 256
# Connections count from the end of their TLS handshake on, which may take a minute.
WANTED_DESCRIPTORS = 16_384

Wait = Literal["head", "rest"]


def http_config(app: ASGIApp, settings: Settings, drain_s: int) -> uvicorn.Config:
    """How `app` is served; open requests may go on for `drain_s` after a request to stop."""
    return uvicorn.Config(
        app,
        # Not what else is installed: parsers differ in what they let through.
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Who asks is who is connected: a client could say anything in X-Forwarded-For.
        proxy_headers=False,
        # No page of another origin may use an answer as its image, script or style either.
        headers=[("Cross-Origin-Resource-Policy", "same-origin")],
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_graceful_shutdown=drain_s,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_context_factory=(
            None if settings.tls_cert is None else lambda *_: tls_context(settings)
        ),
    )


def raise_descriptor_limit() -> None:
    """Have as many as the system allows: its usual 1024 is for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections() -> int:
    """How many connections the descriptors of this process are enough for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(8, min(MAX_CONNECTIONS, soft - OTHER_DESCRIPTORS))


class Connection(H11Protocol):
    """One client's connection. uvicorn's `transport` is closed as W4 says, `_socket` at once."""

    _socket: asyncio.Transport

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited: Wait | None = None
        self._wait_ends: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._is_half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        super().connection_made(cast(asyncio.Transport, _Closing(transport, self._close)))
        _set_unread_limit(transport)
        self._idle_since = self.loop.time()
        self._wait_for("head")
        if len(self.connections) > max_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_half_closed:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._wait()

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        if not self._is_half_closed:  # else there is no next request
            super().on_response_complete()
        self._wait()

    def shutdown(self) -> None:
        super().shutdown()
        if self.is_idle:
            self._socket.close()

    def _close(self) -> None:
        """Close, at once or as W4 says."""
        is_sent_to = self.conn.their_state is h11.SEND_BODY and not self._socket.is_closing()
        if self._is_half_closed or not is_sent_to or not self._is_answered:
            self._socket.close()
            return
        self._is_half_closed = True
        if self._socket.can_write_eof():  # not with TLS: its clients know by the head
            self._socket.write_eof()
        self.flow.resume_reading()

    def _should_upgrade(self) -> bool:
        # There is nothing to upgrade to, and what cannot be upgraded is served as it is.
        return False

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self._is_answered

    @property
    def _is_answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    def _wait(self) -> None:
        """Begin or end a wait. What comes piece by piece must not begin it anew."""
        if not self.is_idle:
            self._wait_for(None)
        elif self.conn.their_state is h11.SEND_BODY:
            self._wait_for("rest")
        elif self.cycle is None or self.conn.trailing_data[0]:
            self._wait_for("head")
        else:
            self._wait_for(None)  # for a next request, which uvicorn counts

    def _wait_for(self, awaited: Wait | None) -> None:
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._wait_ends is not None:
            self._wait_ends.cancel()
            self._wait_ends = None
        if awaited is not None:
            seconds = HEAD_S if awaited == "head" else LINGER_S
            self._wait_ends = self.loop.call_later(seconds, self._waited_enough)

    def _waited_enough(self) -> None:
        if self._awaited == "head" and self.conn.trailing_data[0]:
            self._refuse(408, f"the request's head did not come within {HEAD_S:.0f} s")
        else:
            self._socket.close()

    def _make_room(self) -> None:
        # Those that are told to close are still there, until the loop has come round.
        others = [
            one
            for one in self.connections
            if isinstance(one, Connection) and not one.transport.is_closing()
        ]
        if len(others) <= max_connections():
            return
        idlest = min((one for one in others if one.is_idle), key=lambda one: one._idle_since)
        if idlest is self:
            self._refuse(503, "too many connections")
        else:
            idlest._socket.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; uvicorn calls it where h11 has raised."""
        error = sys.exception()
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        if hint == 431:
            self._refuse(431, f"the request's head is larger than {MAX_HEAD_BYTES // 2**10} KiB")
        else:
            self._refuse(hint if 400 <= hint < 500 else 400, "this is no valid HTTP/1.1 request")

    def _refuse(self, status: int, message: str) -> None:
        """Answer, if there is no answer yet, and close."""
        path, is_head = "", False
        if not self.is_idle:
            path, is_head = self.scope["path"], self.scope["method"] == "HEAD"
            # The application must not answer as well.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = encode_json(dialect_of(path).error_body(status, message, None))
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            headers["Connection"] = "close"
            for event in (
                h11.Response(status_code=status, headers=[*headers.items()]),
                h11.Data(data=b"" if is_head else body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
        self._socket.close()


class _Closing:
    """A transport whose user leaves to `close` how it is closed."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self.close = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _set_unread_limit(transport: asyncio.Transport) -> None:
    """Have the system end a connection that takes nothing; also what is closed waits for that."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1000))
