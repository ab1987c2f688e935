from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.client import Client, Stranger, parse_events
from suture.server.sse import DONE, encode_json, event


@given(st.lists(st.text(st.sampled_from("a\n\r\u2028\x85é🎉"), max_size=4)), st.integers(1, 9))
def test_events_are_read_back_however_the_stream_is_cut(texts: list[str], size: int) -> None:
    stream = b"".join(event({"text": text}) for text in texts)
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert [read["text"] for read in parse_events(pieces)] == texts


def test_what_is_no_json_object_reads_as_an_empty_one() -> None:
    assert list(parse_events([DONE, b"data: [1]\n\n", b"data: {"])) == [{}, {}]


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\n\0"])
def test_any_text_is_encoded_as_json_that_reads_back(text: str) -> None:
    assert json.loads(encode_json({"text": text}).decode()) == {"text": text}


def answering(answer: bytes, requests: list[bytes], *, then_drip: bool = False) -> socket.socket:
    """A server that records each request's head and says `answer`; it may never end it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                requests.append(connection.recv(65536))
                connection.sendall(answer)
                with contextlib.suppress(OSError):
                    while then_drip:
                        connection.sendall(b" ")
                        time.sleep(0.05)

    threading.Thread(target=serve, daemon=True).start()
    return listener


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "body", [b"{}", b'{"suture": 1, "model": []}', b'{"suture": "1"}', b"[1]", b"no json"]
)
def test_what_only_looks_like_suture_is_a_stranger_and_gets_no_key(body: bytes) -> None:
    requests: list[bytes] = []
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(head + body, requests) as listener:
        with Client(url_of(listener), api_key="secret") as client:
            assert isinstance(client.identify(), Stranger)
    assert requests and not any(b"secret" in request for request in requests)


def test_a_key_is_shown_to_a_server_that_asks_as_suture_does() -> None:
    requests: list[bytes] = []
    answer = (
        b"HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 0\r\n"
        b'WWW-Authenticate: Bearer realm="suture"\r\n\r\n'
    )
    with answering(answer, requests) as listener:
        with Client(url_of(listener), api_key="secret") as client:
            found = client.identify()
    assert isinstance(found, Stranger) and "API key" in found.what
    assert [b"Bearer secret" in request for request in requests] == [False, True]


def test_an_answer_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suture.server.client.PROBE_TIMEOUT_S", 0.3)
    requests: list[bytes] = []
    with answering(b"HTTP/1.1 200 OK\r\n\r\n{", requests, then_drip=True) as listener:
        with Client(url_of(listener)) as client:
            assert isinstance(client.identify(), Stranger)


def test_clients_that_split_lines_as_unicode_does_get_whole_events() -> None:
    text = "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\rh\ni"
    [line] = event({"text": text}).decode().splitlines()[:-1]
    assert json.loads(line.removeprefix("data: ")) == {"text": text}
