"""A real HTTP server on a free loopback port, in a thread, around any completer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn
from starlette.types import ASGIApp

from suture.server.app import create_app
from suture.server.connections import http_config
from suture.server.routes.completer import Completer, Pool
from suture.server.settings import Settings, load_settings


def settings(**flags: object) -> Settings:
    """Settings from flags alone."""
    return load_settings(flags, environ={"XDG_CONFIG_HOME": "/nonexistent"})


@contextmanager
def serving(served: Pool | Completer, **flags: object) -> Iterator[str]:
    """The base URL of a server that answers with `served` until the block ends.

    It has a free port where there is no `port` among the flags.
    """
    at = settings(**flags)
    with serving_app(create_app(served, at), at, int(str(flags.get("port", 0)))) as url:
        yield url


@contextmanager
def serving_app(app: ASGIApp, at: Settings | None = None, port: int = 0) -> Iterator[str]:
    """The same of any application; `at` says of TLS what the server is to know."""
    server = uvicorn.Server(http_config(app, at or settings(), drain_s=1))
    # From its descriptor, as the worker's: only such a socket knows that it is TCP's, so that
    # asyncio switches Nagle's algorithm off, which would hold answers back for 40 ms.
    fd = socket.create_server(("127.0.0.1", port)).detach()
    with socket.socket(fileno=fd) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
            assert not thread.is_alive(), "the server did not stop"


@contextmanager
def client(base_url: str) -> Iterator[httpx2.Client]:
    """A client without proxies that gives up after a while."""
    with httpx2.Client(base_url=base_url, trust_env=False, timeout=20) as http:
        yield http


def events(response: httpx2.Response) -> list[str]:
    """The data of each event of a stream."""
    blocks = response.content.decode().split("\n\n")
    assert blocks[-1] == ""
    return [block.removeprefix("data: ") for block in blocks[:-1]]


Json = dict[str, Any]
