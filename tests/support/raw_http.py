"""HTTP as bytes over a socket, for what no client sends."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import h11


@dataclass(frozen=True)
class Answer:
    """One response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def address_of(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").rsplit(":", 1)
    return host, int(port)


@contextmanager
def connection(url: str, timeout_s: float = 20) -> Iterator[socket.socket]:
    with socket.create_connection(address_of(url), timeout=timeout_s) as client:
        yield client


def head(method: str, path: str, *headers: str, host: str = "127.0.0.1") -> bytes:
    """A request's head, with a Host header."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A whole request with a body."""
    return head("POST", path, f"Content-Length: {len(body)}", *headers) + body


def answers(client: socket.socket, n: int = 1, method: str = "GET") -> list[Answer]:
    """The next `n` responses; raises h11's `RemoteProtocolError` where fewer come."""
    parser = h11.Connection(h11.CLIENT)
    found: list[Answer] = []
    while len(found) < n:
        # h11 wants to know what was asked, as an answer to HEAD has no body.
        parser.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        parser.send(h11.EndOfMessage())
        found.append(_answer(client, parser))
        if len(found) < n:
            parser.start_next_cycle()
    return found


def _answer(client: socket.socket, parser: h11.Connection) -> Answer:
    response: h11.Response | None = None
    body = b""
    while True:
        event = parser.next_event()
        if event is h11.NEED_DATA:
            parser.receive_data(client.recv(65_536))
        elif isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert response is not None
            headers = {name.decode(): value.decode() for name, value in response.headers}
            return Answer(response.status_code, headers, body)


def ask(url: str, request: bytes, method: str = "GET") -> Answer:
    """The response to some bytes."""
    with connection(url) as client:
        client.sendall(request)
        return answers(client, 1, method)[0]


def is_closed(client: socket.socket) -> bool:
    """Whether the server closes, having sent nothing more, before the socket's timeout."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    # Looked at once in each turn: it may be true now and false again.
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds
