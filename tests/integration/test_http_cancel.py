"""A client that leaves ends its completion, in every phase of it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable

import httpx2
import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send

from support.fake_completer import DONE, FakeCompleter, says
from support.http_server import Json, client, serving
from suture.server.request import CompletionChunk
from suture.server.routes.delivery import while_connected

INFILL: Json = {"input_prefix": "a", "input_suffix": "b"}


def until(condition: Callable[[], bool]) -> bool:
    """Whether it came true within two seconds, which is far more than it takes."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and not condition():
        time.sleep(0.005)
    return condition()


def leave_after_asking(url: str, body: Json, completer: FakeCompleter) -> None:
    """Send a request, see that it runs, and close the connection."""
    host, port = url.removeprefix("http://").split(":")
    raw = json.dumps(body).encode()
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /infill HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(raw)}\r\n\r\n"
        connection.sendall(head.encode() + raw)
        assert until(lambda: len(completer.requests) == 1)


@pytest.mark.parametrize("stream", [False, True])
def test_d1_leaving_before_the_first_chunk_reaches_the_completer(stream: bool) -> None:
    completer = FakeCompleter(says("a"), delay_s=60)
    with serving(completer) as url:
        leave_after_asking(url, INFILL | {"stream": stream}, completer)
        assert until(lambda: completer.cancelled == 1)


def test_d1_leaving_in_the_middle_of_a_stream_reaches_the_completer() -> None:
    completer = FakeCompleter([CompletionChunk("a", (1,))] * 10_000 + [DONE], delay_s=0.01)
    with serving(completer) as url, client(url) as http:
        with http.stream("POST", "/infill", json=INFILL | {"stream": True}) as response:
            next(response.iter_bytes())
        assert until(lambda: completer.cancelled == 1)


def test_d1_one_that_leaves_does_not_end_another() -> None:
    completer = FakeCompleter(says(*"abcdefgh"), delay_s=0.05)
    with serving(completer) as url, client(url) as http:
        leave_after_asking(url, INFILL, completer)
        assert http.post("/infill", json=INFILL).json()["content"] == "abcdefgh"
        assert until(lambda: completer.cancelled == 1)


def test_a_completion_that_ends_is_closed_and_not_cancelled() -> None:
    completer = FakeCompleter(says("a", "b"))
    with serving(completer) as url, client(url) as http:
        for stream in (False, True):
            assert http.post("/infill", json=INFILL | {"stream": stream}).status_code == 200
    assert completer.closed.is_set() and completer.cancelled == 0


def test_uvicorn_still_reports_a_disconnect_by_receive() -> None:
    """What D1 stands on. Starlette's own streaming would stop watching `receive` for a server
    that announces ASGI 2.4; ours always watches, and this says when that ground moves."""
    seen: list[str] = []
    announced: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        announced.append(scope["asgi"]["spec_version"])
        while seen[-1:] != ["http.disconnect"]:
            seen.append((await receive())["type"])

    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"http://127.0.0.1:{port}/", content=b"x", timeout=0.3, trust_env=False)
        assert until(lambda: seen[-1:] == ["http.disconnect"])
        server.should_exit = True
        thread.join(timeout=10)
    assert announced == ["2.3"]


def test_while_connected_ends_the_work_when_its_own_task_is_cancelled() -> None:
    ended: list[str] = []

    async def never() -> Message:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("work")

    async def scenario() -> None:
        task = asyncio.create_task(while_connected(never, work()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert ended == ["work"]
