"""How much one client may have running and waiting, so that it cannot fill the queue by itself.

A client is who sends a key, or, where there are no keys, the address that it comes from; of an
IPv6 address the network, of which one machine has all.

  "auto"  Half of all places (those that run and those that wait), for clients that can be told
          apart: by several keys, or by addresses that are not this machine's. So one that asks
          without end leaves room for others, and one alone still gets all that runs. All
          programs of this machine, and all who share one key, look like one client: that they
          are many is no reason to refuse them.
  N       So many, for whoever it is. 0 is no limit.

On top of it a tenant may have a limit of its own, for all its users together and for each of them
(`tenants.py`).

The requests of a typing session count as one, as the newest ends those before it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from starlette.types import Scope

from suture.server.counters import TenantCounters
from suture.server.errors import ClientBusy, InvalidRequest, SutureError
from suture.server.request import CompletionRequest
from suture.server.settings import Settings
from suture.server.tenants import Tenant

# The key of an ASGI scope under which the client's places are.
PLACES = "suture.places"
_NETWORK_BITS = 64


class ClientLimits:
    """What every client has running and waiting, of those that have something.

    `counted` is where the requests of tenants are counted.
    """

    def __init__(
        self, settings: Settings, n_keys: int, counted: TenantCounters | None = None
    ) -> None:
        self._setting = settings.client_limit
        self._half = max(1, (settings.most_running + settings.queue) // 2)
        self._n_keys = n_keys
        self._counted = counted or TenantCounters()
        self._taken: dict[_Holder, list[_Taken]] = {}

    def places(
        self, caller: str | None, address: tuple[str, int] | None, tenant: Tenant | None = None
    ) -> Places:
        """The places of the client that sends the key `caller`, or else has this address."""
        host = address[0] if address else ""
        limit = self._limit(caller, host)
        return Places(self._taken, caller or _network(host), limit, tenant, self._counted)

    @property
    def n_clients(self) -> int:
        """How many have something running or waiting."""
        return sum(kind == "client" for kind, *_ in self._taken)

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


# Whose places they are: of what kind, and its name.
_Holder = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Bound:
    """At most `limit` places for a holder, whom a refusal calls `who`; None is no bound."""

    holder: _Holder
    limit: int | None
    who: str


@dataclass(frozen=True, slots=True)
class Places:
    """One client's places, of which it may have `limit`, beside what its tenant may have; None is
    no bound."""

    taken: dict[_Holder, list[_Taken]]
    client: str
    limit: int | None
    tenant: Tenant | None = None
    counted: TenantCounters = field(default_factory=TenantCounters)

    @contextmanager
    def take(
        self, n: int = 1, session: str | None = None, user: str | None = None
    ) -> Iterator[None]:
        """Have `n` places while the block runs, together with others of the `session`.

        Raises `ClientBusy`, and `InvalidRequest` where so many could never be had.
        """
        mine = _Taken(session, n)
        bounds = self._bounds(user)
        try:
            for bound in bounds:
                self._check(mine, bound)
        except SutureError:
            self._count("refused")
            raise
        self._count("accepted")
        for bound in bounds:
            self.taken.setdefault(bound.holder, []).append(mine)
        try:
            yield
        finally:
            for bound in bounds:
                left = self.taken[bound.holder]
                left.remove(mine)
                if not left:
                    del self.taken[bound.holder]

    def _bounds(self, user: str | None) -> list[_Bound]:
        bounds = [_Bound(("client", self.client), self.limit, "one client")]
        if (tenant := self.tenant) is not None:
            name = tenant.name
            one = ("user", name, user or self.client)
            bounds += [
                _Bound(("tenant", name), tenant.limit, "all users of one tenant together"),
                _Bound(one, tenant.user_limit, "one user"),
            ]
        return bounds

    def _check(self, mine: _Taken, bound: _Bound) -> None:
        limit, who = bound.limit, bound.who
        if limit is None:
            return
        if mine.n > limit:
            raise InvalidRequest(f'"n" must be at most {limit}, all that {who} may have', "n")
        others = self.taken.get(bound.holder, [])
        if _count([*others, mine]) > limit:
            raise ClientBusy(f"{who} may have {limit} requests running and waiting")

    def _count(self, outcome: str) -> None:
        if self.tenant is not None:
            self.counted.requests[self.tenant.name, outcome] += 1


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
    return places_of(scope).take(request.n, session, request.user)


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
