"""Every route by every kind of bad input: the right status in the dialect's shape, never a 5xx.

The routes are those that the application has. They are served by a worker in a process of its own;
somebody else asks it all the while, and its memory is looked at in the end.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import client, serving
from support.raw_http import answers, ask, connection, head, is_closed, post, until
from support.route_bodies import ENDPOINTS, POSTS, Endpoint, assert_shape, bodies
from support.worker_process import Worker, worker
from suture.server.routes.access import OPEN_PATHS
from suture.server.routes.body import MAX_BODY_BYTES

# What they answer has nothing to do with a body.
NO_BODY = {"/v1/health"}
# They ask nothing of the engine or the tokenizer.
UNLIMITED = {"/v1/events", "/api/show", "/models/load", "/models/unload"}
READS = [path for path in POSTS if path not in NO_BODY]
VALID = bodies("def f(x):\n    return ")
ORDINARY = json.dumps({"input_prefix": "a", "input_suffix": "b"}).encode()


@dataclass
class Bystander:
    """Somebody who asks all the time, and notes what was wrong with the answers."""

    url: str
    slowest_s: float = 0.0
    n: int = 0
    wrong: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with client(self.url) as http:
            while not self.ended.wait(0.02):
                began = time.monotonic()
                answer = http.post("/infill", content=ORDINARY)
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.n += 1
                if answer.status_code != 200 or answer.json()["content"] != "range(3)":
                    self.wrong.append(answer.text)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker, and what all of this module must not have done to it."""
    output = tmp_path_factory.mktemp("worker") / "output"
    with worker("fake_worker.py", output) as served:
        bystander = Bystander(served.url)
        asking = threading.Thread(target=bystander.run)
        for _ in range(3):  # a 32 MB body takes its memory once
            ask(served.url, post("/infill", b" " * MAX_BODY_BYTES))
        before = served.resident()
        asking.start()
        yield served
        bystander.ended.set()
        asking.join(20)
        grown = served.resident() - before
        quiet = [line for line in served.said().splitlines() if "listening" not in line]
    assert bystander.wrong == [] and bystander.n > 0
    assert bystander.slowest_s < 15
    assert grown < 32 * 2**20, f"{grown / 2**20:.0f} MiB more than before"
    assert quiet == ["started"], "bad input is nobody's log"


def refused(url: str, path: str, request: bytes, *statuses: int) -> Any:
    """The answer to a request that must be refused, checked for its shape."""
    answer = ask(url, request)
    assert answer.status in statuses, (answer.status, answer.body[:300])
    assert answer.headers["content-type"] == "application/json"
    assert_shape(path, answer.status, answer.json())
    return answer.json()


MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "a brace": b"{",
    "a cut object": b'{"prompt": "a',
    "two objects": b"{}{}",
    "no JSON": b"prompt=a&suffix=b",
    "multipart": b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\na\r\n--x--',
    "no UTF-8": b'{"prompt": "\xff\xfe"}',
    "UTF-16": '{"prompt": "a"}'.encode("utf-16"),
    "a byte-order mark": b'\xef\xbb\xbf{"prompt": "a"}',
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00",
    "an array": b"[1]",
    "a text": b'"prompt"',
    "a number": b"1",
    "null": b"null",
    "true": b"true",
    "NaN": b'{"temperature": NaN}',
    "infinity": b'{"temperature": -Infinity}',
    "a huge number": b'{"temperature": 1' + b"0" * 5000 + b"}",
    "100,000 brackets": b"[" * 100_000,
    "100,000 objects": b'{"a":' * 100_000,
    "a control character": b'{"prompt": "a\x00b"}',
    "a lone escape": b'{"prompt": "\\"}',
    "blanks": b" " * 100_000,
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_body_that_is_no_object_of_json_is_a_400(attacked: Worker, kind: str) -> None:
    for path in READS:
        refused(attacked.url, path, post(path, MALFORMED[kind]), 400)


ODD: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1.5e308,
    "",
    "\ud800",
    "\0",
    "x" * 20_000,
    [],
    [None],
    [[[]]],
    {},
    {"\ud800": ["\udfff"]},
]


@pytest.mark.parametrize("path", READS)
def test_a_field_of_another_type_is_no_5xx(attacked: Worker, path: str) -> None:
    with client(attacked.url) as http:
        for name in {key for body in VALID.values() for key in body}:
            for odd in ODD:
                body = json.dumps(VALID[path] | {name: odd})
                answer = http.post(path, content=body)
                # What comes while the model cannot do it is not the client's mistake.
                assert answer.status_code < 500 or answer.status_code in (501, 503), answer.text
                if answer.status_code >= 400:
                    assert_shape(path, answer.status_code, answer.json())


@pytest.mark.parametrize("path", READS)
def test_unknown_fields_change_nothing(attacked: Worker, path: str) -> None:
    with client(attacked.url) as http:
        unknown = {"no_such_field": 1, "__proto__": {"a": 1}, "constructor": None, "\0": ["x"]}
        known = http.post(path, json=VALID[path]).status_code
        assert http.post(path, json=VALID[path] | unknown).status_code == known


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_a_body_of_100_mb_is_refused_or_not_looked_at(attacked: Worker, endpoint: Endpoint) -> None:
    piece = b"x" * 2**20
    with connection(attacked.url) as large:
        large.sendall(head(endpoint.method, endpoint.path, f"Content-Length: {100 * 2**20}"))
        with contextlib.suppress(OSError):
            for _ in range(100):
                large.sendall(piece)
        [answer] = answers(large, method=endpoint.method)
    if endpoint.method == "POST" and endpoint.path in READS:
        assert answer.status == 413
        assert_shape(endpoint.path, 413, answer.json())
    else:
        assert answer.status < 400


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_a_body_that_breaks_off_harms_nobody(attacked: Worker, endpoint: Endpoint) -> None:
    start = head(endpoint.method, endpoint.path, "Content-Length: 100") + b'{"prompt": "'
    for end in (socket.SHUT_WR, socket.SHUT_RDWR):
        with connection(attacked.url) as broken:
            broken.sendall(start)
            with contextlib.suppress(OSError):
                broken.shutdown(end)
    with connection(attacked.url) as chunked:
        begun = head(endpoint.method, endpoint.path, "Transfer-Encoding: chunked")
        chunked.sendall(begun + b'5\r\n{"pro\r\nzz\r\n')
        [answer] = answers(chunked, method=endpoint.method)
    if endpoint.method == "POST" and endpoint.path in READS:
        assert answer.status == 400
        assert_shape(endpoint.path, 400, answer.json())


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO", "get")


@pytest.mark.parametrize("path", sorted({endpoint.path for endpoint in ENDPOINTS}))
def test_a_method_that_is_not_served_is_a_405_that_says_which_are(
    attacked: Worker, path: str
) -> None:
    served = {endpoint.method for endpoint in ENDPOINTS if endpoint.path == path}
    for method in METHODS:
        if method in served:
            continue
        answer = ask(attacked.url, head(method, path, "Content-Length: 0"), method)
        assert answer.status == 405 and set(answer.headers["allow"].split(", ")) == served
        if method != "HEAD":
            assert_shape(path, 405, answer.json())


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/v1/nowhere",
        "/api/nowhere",
        "/v1/fim/nowhere",
        "//infill",
        "/../infill",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/infill%00",
        "/infill;a=b",
        "/%ff%fe",
        "*",
        "http://evil.example/infill",
        "infill",
    ],
)
def test_a_path_that_is_not_served_is_a_404(attacked: Worker, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        request = head(method, path, "Content-Length: 0")
        refused(attacked.url, path, request, 404)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_a_foreign_host_or_page_is_a_403(attacked: Worker, endpoint: Endpoint) -> None:
    method, path = endpoint.method, endpoint.path
    page = ("Origin: https://evil.example", "Content-Type: text/plain")
    image = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image")
    for request in (
        head(method, path, "Content-Length: 0", host="evil.example"),
        head(method, path, "Content-Length: 0", *page),
        head(method, path, "Content-Length: 0", *image),
    ):
        answer = ask(attacked.url, request, method)
        assert answer.status == 403
        if method != "HEAD":
            assert_shape(path, 403, answer.json())


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_a_flood_of_headers_is_a_431(attacked: Worker, endpoint: Endpoint) -> None:
    request = head(endpoint.method, endpoint.path, *["X-A: b"] * 20_000, "Content-Length: 0")
    answer = ask(attacked.url, request, endpoint.method)
    assert answer.status == 431
    if endpoint.method != "HEAD":
        assert answer.json()["error"] or answer.json()["message"]


def test_half_closed_sockets_by_the_hundred_leave_nothing(attacked: Worker) -> None:
    for path in READS:
        for _ in range(20):
            with connection(attacked.url) as half:
                half.sendall(head("POST", path, "Content-Length: 50") + b'{"prompt"')
                half.shutdown(socket.SHUT_WR)
                assert is_closed(half)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("right\nother\n")
    with serving(FakeCompleter(), api_key_file=keys) as url:
        yield url


WRONG_KEYS = [
    (),
    ("Authorization: Bearer wrong",),
    ("Authorization: Bearer righ",),
    ("Authorization: Bearer rightx",),
    ("Authorization: right",),
    ("Authorization: Basic cmlnaHQ=",),
    ("Authorization: Bearer \xe9\xff",),
    (f"Authorization: Bearer {'a' * 60_000}",),
    ("X-Api-Key: wrong",),
    ("X-Api-Key: ",),
]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_a_wrong_key_is_a_401(locked: str, endpoint: Endpoint) -> None:
    method, path = endpoint.method, endpoint.path
    for headers in WRONG_KEYS:
        answer = ask(locked, head(method, path, "Content-Length: 0", *headers), method)
        if path in OPEN_PATHS:
            assert answer.status == 200
            continue
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer")
        if method != "HEAD":
            assert_shape(path, 401, answer.json())
    right = ask(locked, head(method, path, "Content-Length: 0", "X-Api-Key: right"), method)
    assert right.status in (200, 400)


def test_nobody_reads_a_body_without_a_key(locked: str) -> None:
    """Who has none gets no memory: the answer comes before the body."""
    for path in READS:
        with connection(locked) as client_:
            client_.sendall(head("POST", path, f"Content-Length: {2**20}"))
            assert answers(client_)[0].status == 401


@pytest.mark.parametrize("path", READS)
def test_what_is_too_much_for_one_client_is_a_429(path: str) -> None:
    completer = FakeCompleter(says("a"), delay_s=0.4)
    with serving(completer, client_limit=1) as url, connection(url) as first:
        first.sendall(post("/infill", ORDINARY))
        assert until(lambda: len(completer.requests) == 1)
        answer = ask(url, post(path, json.dumps(VALID[path]).encode()))
        if path in UNLIMITED:
            assert answer.status < 500
        else:
            assert answer.status == 429 and answer.headers["retry-after"] == "1"
            assert_shape(path, 429, answer.json())
            assert answer.json()["suture"] == {"reason": "BUSY"}
        assert answers(first)[0].status == 200
        assert ask(url, post("/infill", ORDINARY)).status == 200


def test_who_says_to_be_another_is_the_same_client() -> None:
    completer = FakeCompleter(says("a"), delay_s=0.5)
    with serving(completer, client_limit=1) as url, connection(url) as first:
        first.sendall(post("/infill", ORDINARY))
        assert until(lambda: len(completer.requests) == 1)
        for said in (
            "X-Forwarded-For: 192.0.2.1",
            "X-Real-Ip: 192.0.2.1",
            "Forwarded: for=192.0.2.1",
        ):
            assert ask(url, post("/infill", ORDINARY, said)).status == 429


def test_a_superseding_request_takes_the_place_of_the_one_before() -> None:
    completer = FakeCompleter(says("a"), delay_s=0.3)
    with serving(completer, client_limit=1) as url, connection(url) as first:
        keystroke = {"input_prefix": "a", "input_suffix": "b", "session": "s"}
        first.sendall(post("/infill", json.dumps(keystroke | {"seq": 1}).encode()))
        assert until(lambda: len(completer.requests) == 1)
        assert ask(url, post("/infill", json.dumps(keystroke | {"seq": 2}).encode())).status == 200
        assert ask(url, post("/infill", ORDINARY)).status in (200, 429)


def test_an_unforeseen_failure_is_told_in_the_dialects_shape(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of a route that does not look after its failures itself."""

    def fail(self: object) -> None:
        raise ZeroDivisionError("quoting the request")

    monkeypatch.setattr(FakeCompleter, "slots", fail)
    monkeypatch.setattr(FakeCompleter, "measured", fail)
    with serving(FakeCompleter()) as url:
        for path in ("/slots", "/v1/status"):
            answer = ask(url, head("GET", path))
            assert answer.status == 500 and b"quoting" not in answer.body
            assert_shape(path, 500, answer.json())
