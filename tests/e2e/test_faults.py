"""Faults of a served process: one request fails clearly, others finish or are told to retry.

On a tiny model with random weights. Guards against what llama.cpp#24496, #13262 and ollama#2876
report (work goes on for who has left), llama-cpp-python#867 (one stream ends another) and
tabby#3367 (no way back while a model is loading).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.conftest import SUTURE, TIMEOUT_S
from support.tiny_models import tiny_model
from support.vocabularies import pulled

pytestmark = [pytest.mark.e2e, pytest.mark.model]

# `suture serve`, but that the system takes little of what a client does not read: on the loopback
# it takes 3 MB.
SERVE_WITH_SMALL_BUFFERS = """
import argparse, socket, sys
from suture.server.commands import serve
from suture.server.commands.flags import settings_of
from suture.server.supervisor import Supervisor
from suture.server.worker_process import start_worker
parser = argparse.ArgumentParser()
serve.add_arguments(parser)
settings = settings_of(parser.parse_args(sys.argv[2:]))
with serve.bind(settings) as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    serve.listen(listener, settings)
    sys.exit(Supervisor(lambda follows: start_worker(listener, settings)).run())
"""
SMALL_BUFFERS = (sys.executable, "-c", SERVE_WITH_SMALL_BUFFERS)

SHORT = {"max_tokens": 20, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def tiny(model_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    [vocabulary] = pulled(["vocab-llama-spm"], model_store).values()
    return tiny_model(vocabulary, tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@dataclass
class Served:
    """A server and what it says on standard error."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def status(self) -> Any:
        return httpx2.get(self.url + "/v1/status", timeout=TIMEOUT_S).json()

    def ask(self, prompt: str, **more: object) -> httpx2.Response:
        body = SHORT | {"prompt": prompt} | more
        return httpx2.post(self.url + "/v1/completions", json=body, timeout=TIMEOUT_S)


@contextlib.contextmanager
def serving(
    model: Path, folder: Path, *flags: str, program: Sequence[str] = SUTURE
) -> Iterator[Served]:
    command = [*program, "serve", "--port", "0", "--model", str(model), "--threads", "1", *flags]
    log = folder / "stderr"
    with (
        log.open("w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on http"), log.read_text()
            yield Served(line.split()[-1], process, log)
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def all_at_once(served: Served, bodies: list[dict[str, object]]) -> list[httpx2.Response]:
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: served.ask(**body), bodies))


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_full_cache_ends_no_request_of_several(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny, tmp_path, "--ctx", "256", "--parallel", "4") as served:
        bodies: list[dict[str, object]] = [
            {"prompt": f"def name_{n}(path):\n    " * 4, "max_tokens": 150} for n in range(8)
        ]
        for response in all_at_once(served, bodies):
            assert response.status_code == 200, response.text
            answer = response.json()
            assert answer["suture"]["finish"] == "length"
            n_tokens = answer["usage"]["completion_tokens"]
            assert n_tokens == 150 or answer["usage"]["total_tokens"] >= 250
        assert served.status()["failures"] == 0


def never_read(served: Served, max_tokens: int) -> socket.socket:
    """A client that asks for a long stream and reads nothing of it."""
    body = json.dumps(SHORT | {"prompt": "import os", "max_tokens": max_tokens, "stream": True})
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(served.address)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {served.url.removeprefix('http://')}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall((head + body).encode())
    return client


def test_a_client_that_never_reads_harms_nobody(tiny: Path, tmp_path: Path) -> None:
    """What it is not sent waits in the server: a chunk a token, no more than the context holds."""
    with serving(tiny, tmp_path, "--ctx", "8192", program=SMALL_BUFFERS) as served:
        worker = served.status()["pid"]
        served.ask("warm")
        before = resident(worker)
        clients = [never_read(served, 1800) for _ in range(3)]
        until(lambda: served.status()["running"] == 3)
        for response in all_at_once(served, [{"prompt": f"x{n}"} for n in range(3)]):
            assert response.json()["usage"]["completion_tokens"] == 20
        until(lambda: served.status()["running"] == 0)
        assert served.ask("def x").status_code == 200
        # 1,800 chunks wait for each of the three, most of them as objects and not as bytes.
        assert resident(worker) - before < 32 << 20
        unread = clients[0].recv(1 << 20)
        assert unread and not unread.endswith(b"[DONE]")
        for client in clients:
            client.close()
        assert served.ask("def x").status_code == 200


def test_a_client_that_reads_slowly_gets_all_of_it(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny, tmp_path, "--ctx", "8192", program=SMALL_BUFFERS) as served:
        client = never_read(served, 1000)
        until(lambda: served.status()["running"] == 1)
        until(lambda: served.status()["running"] == 0)
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            time.sleep(0.002)
            piece = client.recv(4096)
            assert piece, "it broke off"
            received += piece
        client.close()
    assert received.count(b"data: {") > 500 and b"data: [DONE]" in received
    assert b'"finish":"length"' in received


def test_d1_the_work_for_one_that_never_read_ends_when_it_leaves(
    tiny: Path, tmp_path: Path
) -> None:
    with serving(tiny, tmp_path, "--ctx", "8192", program=SMALL_BUFFERS) as served:
        client = never_read(served, 8000)
        until(lambda: served.status()["running"] == 1)
        client.close()
        until(lambda: served.status()["running"] == 0)
        assert served.status()["generated_tokens"] < 8000


def test_a_stop_ends_even_with_a_client_that_never_reads(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny, tmp_path, "--ctx", "8192", program=SMALL_BUFFERS) as served:
        client = never_read(served, 1800)
        # All of it is there then, and more than what is sent to who does not read.
        until(lambda: served.status()["generated_tokens"] == 1800)
        served.process.terminate()
        assert served.process.wait(TIMEOUT_S) == 0
        client.close()
    [line] = served.log.read_text().splitlines()
    assert "Cancel 1 running task(s), timeout graceful shutdown exceeded" in line


def events(response: httpx2.Response) -> list[str]:
    return [block.removeprefix("data: ") for block in response.text.split("\n\n") if block]


def test_on_sigterm_short_streams_finish_long_ones_end_and_the_port_is_free(
    tiny: Path, tmp_path: Path
) -> None:
    with serving(tiny, tmp_path, "--ctx", "32768") as served:
        sizes = (200, 30_000, 200, 30_000)
        bodies: list[dict[str, object]] = [
            {"prompt": f"x{n}", "max_tokens": size, "stream": True} for n, size in enumerate(sizes)
        ]
        answers: list[httpx2.Response] = []
        asking = threading.Thread(target=lambda: answers.extend(all_at_once(served, bodies)))
        asking.start()
        until(lambda: served.status()["running"] == 4)
        served.process.terminate()
        asking.join(TIMEOUT_S)
        assert served.process.wait(TIMEOUT_S) == 0
        with socket.create_server(served.address):
            pass
    finishes = []
    for response in answers:
        *_, last, done = events(response)
        assert (response.status_code, done) == (200, "[DONE]")
        finishes.append(json.loads(last)["suture"]["finish"])
    assert finishes == ["length", "cancelled", "length", "cancelled"]
    assert served.log.read_text() == ""


def test_after_sigkill_of_the_worker_the_next_request_is_answered(
    tiny: Path, tmp_path: Path
) -> None:
    with serving(tiny, tmp_path, "--ctx", "32768") as served:
        worker = served.status()["pid"]
        broken: list[Exception] = []

        def stream() -> None:
            try:
                served.ask("def x", max_tokens=30_000, stream=True)
            except httpx2.HTTPError as error:
                broken.append(error)

        threads = [threading.Thread(target=stream) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: served.status()["running"] == 3)
        os.kill(worker, signal.SIGKILL)
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert len(broken) == 3, "a stream that broke off looked like a whole one"

        response = served.ask("def x")
        while response.status_code == 503:
            assert int(response.headers["retry-after"]) > 0
            time.sleep(0.1)
            response = served.ask("def x")
        assert response.status_code == 200
        assert served.status()["pid"] != worker
    assert served.log.read_text() == ("suture: the worker died of SIGKILL: starting it again\n")
