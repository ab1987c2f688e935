"""`GET /openapi.json`: what can be asked here, for programs; `GET /docs`: the same for people.

Both are open to all: they say what any server of this version says. The page is static, and reads
the document in the browser.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from suture.server.openapi.operation import Operation, described
from suture.server.routes.delivery import Dialect
from suture.server.routes.page_headers import page_headers
from suture.server.sse import encode_json


class Document:
    """`GET /openapi.json`, made of the application's routes when it is asked for."""

    def __init__(self, dialect_of: Callable[[str], Dialect], keyless: Collection[str]) -> None:
        self._dialect_of = dialect_of
        self._keyless = keyless
        self._made: asyncio.Task[bytes] | None = None

    @described(Operation("Suture", "This document", answer=dict[str, Any]))
    async def get(self, request: Request) -> Response:
        if self._made is None:
            # It takes a good part of a second, in which others' streams go on.
            making = asyncio.to_thread(self._made_of, request.app.routes)
            self._made = asyncio.create_task(making)
        # Shielded: others wait for it, too.
        body = await asyncio.shield(self._made)
        headers = {"Cache-Control": "no-cache"}
        return Response(body, 200, headers, "application/json")

    def _made_of(self, routes: Sequence[object]) -> bytes:
        # Not before: a server that is never asked for it starts sooner.
        from suture.server.openapi.document import openapi_document

        def error_of(path: str) -> Any:
            return self._dialect_of(path).error_shape

        return encode_json(openapi_document(routes, error_of, self._keyless))


class DocsPage:
    """`GET /docs`."""

    def __init__(self) -> None:
        html = resources.files("suture.server.routes").joinpath("docs.html").read_text("utf-8")
        self._html = html
        own = page_headers(_hashed("script", html), _hashed("style", html))
        self._headers = own | {"Cache-Control": "no-cache"}

    @described(Operation("Suture", "This document as a page", media="text/html"))
    async def get(self, request: Request) -> Response:
        return Response(self._html, 200, self._headers, "text/html")


def _hashed(element: str, html: str) -> str:
    """The hash of the one inline script or style, as a policy names it."""
    [text] = re.findall(f"(?s)<{element}>(.*?)</{element}>", html)
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
