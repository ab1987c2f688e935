"""What is refused while the server stops, over real connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter
from support.http_server import serving_app, settings
from support.raw_http import answers, connection, head, post
from suture.server.app import create_app, dialect_of
from suture.server.routes import drain
from suture.server.routes.drain import Drain


@contextmanager
def stopping() -> Iterator[str]:
    """A server that takes up nothing more."""
    app = Drain(create_app(FakeCompleter(), settings()), dialect_of)
    with serving_app(app) as url:
        app.refuse()
        yield url


def test_q2_who_is_still_sending_a_long_body_gets_to_see_the_answer() -> None:
    request = post("/infill", b"x" * 4_000_000)
    with stopping() as url, connection(url) as client:
        for at in range(0, len(request), 1_000_000):
            client.sendall(request[at : at + 1_000_000])
            time.sleep(0.1)
        [answer] = answers(client, method="POST")
        assert answer.status == 503 and answer.headers["connection"] == "close"
        assert answer.json()["error"]["message"] == "the server is stopping"


@pytest.mark.parametrize(("path", "status"), [("/infill", 401), ("/nowhere", 401), ("/docs", 405)])
def test_q3_who_is_refused_before_the_body_is_read_gets_to_see_the_answer(
    tmp_path: Path, path: str, status: int
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    app = Drain(create_app(FakeCompleter(), settings(api_key_file=keys)), dialect_of)
    request = post(path, b"x" * 4_000_000)
    with serving_app(app) as url, connection(url) as client:
        app.close_connections()
        for at in range(0, len(request), 1_000_000):
            client.sendall(request[at : at + 1_000_000])
            time.sleep(0.05)
        [answer] = answers(client, method="POST")
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert client.recv(1) == b""


def test_q2_nobody_is_waited_for_who_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "UNWANTED_S", 0.1)
    with stopping() as url, connection(url) as client:
        client.sendall(head("POST", "/infill", "Content-Length: 1000"))
        [answer] = answers(client, method="POST")
        assert answer.status == 503


def test_q2_who_asks_whether_to_send_a_body_is_not_told_to() -> None:
    with stopping() as url, connection(url) as client:
        client.sendall(head("POST", "/infill", "Content-Length: 9", "Expect: 100-continue"))
        assert client.recv(12) == b"HTTP/1.1 503"


def test_q2_a_body_without_end_is_read_no_further_than_any_may_be_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "MAX_BODY_BYTES", 1000)
    monkeypatch.setattr(drain, "UNWANTED_S", 60.0)
    with stopping() as url, connection(url) as client:
        client.sendall(head("POST", "/infill", f"Content-Length: {2**40}") + b"x" * 1000)
        [answer] = answers(client, method="POST")
        assert answer.status == 503
