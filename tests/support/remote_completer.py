"""What `serve --engine remote` serves, over a toy vocabulary, in the test's process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from starlette.types import ASGIApp, Receive, Scope, Send

from support.http_server import serving_app, settings
from support.toy import toy_codec, toy_encode, toy_vocabulary
from suture.server.app import create_app
from suture.server.remote import RemoteCompleter, RemotePool


class _Tended:
    """Does for a pool on the event loop what a worker would: requests have it look around."""

    def __init__(self, pool: RemotePool, app: ASGIApp) -> None:
        self._pool = pool
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._pool.tend()
        await self._app(scope, receive, send)


@contextmanager
def serving_backends(*urls: str, wait: bool = True, **flags: object) -> Iterator[str]:
    """The URL of a Suture server in front of backends at `urls`, once it has looked at them."""
    at = settings(engine="remote", engine_url=urls, **flags)
    completer = RemoteCompleter(toy_vocabulary(), toy_codec(toy_encode), Path("toy.json"), at)
    pool = RemotePool(completer)
    with serving_app(_Tended(pool, create_app(pool, at)), at) as url:
        try:
            while wait and _is_loading(url):
                time.sleep(0.01)
            yield url
        finally:
            pool.close()


def _is_loading(url: str) -> bool:
    """Whether a backend was not looked at yet."""
    status = httpx2.get(f"{url}/v1/status", trust_env=False).json()
    return any("not answered yet" in backend["why"] for backend in status["backends"])
