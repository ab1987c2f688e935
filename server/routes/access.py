"""Who may ask: the host that a request names, the page that it comes from, and its API key.

A page in a browser can make its own name resolve to 127.0.0.1 and so reach a server that only
listens there. The `Host` header still says that name, so a name must be a loopback name, the one
that we listen on, or one given with `--allow-host`. An address cannot be made to resolve to
another, and such a page does not have a key: both are let through.

A page need not read our answers to keep the engine busy: what the `Origin` header names must be
ours as well, and where there is none (an image, a script) `Sec-Fetch-Site` tells other sites. No
answer has CORS headers, so that no other page reads one. What `Content-Type` says is not looked at:
a page may send JSON as `text/plain`, unasked, but not without these two headers; and `curl -d`, as
llama-server's users know it, calls it a form.

A key comes as `Authorization: Bearer <key>`, as OpenAI's, Mistral's, Ollama's and Tabby's clients
and llama.vim send it, or as `X-Api-Key`, which llama-server takes and Continue sends beside the
other. Whichever it is in, who sends it is one caller. Each key is one tenant's (`tenants.py`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from suture.server.counters import TenantCounters
from suture.server.errors import RequestError
from suture.server.hosts import is_address, is_loopback
from suture.server.routes.asker import CALLER, CLIENT, TENANT
from suture.server.routes.body import BODIES, SharedRoom
from suture.server.routes.delivery import Dialect, error_response
from suture.server.routes.limits import PLACES, ClientLimits
from suture.server.routes.pages import PAGE_PATHS
from suture.server.settings import CHALLENGE, Settings
from suture.server.tenants import Tenant, Tenants

MAX_HEAD_BYTES = 64 * 2**10
# Probes must see whether we live without holding a key; and a browser has none to open a page
# with, of which what it shows is asked for with one. The document is that of any server.
OPEN_PATHS = frozenset({"/health", "/docs", "/openapi.json", *PAGE_PATHS})


class Unauthorized(RequestError):
    """The API key is missing or unknown."""

    status = 401
    reason = "AUTH"


class HostRefused(RequestError):
    """The request names a host that is not ours, or comes from a page of another."""

    status = 403


class HeadTooLarge(RequestError):
    """The headers have more in them than any client needs."""

    status = 431


def host_name(header: str) -> str:
    """The name in a Host header: `[::1]:80` -> `::1`, `Box:80` -> `box`."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def origin_name(header: str) -> str:
    """The host in an Origin header, which browsers send with what a page asks for.

    A page without a host (`null`: a local file, a sandbox) is named by what it says.
    """
    return host_name(header.partition("://")[2]) if "://" in header else header


class TwoLengths(RequestError):
    """A proxy before us may have read another end of the body, and so another next request."""

    ends_connection = True


class Access:
    """ASGI middleware that answers 431, 403, 401 and the like in the dialect of the path.

    `tenants` have the keys, and `counted` is where their requests are counted.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        dialect_of: Callable[[str], Dialect],
        tenants: Tenants,
        counted: TenantCounters,
    ) -> None:
        self._app = app
        self._dialect_of = dialect_of
        self._hosts = {name.lower() for name in (*settings.allow_host, settings.host)}
        self._restricted = bool(settings.allow_host)
        self._tenant_of = {_digest(key): tenant for key, tenant in tenants.keys}
        self._bodies = SharedRoom()
        self._limits = ClientLimits(settings, len(tenants.keys), counted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            caller, tenant = self._check(scope) or (None, None)
        except RequestError as error:
            refusal = error_response(self._dialect_of(scope["path"]), error)
            if isinstance(error, Unauthorized):
                refusal.headers["WWW-Authenticate"] = CHALLENGE
            await refusal(scope, receive, send)
            return
        if caller is not None:
            scope[CALLER], scope[TENANT] = caller, tenant
        places = self._limits.places(caller, scope.get("client"), tenant)
        scope[BODIES], scope[PLACES], scope[CLIENT] = self._bodies, places, places.client
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> tuple[str, Tenant] | None:
        """The name of the caller's key and its tenant, if there are keys.

        Raises the `RequestError` to answer.
        """
        if _head_bytes(scope) > MAX_HEAD_BYTES:
            raise HeadTooLarge(f"the request's head is larger than {MAX_HEAD_BYTES // 2**10} KiB")
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            raise TwoLengths("Content-Length and Transfer-Encoding contradict each other")
        if not self._serves(host_name(headers.get("host", ""))):
            raise HostRefused("this host name is not served: start with --allow-host to serve it")
        if self._is_foreign(headers, scope["method"]):
            raise HostRefused("pages of other sites are not served: see --allow-host")
        if not self._tenant_of:
            return None
        caller = self._known(headers)
        if caller is None and scope["path"] not in OPEN_PATHS:
            raise Unauthorized("the API key is missing or unknown: Authorization: Bearer <key>")
        return caller

    def _serves(self, host: str) -> bool:
        if host in self._hosts or is_loopback(host) or is_address(host):
            return True
        # HTTP/1.0 clients send no Host; browsers always do.
        return not host or (bool(self._tenant_of) and not self._restricted)

    def _is_foreign(self, headers: Headers, method: str) -> bool:
        """Whether a page of another site has its visitor's browser ask."""
        if self._tenant_of:
            return False  # it has no key
        if origin := headers.get("origin", ""):
            # A page may stand on any address, so unlike above an address proves nothing.
            host = origin_name(origin)
            return not (host in self._hosts or is_loopback(host))
        if headers.get("sec-fetch-site") != "cross-site":
            return False
        # Who follows a link to one of our pages looks at it; nobody else's page has it in a frame.
        is_visit = headers.get("sec-fetch-dest") == "document" and method in ("GET", "HEAD")
        return not is_visit

    def _known(self, headers: Headers) -> tuple[str, Tenant] | None:
        """The name and the tenant of the first key that is sent and known."""
        for key in sent_keys(headers):
            digest = _digest(key)
            found: Tenant | None = None
            # All of them: no answer depends on which one matched.
            for expected, tenant in self._tenant_of.items():
                if hmac.compare_digest(digest, expected):
                    found = tenant
            if found is not None:
                return digest.hex(), found
        return None


def _head_bytes(scope: Scope) -> int:
    """Bytes of a request's head; the parser bounds only what does not come at once."""
    lines = sum(len(name) + len(value) for name, value in scope["headers"])
    return len(scope["path"]) + len(scope["query_string"]) + lines


def sent_keys(headers: Headers) -> Iterator[str]:
    """What may be an API key, in the order in which it is believed."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield key.strip()
    yield headers.get("x-api-key", "").strip()


def _digest(key: str) -> bytes:
    # Digests are of one length, so comparing them says nothing about the key's.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
