"""All checks, and a server's score over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import httpx2

from conformance import answers, bodies, boundaries, characters, load
from conformance.check import Check, Result, run_check
from conformance.peer import meet, told

TIMEOUT_S = 300.0


def _of(module: ModuleType) -> list[Check]:
    return [value for value in vars(module).values() if isinstance(value, Check)]


# Odd bodies come last: a server that they break answers nothing any more.
CHECKS: tuple[Check, ...] = tuple(
    one for module in (boundaries, answers, characters, load, bodies) for one in _of(module)
)


@dataclass(frozen=True, slots=True)
class Score:
    """What came of each check, and of what server."""

    server: str
    model: str
    dialect: str
    fills: bool
    has_sense: bool
    results: tuple[Result, ...]

    @property
    def n_passed(self) -> int:
        return self._n("pass")

    @property
    def n_applied(self) -> int:
        return len(self.results) - self._n("n/a")

    @property
    def is_clean(self) -> bool:
        return self.n_passed == self.n_applied

    def _n(self, outcome: str) -> int:
        return sum(result.outcome == outcome for result in self.results)

    def as_json(self) -> dict[str, object]:
        return {
            "server": self.server,
            "model": self.model,
            "dialect": self.dialect,
            "fills": self.fills,
            "has_sense": self.has_sense,
            "passed": self.n_passed,
            "applied": self.n_applied,
            "results": [result.as_json() for result in self.results],
        }


async def score(
    url: str,
    checks: Sequence[Check] = CHECKS,
    *,
    show: Callable[[Result], None] = lambda result: None,
    wait_s: float = 120.0,
    model: str | None = None,
    dialect: str | None = None,
    api_key: str | None = None,
    limit_s: float = 900.0,
) -> Score:
    """Each check's result, shown as it comes; raises `LookupError` where nothing answers."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False, limits=limits
    ) as http:
        peer = await meet(http, wait_s, model, dialect)
        results = []
        for one in checks:
            result = await run_check(one, peer, limit_s)
            if result.outcome != "pass" and not await _is_alive(http):
                result = Result(one, "fail", f"the server is gone; {result.detail}", result.seconds)
            show(result)
            results.append(result)
    return Score(
        peer.name, peer.model, peer.dialect.name, peer.fills, peer.has_sense, tuple(results)
    )


async def _is_alive(http: httpx2.AsyncClient) -> bool:
    try:
        await told(http, "/")
    except httpx2.TransportError:
        return False
    return True
