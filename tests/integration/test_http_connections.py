"""What a connection may cost: silence, slowness, garbage and numbers of them, over real sockets.

W1-W4 are the invariants of server/connections.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.explaining import EXPLANATION
from support.fake_completer import FakeCompleter, says
from support.http_server import Json, client, serving
from support.raw_http import Answer, answers, ask, connection, head, is_closed, post, until
from support.route_bodies import POSTS, assert_shape
from support.route_bodies import bodies as valid_bodies
from suture.server import connections
from suture.server.routes import access
from suture.server.routes import body as bodies

INFILL: Json = {"input_prefix": "a", "input_suffix": "b"}
RAW = json.dumps(INFILL).encode()
HEALTH = head("GET", "/health")
READERS = [path for path in POSTS if path != "/v1/health"]  # which looks at no body


@contextlib.contextmanager
def hurried(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.8) -> Iterator[str]:
    """A server that waits for nobody longer than so."""
    for module, name in ((connections, "HEAD_S"), (connections, "LINGER_S"), (bodies, "READ_S")):
        monkeypatch.setattr(module, name, seconds)
    with serving(FakeCompleter()) as url:
        yield url


def message_of(answer: Answer) -> str:
    return str(answer.json()["error"]["message"])


def test_w1_a_client_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with hurried(monkeypatch) as url, connection(url) as silent:
        assert is_closed(silent)


def test_w1_a_head_that_comes_byte_by_byte_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    with hurried(monkeypatch) as url, connection(url) as slow:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in HEALTH * 100:
                slow.sendall(bytes([byte]))
                time.sleep(0.02)
                if time.monotonic() - began > 0.9:
                    break
        [answer] = answers(slow)
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert "head" in message_of(answer)


def test_w1_a_second_head_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    with hurried(monkeypatch) as url, connection(url) as slow:
        slow.sendall(HEALTH + HEALTH[:10])
        [first, second] = answers(slow, 2)
        assert (first.status, second.status) == (200, 408)
        assert is_closed(slow)


def test_w1_an_idle_connection_is_kept_for_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hurried(monkeypatch) as url, connection(url) as kept:
        for _ in range(2):
            kept.sendall(HEALTH)
            assert answers(kept)[0].status == 200
            time.sleep(1.2)  # longer than any wait but that for a next request


def test_w1_an_idle_connection_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEP_ALIVE_S", 1)
    with serving(FakeCompleter()) as url, connection(url) as idle:
        idle.sendall(HEALTH)
        assert answers(idle)[0].status == 200
        assert is_closed(idle)


def test_w1_a_body_that_does_not_come_is_a_408_on_every_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hurried(monkeypatch) as url, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connection(url)) for _ in READERS]
        for path, one in zip(READERS, slow, strict=True):
            one.sendall(head("POST", path, "Content-Length: 100"))
        for _ in range(3):
            time.sleep(0.05)
            for one in slow:
                # A machine that is slow itself has had its 408 by now, and a reset.
                with contextlib.suppress(OSError):
                    one.sendall(b" ")
        for path, one in zip(READERS, slow, strict=True):
            [answer] = answers(one)
            assert (answer.status, answer.headers["connection"]) == (408, "close")
            assert_shape(path, 408, answer.json())
            assert is_closed(one)


def test_w1_the_rest_of_a_body_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the answer does not depend on the body, it comes before it."""
    with hurried(monkeypatch) as url, connection(url) as talker:
        talker.sendall(head("POST", "/nowhere", "Transfer-Encoding: chunked"))
        assert answers(talker)[0].status == 404
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 10:
                talker.sendall(b"1\r\nx\r\n")
                time.sleep(0.02)
        assert time.monotonic() - began < 5


def test_w1_who_sends_before_reading_gets_the_answer_that_came_early() -> None:
    with serving(FakeCompleter()) as url, connection(url) as client_:
        client_.sendall(post("/nowhere", b"x" * 3_000_000) + HEALTH)
        [refused, served] = answers(client_, 2)
        assert (refused.status, served.status) == (404, 200)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such limit")
@pytest.mark.parametrize("stream", [False, True])
def test_w1_who_never_reads_an_answer_is_let_go(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(connections, "UNREAD_S", 0.5)
    completer = FakeCompleter(says(*["x" * 2**20] * 12))  # more than the system holds for it
    closed = threading.Event()
    lost = connections.Connection.connection_lost

    def noted(self: connections.Connection, exc: Exception | None) -> None:
        lost(self, exc)
        closed.set()

    monkeypatch.setattr(connections.Connection, "connection_lost", noted)
    with serving(completer) as url, connection(url) as deaf:
        deaf.sendall(post("/infill", json.dumps(INFILL | {"stream": stream}).encode()))
        assert closed.wait(10)


# Bytes that are no request, or one that could be read in two ways.
HOST = "Host: 127.0.0.1"
CHUNKED = "Transfer-Encoding: chunked"
GARBAGE = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": head("GET", "/health", "Host: localhost"),
    "a name with a blank": head("GET", "/health", "a b: c"),
    "a blank before the colon": head("GET", "/health", "a : b"),
    "a NUL": head("GET", "/health", "a: b\0c"),
    "a path that is not ASCII": head("GET", "/\xe9"),
    "two lengths": head("POST", "/infill", "Content-Length: 2", "Content-Length: 3") + b"{}x",
    "a length and chunks": head("POST", "/infill", "Content-Length: 2", CHUNKED) + b"0\r\n\r\n",
    "a negative length": head("POST", "/infill", "Content-Length: -2") + b"{}",
    "a hexadecimal length": head("POST", "/infill", "Content-Length: 0x2") + b"{}",
    "a length of 30 digits": head("POST", "/infill", f"Content-Length: {'9' * 30}"),
    "another coding": head("POST", "/infill", "Transfer-Encoding: gzip, chunked"),
    "a chunk without a size": head("POST", "/infill", CHUNKED) + b"zz\r\n{}\r\n0\r\n\r\n",
    "a chunk that is longer": head("POST", "/infill", CHUNKED) + b"1\r\n{}\r\n0\r\n\r\n",
    "a size of 30 digits": head("POST", "/infill", CHUNKED) + b"f" * 30 + b"\r\n{}",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_what_is_no_http_is_a_400_and_the_connections_end(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    completer = FakeCompleter()
    with serving(completer) as url:
        with connection(url) as bad:
            bad.sendall(GARBAGE[kind])
            [answer] = answers(bad)
            assert (answer.status, answer.headers["connection"]) == (400, "close")
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert is_closed(bad)
        assert ask(url, HEALTH).status == 200
    assert completer.requests == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_body_that_breaks_off_is_refused_in_the_dialects_shape() -> None:
    with serving(FakeCompleter()) as url:
        answer = ask(url, head("POST", "/v1/fim/completions", CHUNKED) + b"zz\r\n")
        assert answer.json()["object"] == "error"
        answer = ask(url, head("POST", "/api/generate", CHUNKED) + b"zz\r\n")
        assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize(
    "flood",
    [
        head("GET", "/health", f"a: {'b' * 70_000}"),
        head("GET", "/health", f"a: {'b' * 1_000_000}"),
        head("GET", "/health", *["a: b"] * 100_000),
        head("GET", f"/{'a' * 70_000}"),
        head("GET", f"/health?{'a' * 70_000}"),
        head("GET", "/health", *["a: b"] * 100_000)[:-2],  # and no end of them
    ],
    ids=["a header", "1 MB", "100,000 headers", "a path", "a query", "without end"],
)
def test_a_flood_of_headers_is_a_431(flood: bytes) -> None:
    with serving(FakeCompleter()) as url, connection(url) as flooding:
        with contextlib.suppress(OSError):
            flooding.sendall(flood)
        try:
            [answer] = answers(flooding)
        except ConnectionResetError:  # it sent more behind the answer than anybody reads
            assert len(flood) > 2**18
        else:
            assert answer.status == 431 and "64 KiB" in message_of(answer)
        assert ask(url, HEALTH).status == 200


def test_no_answer_is_for_pages_of_other_origins() -> None:
    with serving(FakeCompleter()) as url:
        for path in ("/health", "/explain", "/v1/models", "/nowhere"):
            headers = ask(url, head("GET", path)).headers
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert "server" not in headers


def test_an_upgrade_is_not_one() -> None:
    upgrades = ("websocket", "h2c, HTTP2-Settings")
    with serving(FakeCompleter()) as url:
        for upgrade in upgrades:
            request = head("GET", "/health", "Connection: Upgrade", f"Upgrade: {upgrade}")
            assert ask(url, request).json() == {"status": "ok"}


def test_requests_may_be_sent_before_the_answers_are_read() -> None:
    completer = FakeCompleter(says("a", "b"), delay_s=0.02)
    with serving(completer) as url, connection(url) as eager:
        eager.sendall(post("/infill", RAW) * 3 + HEALTH)
        found = answers(eager, 4)
    assert [answer.status for answer in found] == [200] * 4
    assert [answer.json().get("content") for answer in found] == ["ab"] * 3 + [None]


def test_garbage_behind_a_request_spoils_only_itself() -> None:
    with serving(FakeCompleter()) as url, connection(url) as client_:
        client_.sendall(post("/infill", RAW) + b"\x00\x01garbage\r\n\r\n")
        assert [answer.status for answer in answers(client_, 2)] == [200, 400]


def test_w3_who_ends_sending_is_answered_what_can_be_answered_at_once() -> None:
    """`printf … | nc -N`: the end comes with the request."""
    with serving(FakeCompleter()) as url:
        for path in ("/health", "/v1/models", "/metrics", "/nowhere"):
            with connection(url) as half:
                half.sendall(head("GET", path))
                half.shutdown(socket.SHUT_WR)
                assert answers(half)[0].status == (404 if path == "/nowhere" else 200)
                assert is_closed(half)


@pytest.mark.parametrize("stream", [False, True])
def test_w3_who_ends_sending_ends_what_it_asked_for(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    completer = FakeCompleter(says("a"), delay_s=60)
    with serving(completer) as url, connection(url) as half:
        half.sendall(post("/infill", json.dumps(INFILL | {"stream": stream}).encode()))
        assert until(lambda: len(completer.requests) == 1)
        half.shutdown(socket.SHUT_WR)
        assert until(lambda: completer.cancelled == 1)
        assert is_closed(half)
    assert not caplog.records


def test_w3_an_end_inside_a_head_or_a_body_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    paths = ("/infill", "/v1/completions", "/tokenize", "/v1/explain", "/v1/events", "/api/show")
    starts = [head("POST", path, "Content-Length: 9") + b"{" for path in paths]
    completer = FakeCompleter()
    with serving(completer) as url:
        for start in (*starts, HEALTH[:20], b""):
            with connection(url) as half:
                half.sendall(start)
                half.shutdown(socket.SHUT_WR)
                assert is_closed(half)
        assert ask(url, HEALTH).status == 200
    assert completer.requests == [] and not caplog.records


MIB = b"x" * 2**20


@pytest.mark.parametrize("length", [33 * 2**20, 200 * 2**20, 2**40])
def test_w4_a_body_that_says_it_is_too_large_is_a_413_at_once(length: int) -> None:
    with serving(FakeCompleter()) as url:
        for path in READERS:
            began = time.monotonic()
            with connection(url) as large:
                large.sendall(head("POST", path, f"Content-Length: {length}") + b"{")
                [answer] = answers(large)
                assert (answer.status, answer.headers["connection"]) == (413, "close")
                assert_shape(path, 413, answer.json())
                assert large.recv(1) == b""  # no more comes, and it is no reset
            assert time.monotonic() - began < bodies.READ_S / 3


ENDED_EARLY = {
    "a length": (413, head("POST", "/infill", f"Content-Length: {100 * len(MIB)}")),
    "chunks": (413, head("POST", "/infill", CHUNKED)),
    "nowhere": (404, head("POST", "/nowhere", CHUNKED, "Connection: close")),
    "another site": (403, head("POST", "/infill", CHUNKED, "Connection: close", host="a.org")),
}


@pytest.mark.parametrize("kind", ENDED_EARLY)
def test_w4_who_sends_all_before_reading_sees_the_answer_that_ends_the_connection(
    kind: str,
) -> None:
    status, request = ENDED_EARLY[kind]
    piece = b"%x\r\n%s\r\n" % (len(MIB), MIB) if CHUNKED.encode() in request else MIB
    with serving(FakeCompleter()) as url, connection(url) as client_:
        client_.sendall(request)
        for n in range(100):
            client_.sendall(piece)
            if n % 20 == 0:
                time.sleep(0.02)
        [answer] = answers(client_)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert client_.recv(1) == b""


def test_w4_who_goes_on_sending_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    with hurried(monkeypatch) as url, connection(url) as talker:
        talker.sendall(head("POST", "/infill", f"Content-Length: {2**40}"))
        assert answers(talker)[0].status == 413
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 10:
                talker.sendall(b"x")
                time.sleep(0.02)
        assert time.monotonic() - began < 5


def test_w4_what_is_half_closed_makes_room_and_holds_no_server_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 4)
    with contextlib.ExitStack() as stack:
        with serving(FakeCompleter()) as url:
            for _ in range(9):
                large = stack.enter_context(connection(url))
                large.sendall(head("POST", "/infill", f"Content-Length: {2**40}"))
                assert answers(large)[0].status == 413
            assert ask(url, HEALTH).status == 200
    assert not caplog.records


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Enough for a thousand connections, both ends of which are here."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096
    if before[1] != resource.RLIM_INFINITY and before[1] < wanted:
        pytest.skip("this system has too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def many(url: str, n: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(n):
            one = stack.enter_context(connection(url))
            one.sendall(sent)
            opened.append(one)
        yield opened


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("sent", [b"", HEALTH[:20], HEALTH], ids=["silent", "in a head", "idle"])
def test_w2_a_thousand_connections_harm_nobody(sent: bytes) -> None:
    completer = FakeCompleter(says("a"))
    with serving(completer) as url, many(url, 1000, sent), client(url) as http:
        began = time.monotonic()
        for _ in range(5):
            assert http.post("/infill", json=INFILL).json()["content"] == "a"
        assert time.monotonic() - began < 15


def test_w2_at_the_bound_the_idlest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 8)
    with serving(FakeCompleter()) as url, many(url, 8, HEALTH) as opened:
        for one in opened:
            assert answers(one)[0].status == 200
        opened[0].sendall(HEALTH)  # no longer the idlest
        assert answers(opened[0])[0].status == 200
        assert ask(url, HEALTH).status == 200
        assert is_closed(opened[1])
        opened[0].sendall(HEALTH)
        assert answers(opened[0])[0].status == 200


def test_w2_no_request_is_given_up_for_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 8)
    completer = FakeCompleter(says("a"), delay_s=0.5)
    with serving(completer) as url, many(url, 8, post("/infill", RAW)) as opened:
        assert until(lambda: len(completer.requests) == 8)
        refused = ask(url, HEALTH)
        assert refused.status == 503 and message_of(refused) == "too many connections"
        assert [answers(one)[0].status for one in opened] == [200] * 8


def test_w2_a_worker_has_descriptors_for_its_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        assert connections.max_connections() == 44
        connections.raise_descriptor_limit()
        if hard == resource.RLIM_INFINITY or hard >= 2304:
            assert connections.max_connections() == connections.MAX_CONNECTIONS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_body_of_100_mb_is_a_413_and_takes_no_memory() -> None:
    piece = b"x" * 2**20
    with serving(FakeCompleter()) as url:
        ask(url, HEALTH)
        before, most = resident(), 0
        for _ in range(3):
            with connection(url) as large:
                large.sendall(head("POST", "/infill", f"Content-Length: {100 * len(piece)}"))
                for _ in range(100):
                    large.sendall(piece)
                    most = max(most, resident())
                [answer] = answers(large)
                assert answer.status == 413 and "32 MiB" in message_of(answer)
    assert most - before < 48 * 2**20  # one body up to its bound, and never two


def test_who_asks_whether_to_send_100_mb_is_told_not_to() -> None:
    with serving(FakeCompleter()) as url, connection(url) as careful:
        expecting = ("Expect: 100-continue", "Content-Length: 100000000")
        careful.sendall(head("POST", "/infill", *expecting))
        [answer] = answers(careful)
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert is_closed(careful)


def test_large_bodies_share_their_room_and_small_ones_need_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = bodies.SharedRoom(2**22)
    monkeypatch.setattr(access, "SharedRoom", lambda: room)
    large = head("POST", "/infill", f"Content-Length: {2**23}") + b" " * (2**22 + 2**20 - 10)
    with serving(FakeCompleter()) as url, connection(url) as holder:
        holder.sendall(large)
        assert until(lambda: room.left == 10)
        assert ask(url, post("/infill", b" " * 2**21)).status == 503
        assert ask(url, post("/infill", RAW)).status == 200
        holder.shutdown(socket.SHUT_WR)
        assert until(lambda: room.left == 2**22)
        assert ask(url, post("/infill", b" " * 2**21)).status == 400


def test_many_values_are_refused_before_they_are_made() -> None:
    with serving(FakeCompleter()) as url:
        for raw in (b"[" + b"[]," * 2**21, b'{"a":"' * 2**20, b'"' * 2**23, b"1," * 2**21):
            before = resident()
            answer = ask(url, post("/infill", raw))
            assert answer.status == 400 and "values" in message_of(answer)
            assert resident() - before < 64 * 2**20
        # Signs of JSON inside a text are text.
        text = {"input_prefix": '[{,"\\' * 2**20, "input_suffix": ""}
        assert ask(url, post("/infill", json.dumps(text).encode())).status == 200


def test_others_are_answered_while_a_large_body_comes() -> None:
    completer = FakeCompleter(says("a"))
    with serving(completer) as url, connection(url) as slow, client(url) as http:
        slow.sendall(head("POST", "/infill", f"Content-Length: {2**24}"))
        sending = threading.Thread(target=slow.sendall, args=(b" " * (2**24 - 1),))
        sending.start()
        for _ in range(10):
            began = time.monotonic()
            assert http.post("/infill", json=INFILL).json()["content"] == "a"
            assert time.monotonic() - began < 5
        sending.join(10)


REQUESTS = [
    HEALTH,
    *(post(path, json.dumps(body).encode()) for path, body in valid_bodies("x = ").items()),
    head("POST", "/infill", CHUNKED) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(RAW), RAW),
]
PIECES = [
    b"\r\n",
    b"\n",
    b"\0",
    b" ",
    b":",
    b"Content-Length: 7\r\n",
    b"\xff",
    b"0\r\n\r\n",
    b"\t",
    b"9" * 30,
]


@st.composite
def nearly_requests(draw: st.DrawFn) -> bytes:
    """One or two requests with bytes of them lost, doubled, changed or put in."""
    raw = b"".join(draw(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(raw)))
        lost = draw(st.integers(0, 8))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=4))
        raw = raw[:at] + piece + raw[at + lost :]
    return raw


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[str]:
    with serving(FakeCompleter(explanation=EXPLANATION)) as url:
        yield url


@hypothesis.settings(max_examples=150, deadline=None)
@given(raw=nearly_requests(), cut=st.integers(0, 200))
def test_whatever_bytes_come_the_answers_are_no_5xx(fuzzed: str, raw: bytes, cut: int) -> None:
    with connection(fuzzed) as client_:
        said = b""
        with contextlib.suppress(OSError):  # the server may have had enough before the end
            client_.sendall(raw[:cut])
            client_.sendall(raw[cut:])
            client_.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            while piece := client_.recv(65_536):
                said += piece
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", said)]
    # The model of this server is not loaded, as far as tokens are concerned.
    assert not [status for status in statuses if status >= 500 and status != 503], said
    assert ask(fuzzed, HEALTH).status == 200
