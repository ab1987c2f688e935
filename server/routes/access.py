"""Who may ask: the host that a request names, and its API key.

A page in a browser can make its own name resolve to 127.0.0.1 and so reach a server that only
listens there. The `Host` header still says that name, so a name must be a loopback name, the one
that we listen on, or one given with `--allow-host`. An address cannot be made to resolve to
another, and such a page does not have a key: both are let through. A page need not read our
answers to keep the engine busy: what the `Origin` header names must be ours as well.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from suture.server.errors import RequestError
from suture.server.routes.delivery import CALLER, Dialect, error_response
from suture.server.settings import Settings, read_api_keys

CHALLENGE = 'Bearer realm="suture"'
# Probes must see whether we live without holding a key; and a browser has none to open a page
# with, of which what it shows is asked for with one.
OPEN_PATHS = frozenset({"/health", "/explain"})


class Unauthorized(RequestError):
    """The API key is missing or unknown."""

    status = 401
    reason = "AUTH"


class HostRefused(RequestError):
    """The request names a host that is not ours."""

    status = 403


def is_loopback(host: str) -> bool:
    """Whether `host` is a name or an address that only this machine can reach."""
    if is_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def is_address(host: str) -> bool:
    """Whether `host` is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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


class Access:
    """ASGI middleware that answers 403 and 401 in the dialect of the path."""

    def __init__(
        self, app: ASGIApp, settings: Settings, dialect_of: Callable[[str], Dialect]
    ) -> None:
        self._app = app
        self._dialect_of = dialect_of
        self._hosts = {name.lower() for name in (*settings.allow_host, settings.host)}
        self._restricted = bool(settings.allow_host)
        self._key_digests = [_digest(key) for key in read_api_keys(settings)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check(headers, scope["path"])
        except RequestError as error:
            refusal = error_response(self._dialect_of(scope["path"]), error)
            if isinstance(error, Unauthorized):
                refusal.headers["WWW-Authenticate"] = CHALLENGE
            await refusal(scope, receive, send)
            return
        if self._key_digests:
            scope[CALLER] = _digest(headers.get("authorization", "")).hex()
        await self._app(scope, receive, send)

    def _check(self, headers: Headers, path: str) -> None:
        if not self._serves(host_name(headers.get("host", ""))):
            raise HostRefused("this host name is not served: start with --allow-host to serve it")
        if not self._is_our_page(origin_name(headers.get("origin", ""))):
            raise HostRefused("pages of other sites are not served: see --allow-host")
        if self._key_digests and path not in OPEN_PATHS and not self._knows(headers):
            raise Unauthorized("the API key is missing or unknown: Authorization: Bearer <key>")

    def _serves(self, host: str) -> bool:
        if host in self._hosts or is_loopback(host) or is_address(host):
            return True
        # HTTP/1.0 clients send no Host; browsers always do.
        return not host or (bool(self._key_digests) and not self._restricted)

    def _is_our_page(self, host: str) -> bool:
        # A page may stand on any address, so unlike above an address proves nothing.
        return not host or host in self._hosts or is_loopback(host) or bool(self._key_digests)

    def _knows(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        digest = _digest(key.strip())
        known = False
        for expected in self._key_digests:  # all of them: no answer depends on which one matched
            known |= hmac.compare_digest(digest, expected)
        return known and scheme.lower() == "bearer"


def _digest(key: str) -> bytes:
    # Digests are of one length, so comparing them says nothing about the key's.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
