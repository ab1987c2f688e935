"""Nothing of a request, and no key, is in what a server writes or tells of itself.

Every route is asked with a mark in every text that a client may send, by a worker whose failures
quote what they failed on, with all debugging on.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.http_server import client
from support.raw_http import answers, ask, connection, head, post
from support.route_bodies import ENDPOINTS, POSTS, bodies
from support.worker_process import Worker, worker

MARK = "hunter2"
KEY = f"{MARK}-key"
# What of the quoting worker fails: planning, evaluating, drawing, nothing.
WHERE = ("plan", "evaluate", "draw", "nothing")
DEBUG = {"SUTURE_DEBUG": "1", "PYTHONASYNCIODEBUG": "1", "PYTHONDEVMODE": "1"}
TOLD = ("/metrics", "/slots", "/v1/status", "/props", "/health", "/v1/models", "/api/ps")


@dataclass
class Asked:
    """A worker that was asked everything, and what it told of itself meanwhile."""

    worker: Worker
    told: str
    statuses: set[int]
    command_line: bytes
    environment: bytes


def headers(key: str = KEY) -> list[str]:
    return [f"Authorization: Bearer {key}", f"X-Trace: {MARK}", f"User-Agent: {MARK}"]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("quoting")
    keys = folder / "keys"
    keys.write_text(f"{KEY}\n")
    with worker("quoting_worker.py", folder / "output", DEBUG, api_key_file=keys) as served:
        process = Path(f"/proc/{served.pid}")
        statuses = {status for where in WHERE for status in ask_everything(served.url, where)}
        told = [told_by(served.url)]
        leave_in_the_middle(served.url)
        send_garbage(served.url)
        told.append(told_by(served.url))
        yield Asked(
            served,
            "\n".join(told),
            statuses,
            (process / "cmdline").read_bytes(),
            (process / "environ").read_bytes(),
        )


def ask_everything(url: str, where: str) -> Iterator[int]:
    text = f"password = '{MARK}' # {where}\n"
    for path, body in bodies(text).items():
        for more in (
            {},
            {"stream": True},
            {"n": 2},
            {MARK: MARK},
            {"grammar": f'root ::= "{MARK}'},
        ):
            raw = json.dumps(body | more).encode()
            yield ask(url, post(f"{path}?{MARK}={MARK}", raw, *headers())).status
        yield ask(url, post(path, raw[: len(raw) // 2], *headers())).status
        yield ask(url, post(path, json.dumps({"prompt": {MARK: MARK}}).encode(), *headers())).status
        yield ask(url, post(path, raw, *headers(f"{MARK}-wrong"))).status
        yield ask(url, post(path, raw, *headers(), f"Origin: https://{MARK}.example")).status
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET":
            yield ask(url, head("GET", f"{endpoint.path}?a={MARK}", *headers())).status
    for path in (f"/{MARK}", f"/v1/{MARK}", f"/api/{MARK}", f"/%00{MARK}"):
        yield ask(url, head("GET", path, *headers())).status


def leave_in_the_middle(url: str) -> None:
    text = f"password = '{MARK}'\n"
    for path, body in bodies(text).items():
        raw = post(path, json.dumps(body | {"stream": True}).encode(), *headers())
        for end in (len(raw) // 2, len(raw)):
            with connection(url) as leaving:
                leaving.sendall(raw[:end])
                with contextlib.suppress(OSError):
                    leaving.shutdown(socket.SHUT_RDWR)


def send_garbage(url: str) -> None:
    for raw in (
        f"{MARK}\r\n\r\n".encode(),
        head("GET", "/health", f"{MARK}\0: a", *headers()),
        head("POST", "/infill", "Transfer-Encoding: chunked", *headers()) + f"{MARK}\r\n".encode(),
    ):
        with connection(url) as bad:
            bad.sendall(raw)
            assert answers(bad)[0].status == 400


def told_by(url: str) -> str:
    with client(url) as http:
        pages = [http.get(path, headers={"Authorization": f"Bearer {KEY}"}) for path in TOLD]
    assert [page.status_code for page in pages] == [200] * len(TOLD)
    return "\n".join(page.text for page in pages)


def test_the_marks_reached_what_fails_and_what_does_not(asked: Asked) -> None:
    assert {200, 400, 401, 404, 500} <= asked.statuses
    assert "Error" in asked.worker.said()


def test_no_log_has_anything_of_a_request_in_it(asked: Asked) -> None:
    said = [line for line in asked.worker.said().splitlines() if MARK in line]
    assert said == []


def test_no_page_about_the_server_has_anything_of_a_request_in_it(asked: Asked) -> None:
    assert MARK not in asked.told


def test_no_key_is_in_the_process_list_or_the_environment(asked: Asked) -> None:
    assert KEY.encode() not in asked.command_line + asked.environment


def test_every_route_that_takes_text_was_asked() -> None:
    assert {"/infill", "/v1/completions", "/api/generate", "/tokenize"} <= set(POSTS)
