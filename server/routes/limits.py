"""How much one client may have running and waiting, so that it cannot fill the queue by itself.

A client is who sends a key, or, where there are no keys, the address that it comes from; of an
IPv6 address the network, of which one machine has all.

  "auto"  Half of all places (those that run and those that wait), for clients that can be told
          apart: by several keys, or by addresses that are not this machine's. So one that asks
          without end leaves room for others, and one alone still gets all that runs. All
          programs of this machine, and all who share one key, look like one client: that they
          are many is no reason to refuse them.
  N       So many, for whoever it is. 0 is no limit.

The requests of a typing session count as one, as the newest ends those before it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from starlette.types import Scope

from suture.server.errors import ClientBusy, InvalidRequest
from suture.server.request import CompletionRequest
from suture.server.settings import Settings

# The key of an ASGI scope under which the client's places are.
PLACES = "suture.places"
_NETWORK_BITS = 64


class ClientLimits:
    """What every client has running and waiting, of those that have something."""

    def __init__(self, settings: Settings, n_keys: int) -> None:
        self._setting = settings.client_limit
        self._half = max(1, (settings.parallel + settings.queue) // 2)
        self._n_keys = n_keys
        self._taken: dict[str, list[_Taken]] = {}

    def places(self, caller: str | None, address: tuple[str, int] | None) -> Places:
        """The places of the client that sends the key `caller`, or else has this address."""
        host = address[0] if address else ""
        return Places(self._taken, caller or _network(host), self._limit(caller, host))

    @property
    def n_clients(self) -> int:
        """How many have something running or waiting."""
        return len(self._taken)

    def _limit(self, caller: str | None, host: str) -> int | None:
        if self._setting != "auto":
            return self._setting or None
        is_told_apart = self._n_keys > 1 if caller else bool(host) and not _is_loopback(host)
        return self._half if is_told_apart else None


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one request has taken: `n` places, which a session's requests have together."""

    session: str | None
    n: int


@dataclass(frozen=True, slots=True)
class Places:
    """One client's places, of which it may have `limit`; None is no bound."""

    taken: dict[str, list[_Taken]]
    client: str
    limit: int | None

    @contextmanager
    def take(self, n: int = 1, session: str | None = None) -> Iterator[None]:
        """Have `n` places while the block runs, together with others of the `session`.

        Raises `ClientBusy`, and `InvalidRequest` where so many could never be had.
        """
        mine = _Taken(session, n)
        if self.limit is not None:
            self._check(mine, self.limit)
        self.taken.setdefault(self.client, []).append(mine)
        try:
            yield
        finally:
            left = self.taken[self.client]
            left.remove(mine)
            if not left:
                del self.taken[self.client]

    def _check(self, mine: _Taken, limit: int) -> None:
        if mine.n > limit:
            raise InvalidRequest(f'"n" must be at most {limit}, all that one client may have', "n")
        others = self.taken.get(self.client, [])
        if _count([*others, mine]) > limit:
            raise ClientBusy(f"one client may have {limit} requests running and waiting")


def _count(taken: list[_Taken]) -> int:
    sessions: dict[str, int] = {}
    for one in taken:
        if one.session is not None:
            sessions[one.session] = max(sessions.get(one.session, 0), one.n)
    return sum(one.n for one in taken if one.session is None) + sum(sessions.values())


def places_for(request: CompletionRequest, scope: Scope) -> AbstractContextManager[None]:
    """The places of its client that a completion needs, while the block runs."""
    # Without a number it ends none before it.
    session = request.session if request.seq is not None else None
    return places_of(scope).take(request.n, session)


def places_of(scope: Scope) -> Places:
    """The places of who makes the request; unbounded where nobody counts them."""
    places = scope.get(PLACES)
    return places if isinstance(places, Places) else Places({}, "", None)


def _network(host: str) -> str:
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
    return host


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address
