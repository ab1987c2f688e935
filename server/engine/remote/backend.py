"""One backend, spoken to over HTTP: events out of it, or the error that says how it failed.

E1  Whoever closes a stream, or is cancelled in it, closes its connection: that is how engines
    are told that nobody wants the rest.
E2  Nothing that a backend does is waited for longer than `stall_s`, and nothing of it kept beyond
    a bound: heads, events, answers and errors each have one.
E3  Every failure is one of `errors.py`, and tells clients nothing of where the backend is. What a
    backend says of a request may quote the user's text: it is told to the client, shortened, and
    to nobody else.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Literal
from urllib.parse import urlsplit

import h11
import httpx2

from suture.server.engine.remote.errors import (
    BackendBusy,
    BackendFailed,
    BackendRefused,
    BackendUnreachable,
)
from suture.server.engine.remote.event_stream import EventParser, EventTooLarge
from suture.server.engine.remote.protocol import Json
from suture.server.engine.remote.refusals import NotServed, error_told, told_in_event
from suture.server.errors import SetupError, SutureError
from suture.server.sse import encode_json
from suture.server.tls import tls_error

FailureKind = Literal["busy", "refused", "failed", "unreachable"]

CONNECT_S = 5.0
# Of a server that is asked how it does, and has nothing to compute for it.
LOOK_S = 5.0
# vLLM's and llama-server's keep idle connections for 5 s: one that is about to be closed there must
# not be used for a request.
KEEP_ALIVE_S = 4.0
MAX_ANSWER_BYTES = 4 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
# SGLang repeats all that was said in each event.
MAX_STREAM_BYTES = 2**28
DONE = b"[DONE]"
# How long the end of an answer may come after its last event.
END_S = 0.25
# How much the latest answer counts in the average.
LATEST = 0.1
# OpenSSL's codes for a host, and for an address, that a certificate is not of.
_OF_ANOTHER_HOST = frozenset({62, 64})

_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (BackendBusy, "busy"),
    (BackendRefused, "refused"),
    (BackendFailed, "failed"),
    (BackendUnreachable, "unreachable"),
)


@dataclass(slots=True)
class BackendCounters:
    """What was asked of a backend since the start.

    `first_event_s` is how long first events take, averaged over requests with the latest ones
    weighing most; None before the first.
    """

    requests: int = 0
    running: int = 0
    failures: Counter[FailureKind] = field(default_factory=Counter)
    first_event_s: float | None = None

    def answered(self, seconds: float) -> None:
        """A first event came."""
        before = seconds if self.first_event_s is None else self.first_event_s
        self.first_event_s = before + LATEST * (seconds - before)


class Backend:
    """The inference server at `url`, which may end in the `/v1` of OpenAI's clients.

    `name` is the URL without user and password. `trust` are the certificates it is trusted by, True
    the system's. Raises `SetupError` for what is no URL of HTTP.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        trust: ssl.SSLContext | bool = True,
        stall_s: float = 60.0,
    ) -> None:
        self._http = _client(url, api_key, trust, stall_s)
        self._stall_s = stall_s
        self.name = _name(self._http.base_url)
        self.counters = BackendCounters()

    async def stream(
        self, path: str, body: Json, headers: Mapping[str, str]
    ) -> AsyncGenerator[object, None]:
        """The JSON of each event of the answer, until `[DONE]` or the end of it.

        Whether it has ended or was broken off well-formed is for those to see who know what a last
        event says.
        """
        with self._counted():
            sent_at = time.monotonic()
            n_events = 0
            async with (
                self._answer("POST", path, headers, encode_json(body)) as response,
                aclosing(self._events(response)) as events,
            ):
                async for data in events:
                    n_events += 1
                    if n_events == 1:
                        self.counters.answered(time.monotonic() - sent_at)
                    yield self._event(data)
            if not n_events:
                raise BackendFailed("there are no events in the server's answer")

    async def get(self, path: str) -> object:
        """What is at a path, as JSON; None where there is nothing in the answer."""
        content = await self._look(path)
        return self._json(content) if content.strip() else None

    async def check(self) -> None:
        """See that it does well; raises what `get` does where it does not.

        `BackendBusy` says that it is there and takes up nothing now.
        """
        try:
            await self._look("/health")
        except (NotServed, BackendRefused):
            # It is no path of theirs, or one that is not for us; all have a list of models.
            await self._look("/v1/models")

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.counters.requests += 1
        self.counters.running += 1
        try:
            yield
        except SutureError as error:
            kinds = (kind for of, kind in _KINDS if isinstance(error, of))
            self.counters.failures.update(kinds)
            raise
        finally:
            self.counters.running -= 1

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes | None = None,
        within_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """A good answer, of which the head has been read; closed at the end."""
        within_s = within_s or self._stall_s
        if content is not None:
            headers = {**headers, "Content-Type": "application/json"}
        with self._mapping_errors(within_s):
            async with asyncio.timeout(within_s):
                response = await self._send(method, path, headers, content)
            try:
                if not response.is_success:
                    raise await self._error(response)
                yield response
            finally:
                await response.aclose()

    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> httpx2.Response:
        """The head of an answer.

        A kept connection may be closed there as we use it: nobody has read the request then, and
        it goes out again over a new one.
        """
        opened: list[str] = []

        async def trace(event: str, info: object) -> None:
            if event.startswith("connection.connect"):
                opened.append(event)

        while True:
            request = self._http.build_request(
                method, path, headers=headers, content=content, extensions={"trace": trace}
            )
            try:
                return await self._http.send(request, stream=True)
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError) as error:
                is_answered = isinstance(_cause(error), h11.RemoteProtocolError)
                if opened or is_answered:
                    raise

    async def _look(self, path: str) -> bytes:
        """What is at a path, to the end, so that the connection may be used again."""
        content = bytearray()
        async with (
            self._answer("GET", path, {}, within_s=LOOK_S) as response,
            asyncio.timeout(LOOK_S),
        ):
            await _collect(content, response, MAX_ANSWER_BYTES)
        if len(content) > MAX_ANSWER_BYTES:
            raise BackendFailed(f"the server's answer has more than {MAX_ANSWER_BYTES} bytes")
        return bytes(content)

    async def _error(self, response: httpx2.Response) -> SutureError:
        """What an answer comes to that is an error, from as much of it as comes."""
        content = bytearray()
        with suppress(TimeoutError, httpx2.HTTPError):
            async with asyncio.timeout(LOOK_S):
                await _collect(content, response, MAX_ERROR_BYTES)
        return error_told(response.status_code, response.headers, bytes(content))

    async def _events(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """The data of each event, each of which has `stall_s` to come, up to `[DONE]`."""
        parser = EventParser()
        n_bytes = 0
        until = _now() + self._stall_s
        async with aclosing(response.aiter_raw()) as pieces:
            while True:
                async with asyncio.timeout_at(until):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                n_bytes += len(piece)
                if n_bytes > MAX_STREAM_BYTES:
                    raise BackendFailed("the server's answer does not end")
                for data in parser.feed(piece):
                    if data == DONE:
                        await _read_end(pieces)
                        return
                    yield data
                    until = _now() + self._stall_s

    def _event(self, data: bytes) -> object:
        """What an event says; raises what it tells of where it tells of an error."""
        value = self._json(data)
        if (error := told_in_event(value)) is not None:
            raise error
        return value

    def _json(self, content: bytes) -> object:
        try:
            value: object = json.loads(content)
        except (ValueError, RecursionError):
            raise BackendFailed("the server's answer is no JSON") from None
        return value

    @contextmanager
    def _mapping_errors(self, within_s: float) -> Iterator[None]:
        """Raises what goes wrong with HTTP as an error of a backend."""
        try:
            yield
        except TimeoutError:
            raise BackendFailed(f"nothing came from the server for {within_s:g} s") from None
        except EventTooLarge as error:
            raise BackendFailed(f"the server's answer has {error}") from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise BackendUnreachable(self._why_unreachable(error)) from error
        except httpx2.HTTPError as error:
            what = "the server's answer broke off, or is no HTTP"
            raise BackendFailed(f"{what} ({type(error).__name__})") from error

    def _why_unreachable(self, error: Exception) -> str:
        failure = tls_error(error)
        if isinstance(failure, ssl.SSLCertVerificationError):
            is_anothers = failure.verify_code in _OF_ANOTHER_HOST
            why = "it is another host's" if is_anothers else failure.verify_message
            return (
                f"the server's certificate is not trusted: {why}; "
                "SSL_CERT_FILE names the certificates that are"
            )
        if failure is not None:
            return f"there is no TLS with the server: {failure.reason or failure}"
        if isinstance(_cause(error), socket.gaierror):
            return "no address is known of the server's host"
        if isinstance(error, httpx2.ConnectTimeout):
            return f"no connection with the server within {CONNECT_S:g} s"
        return "no server answers there"


def _client(
    url: str, api_key: str | None, trust: ssl.SSLContext | bool, stall_s: float
) -> httpx2.AsyncClient:
    check_url(url)
    # What is packed could unpack to more than any bound.
    headers = {"Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    # Without TLS there are no certificates, and reading the system's takes its time.
    trusted = trust if url.startswith("https://") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A backend is one that the user named: no proxy out of a variable.
    return httpx2.AsyncClient(
        base_url=url.rstrip("/").removesuffix("/v1"),
        headers=headers,
        # A gateway's cookie would send all users to the engine that one of them got.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        verify=trusted,
        trust_env=False,
        timeout=httpx2.Timeout(None, connect=CONNECT_S, write=stall_s),
        limits=httpx2.Limits(keepalive_expiry=KEEP_ALIVE_S),
    )


def check_url(url: str) -> None:
    """Raise `SetupError` for what is no URL of a server; a password in it is not shown."""
    scheme, _, rest = url.partition("://")
    shown = f"{scheme}://{rest.rpartition('@')[2]}" if rest else url
    try:
        parts, parsed = urlsplit(url), httpx2.URL(url)
        is_whole = bool(parts.hostname and parts.port != 0 and parsed.host)
    except (httpx2.InvalidURL, ValueError) as error:
        raise SetupError(f"{shown}: {error}") from None
    if scheme not in ("http", "https") or not is_whole or " " in url:
        raise SetupError(f"{shown}: expected a URL that begins with http:// or https://")
    if parts.query or parts.fragment:
        raise SetupError(f"{shown}: expected a URL without ? and #")


async def _collect(content: bytearray, response: httpx2.Response, max_bytes: int) -> None:
    """Add to `content` what an answer has, and leave off where it is more than that."""
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > max_bytes:
            return


async def _read_end(pieces: AsyncGenerator[bytes, None]) -> None:
    """Read what ends an answer behind its last event, without which its connection is of no use."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(END_S):
            await anext(pieces, None)


def _name(url: httpx2.URL) -> str:
    return str(url.copy_with(userinfo=b"")).rstrip("/")


def _cause(error: BaseException) -> BaseException:
    """The first of the errors that led to this one."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return error


def _now() -> float:
    return asyncio.get_running_loop().time()
