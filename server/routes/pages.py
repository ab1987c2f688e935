"""`GET /`: how the server does, and a playground; `GET /explain`: the same without the numbers.

The page is static and open to all: what it shows comes from the routes under `/v1/` and from
`/infill`, which want the API key. Its sources are in `server/pages/src`, what is sent is built of
them and committed. Nothing is run or loaded but its own script and style; the editor in it puts
its rules into style elements, which say the nonce that each answer has anew.
"""

from __future__ import annotations

import secrets
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from suture.server.openapi.operation import Operation, described
from suture.server.routes.page_headers import FILE_HEADERS, page_headers

_FILES = {
    "icon.svg": "image/svg+xml",
    "page.js": "text/javascript",
    "page.css": "text/css",
    "licences.txt": "text/plain",
}
PAGE_PATHS = frozenset({"/", "/explain", *(f"/pages/{name}" for name in _FILES)})
# Where the built page has it.
NONCE = "{nonce}"


def page_routes() -> list[Route]:
    """Routes to the page, under each of its names, and to what it loads."""
    page = _Page()
    files = [
        Route(f"/pages/{name}", _File(name, kind).get, include_in_schema=False)
        for name, kind in _FILES.items()
    ]
    return [Route("/", page.get), Route("/explain", page.get), *files]


class _Page:
    def __init__(self) -> None:
        self._html = built("page.html")

    @described(
        Operation("Suture", "A page to see how the server does, and try it", media="text/html")
    )
    async def get(self, request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        headers = page_headers("'self'", f"'self' 'nonce-{nonce}'") | {"Cache-Control": "no-store"}
        return Response(self._html.replace(NONCE, nonce), 200, headers, "text/html")


class _File:
    def __init__(self, name: str, kind: str) -> None:
        self._text = built(name)
        self._kind = kind

    async def get(self, request: Request) -> Response:
        # A new version is another text under the same name.
        return Response(self._text, 200, FILE_HEADERS | {"Cache-Control": "no-cache"}, self._kind)


def built(name: str) -> str:
    """The text of a built file."""
    folder = resources.files("suture.server").joinpath("pages", "built")
    return folder.joinpath(name).read_text("utf-8")
