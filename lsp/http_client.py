"""The client of our HTTP server: one answer, or the reason why there is none.

A server that is gone, refuses our key or is no Suture is asked seldom: each failure in a row
doubles the wait before the next try, and who asks meanwhile is told what was found last. One that
loads its model is watched until it is ready, and where one was that is gone is looked now and then
whether it is back: what is told of it is true also while nobody types.

Whoever is cancelled while waiting closes the connection, which ends the work in the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, get_args

import httpx2

from suture.lsp.shown import Suggestion
from suture.server.errors import SutureError
from suture.server.request import Reason
from suture.server.tls import tls_error

Json = dict[str, Any]
T = TypeVar("T")

# A prompt may take long to be read; who waits for it can go on typing.
TIMEOUT = httpx2.Timeout(60.0, connect=2.0)
POLL_S = 1.0
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
# After which the server is asked seldom; and what says something of it, not of one request.
_FAILURES = frozenset({"UNREACHABLE", "AUTH", "ERROR"})
STATES = _FAILURES | {"LOADING", "BUSY", "NO_FIM"}
# Of what nobody waits for: a server that has no time for that is as one wants it.
STATES_AHEAD = STATES - {"BUSY"}


@dataclass(frozen=True, slots=True)
class Health:
    """How the server does, as far as we know: nothing is wrong where there is no `reason`."""

    reason: Reason | None = None
    message: str = ""


READY = Health()


class Unanswered(Exception):
    """There is no answer, for a reason of docs/reasons.md."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.health = Health(reason, message)


@dataclass(frozen=True, slots=True)
class Answer:
    """A suggestion, which may be empty for a reason; `report` is the server's `suture` object."""

    suggestion: Suggestion
    reason: Reason | None
    report: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and of one that was started: does it live, and what did it say last."""

    url: str
    api_key: str | None = None
    trust: ssl.SSLContext | bool = True
    is_alive: Callable[[], bool] = lambda: False
    last_words: Callable[[], str] = str


class Backoff:
    """When a server that failed may be tried again; times in seconds, on any clock. PURE."""

    def __init__(self) -> None:
        self._wait_s = 0.0
        self._until = 0.0

    def is_over(self, now: float) -> bool:
        return now >= self._until

    def failed(self, now: float) -> float:
        """Wait twice as long as the last time; the seconds."""
        self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s or FIRST_WAIT_S)
        self._until = now + self._wait_s
        return self._wait_s

    def reset(self) -> None:
        self._wait_s = self._until = 0.0


class ServerClient:
    """Asks the server that `locate` finds; tells `on_health` of each change, once.

    `locate` is asked before the first request, and again after the server could not be reached.
    """

    def __init__(
        self, locate: Callable[[], Awaitable[Address]], on_health: Callable[[Health], None]
    ) -> None:
        self._locate = locate
        self._on_health = on_health
        self._health = READY
        self._backoff = Backoff()
        self._connection: _Connection | None = None
        self._opening: asyncio.Task[_Connection] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)

    @property
    def health(self) -> Health:
        return self._health

    @property
    def url(self) -> str | None:
        """Where the server is that was asked last; None while none is known."""
        return None if self._connection is None else self._connection.address.url

    def try_again(self) -> None:
        """Ask the server at the next request, whatever failed before: the user wants it."""
        self._backoff.reset()

    async def infill(self, body: Json, tells: Collection[str] = STATES) -> Answer:
        """The answer to a body of `/infill`, numbered; raises `Unanswered`.

        Of failures those that it `tells` are states of the server.
        """
        return self._numbered(await self._ask(_exchanging(body, _answer), tells))

    async def write(
        self, body: Json, hear: Callable[[Suggestion], None], tells: Collection[str] = STATES
    ) -> Answer:
        """The same; `hear` is told what has come of the text each time that more has.

        What it is told has the number of the answer, and goes over nothing behind the cursor.
        """
        number = next(self._numbers)

        async def ask(connection: _Connection) -> Answer:
            said, event = "", Json()
            async with aclosing(connection.events(body | {"stream": True})) as events:
                async for event in events:
                    more = event.get("content")
                    said += more if isinstance(more, str) else ""
                    if more and not event.get("stop"):
                        hear(Suggestion(said, number=number))
            return _up_to_a_line(_answer_of(event), said)

        answer = await self._ask(ask, tells)
        return replace(answer, suggestion=replace(answer.suggestion, number=number))

    async def read(self, body: Json) -> Answer:
        """The answer to a body of `/infill` that nobody waits for; raises `Unanswered`.

        It says nothing of the server's health, and is not asked for where that is not good.
        """
        if self._health != READY:
            raise Unanswered(self._health.reason or "UNREACHABLE", self._health.message)
        connection = await self._connect()
        return self._numbered(_answer(await connection.exchange("POST", "/infill", body)))

    async def candidates(self, body: Json, n: int) -> list[Answer]:
        """At most `n` answers that differ, the best first; raises `Unanswered`."""
        answers = await self._ask(_exchanging(body | {"n_cmpl": n}, _answers))
        return [self._numbered(answer) for answer in answers]

    async def check(self) -> None:
        """Find the server, start it where it has to be, and see that it is ready.

        Raises `Unanswered`; what is wrong is told of like any other failure. That it is ready is
        not: who asked something meanwhile was told more.
        """
        await self._attempt(lambda connection: connection.exchange("GET", "/health", None))

    async def close(self) -> None:
        """End all requests and what watches the server."""
        connection, self._connection = self._connection, None
        running = (self._watching, self._looking, self._opening, *self._leaving)
        tasks = [one for one in running if one is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if connection is not None:
            await connection.http.aclose()

    def relocate(self) -> None:
        """Look for the server anew at the next request: it may be another one now."""
        self._backoff.reset()
        self._leave()
        self._look_no_more()
        if self._opening is not None:
            # It looks where the server was to be before.
            self._opening.cancel()
            self._opening = None
        if not self._is_watching:
            # What was wrong may be so no more; the watch finds that out itself.
            self._change(READY)

    async def _ask(
        self,
        ask: Callable[[_Connection], Awaitable[T]],
        tells: Collection[str] = STATES,
    ) -> T:
        """A good answer of `/infill`."""
        connection, answer = await self._attempt(ask, tells)
        if connection is self._connection:
            self._backoff.reset()
            self._look_no_more()
            self._change(READY)
        return answer

    async def _attempt(
        self,
        ask: Callable[[_Connection], Awaitable[T]],
        tells: Collection[str] = STATES,
    ) -> tuple[_Connection, T]:
        """A good answer, and whose it is."""
        if not self._backoff.is_over(time.monotonic()) or self._is_watching:
            raise Unanswered(self._health.reason or "UNREACHABLE", self._health.message)
        connection = None
        try:
            connection = await self._connect()
            return connection, await ask(connection)
        except Unanswered as error:
            # What a server says that was left meanwhile is no news of the one that is there now.
            if connection is self._connection and error.health.reason in tells:
                self._failed(error.health)
            raise

    def _numbered(self, answer: Answer) -> Answer:
        suggestion = replace(answer.suggestion, number=next(self._numbers))
        return replace(answer, suggestion=suggestion)

    async def _connect(self) -> _Connection:
        while self._connection is None:
            if self._opening is None:
                self._opening = asyncio.ensure_future(self._open())
                self._opening.add_done_callback(self._opened)
            opening = self._opening
            # Whoever asked may leave; where the server is, the next one wants to know too.
            await asyncio.wait({opening})
            if not opening.cancelled():
                opening.result()
        return self._connection

    async def _open(self) -> _Connection:
        return _Connection(await self._locate())

    def _opened(self, opening: asyncio.Task[_Connection]) -> None:
        is_wanted = self._opening is opening
        if is_wanted:
            self._opening = None
        if not opening.cancelled() and opening.exception() is None and is_wanted:
            self._connection = opening.result()

    def _leave(self) -> None:
        """Ask elsewhere from now on; what is being asked goes on."""
        if self._connection is None:
            return
        task = asyncio.ensure_future(self._connection.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        self._connection = None

    def _failed(self, health: Health) -> None:
        if health.reason == "LOADING" and not self._is_watching:
            self._watching = asyncio.ensure_future(self._watch())
        if health.reason in _FAILURES:
            self._backoff.failed(time.monotonic())
            if health.reason == "UNREACHABLE" and self._connection is not None:
                self._look_for(self._connection.address)
            # A key may be another one by then, and the server in another place.
            self._leave()
        if health.reason in STATES:
            self._change(health)

    def _look_for(self, address: Address) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look(address))

    def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self, address: Address) -> None:
        """Ask whether a server that is gone is there again, ever more seldom, until it is.

        Nothing is started for it, and nobody who asks something waits for it.
        """
        waits, found = Backoff(), Health("UNREACHABLE")
        # Nothing of ours is shown to whoever may be there now.
        async with _client(replace(address, api_key=None)) as http:
            while found.reason == "UNREACHABLE":
                await asyncio.sleep(waits.failed(time.monotonic()))
                try:
                    await _exchange(http, address, "GET", "/health", None)
                    found = READY
                except Unanswered as error:
                    found = error.health
        # What a request was told meanwhile is more than that.
        if self._health.reason != "UNREACHABLE":
            return
        self._backoff.reset()
        if found.reason == "LOADING":
            self._failed(found)
        else:
            self._change(READY)

    @property
    def _is_watching(self) -> bool:
        return self._watching is not None and not self._watching.done()

    async def _watch(self) -> None:
        """Ask until the model is loaded, or the server is gone."""
        while True:
            await asyncio.sleep(POLL_S)
            connection = None
            try:
                connection = await self._connect()
                await connection.exchange("GET", "/health", None)
            except Unanswered as error:
                if error.health.reason == "LOADING":
                    self._change(error.health)
                    continue
                if connection is not self._connection:
                    continue
                self._failed(error.health)
            else:
                self._change(READY)
            return

    def _change(self, health: Health) -> None:
        if health != self._health:
            self._health = health
            self._on_health(health)


class _Connection:
    """The HTTP client of one address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.http = _client(address)
        self._n_asking = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def exchange(self, method: str, path: str, body: Json | None) -> bytes:
        """The content of a good answer; raises `Unanswered` with what is told of any other."""
        with self._asking():
            return await _exchange(self.http, self.address, method, path, body)

    async def events(self, body: Json) -> AsyncGenerator[Json, None]:
        """The events of a streamed answer of `/infill`; one that is not streamed is its only one.

        Raises `Unanswered` as `exchange` does, also for an error behind the first event.
        """
        with self._asking():
            async with aclosing(_events(self.http, self.address, body)) as events:
                async for event in events:
                    yield event

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        self._n_asking += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._n_asking -= 1
            if not self._n_asking:
                self._idle.set()

    async def close(self) -> None:
        """Close it once nobody waits for an answer."""
        try:
            await self._idle.wait()
        finally:
            await self.http.aclose()


def _client(address: Address) -> httpx2.AsyncClient:
    key = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}
    try:
        # The server is this machine or one that the user named: no proxy out of a variable.
        return httpx2.AsyncClient(
            base_url=address.url,
            headers=key,
            verify=address.trust,
            trust_env=False,
            timeout=TIMEOUT,
        )
    except (httpx2.InvalidURL, ValueError) as error:
        raise Unanswered("UNREACHABLE", f"{address.url}: {error}") from None


async def _exchange(
    http: httpx2.AsyncClient, address: Address, method: str, path: str, body: Json | None
) -> bytes:
    """The content of a good answer; raises `Unanswered` with what is told of any other."""
    with _failures_told(address):
        response = await http.request(method, path, json=body)
    if response.status_code == 200:
        return response.content
    raise Unanswered(*_told(response.status_code, response.content, address))


async def _events(
    http: httpx2.AsyncClient, address: Address, body: Json
) -> AsyncGenerator[Json, None]:
    with _failures_told(address):
        async with http.stream("POST", "/infill", json=body) as response:
            is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
            if response.status_code != 200 or not is_stream:
                content = await response.aread()
                if response.status_code != 200:
                    raise Unanswered(*_told(response.status_code, content, address))
                yield _object(content)
                return
            async for line in response.aiter_lines():
                if not line.startswith("data: "):
                    continue
                event = line.removeprefix("data: ").encode()
                if "error" in _object(event):
                    raise Unanswered(*_told(response.status_code, event, address))
                yield _object(event)


@contextlib.contextmanager
def _failures_told(address: Address) -> Iterator[None]:
    """What goes wrong between us and the server, as `Unanswered`."""
    try:
        yield
    except httpx2.ConnectError as error:
        if (failure := tls_error(error)) is not None:
            message = f"no TLS with {address.url}, see its certificate: {failure}"
            raise Unanswered("UNREACHABLE", message) from error
        if address.is_alive():
            raise Unanswered("LOADING", "the server is starting") from error
        said = address.last_words()
        message = f"the server ended: {said}" if said else f"no server answers at {address.url}"
        raise Unanswered("UNREACHABLE", message) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, SutureError) as error:
        # Without the kind of error: a server that fails in many ways is told of once.
        message = f"the server at {address.url} does not answer"
        raise Unanswered("UNREACHABLE", message) from error


def _told(status: int, content: bytes, address: Address) -> tuple[Reason, str]:
    """Reason and message of an answer that is an error."""
    told = _object(content)
    error, ours = told.get("error"), told.get("suture")
    reason = _reason(ours.get("reason")) if isinstance(ours, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    if status == 401:
        return "AUTH", f"the server at {address.url} wants an API key: set suture.server.apiKeyFile"
    if not isinstance(message, str):
        message = f"the server at {address.url} answered with status {status}"
    return reason or ("BUSY" if status == 503 else "ERROR"), message


def _exchanging(body: Json, read: Callable[[bytes], T]) -> Callable[[_Connection], Awaitable[T]]:
    """Asks `/infill` of a connection; what `read` makes of a good answer."""

    async def ask(connection: _Connection) -> T:
        return read(await connection.exchange("POST", "/infill", body))

    return ask


def _up_to_a_line(answer: Answer, said: str) -> Answer:
    """A streamed answer as it is where it is not streamed: what a deadline cut off inside a line is
    given up to the line before, if there is one, and no edit goes on behind it.
    """
    if answer.report.get("finish") != "deadline":
        return answer
    end = max(said.rfind("\n"), said.rfind("\r")) + 1
    return replace(answer, suggestion=Suggestion(said[: end or None]))


def _answer(content: bytes) -> Answer:
    return _answer_of(_object(content))


def _answers(content: bytes) -> list[Answer]:
    told = _value(content)
    told = told if isinstance(told, list) else [told]
    return [_answer_of(one if isinstance(one, dict) else {}) for one in told]


def _answer_of(told: Json) -> Answer:
    report = told.get("suture")
    edit = report.get("edit") if isinstance(report, dict) else None
    if not isinstance(report, dict) or not isinstance(edit, dict):
        raise Unanswered("ERROR", "what answers is not Suture")
    text, n_over = edit.get("text"), edit.get("delete_after")
    if not isinstance(text, str) or not isinstance(n_over, int) or n_over < 0:
        raise Unanswered("ERROR", "what answers is not Suture")
    return Answer(Suggestion(text, n_over), _reason(report.get("reason")), report)


def _reason(raw: Any) -> Reason | None:
    return next((reason for reason in get_args(Reason) if reason == raw), None)


def _object(raw: bytes) -> Json:
    value = _value(raw)
    return value if isinstance(value, dict) else {}


def _value(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
