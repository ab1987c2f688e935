"""What a check is, and what may come of one.

`pass`  the server did what the check asks for.
`fail`  it did something else; the detail says what.
`n/a`   the check says nothing of this server: no such route, a model that is too
        fast or too random to tell.
`error` the kit got no answer that it could judge: a timeout, a lost connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import httpx2

if TYPE_CHECKING:
    from conformance.peer import Peer

Outcome = Literal["pass", "fail", "n/a", "error"]
Run = Callable[["Peer"], Awaitable[str]]


class Failed(Exception):
    """What the server did instead."""


class NotApplicable(Exception):
    """Why the check says nothing of this server."""


class Refused(Exception):
    """An answer other than 200 where one was expected."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"answered {status}: {' '.join(text.split())[:160]}")
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `sources` are public reports of what it looks for."""

    id: str
    title: str
    sources: tuple[str, ...]
    sends: str
    passes: str
    why: str
    run: Run


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a check, and why."""

    check: Check
    outcome: Outcome
    detail: str
    seconds: float

    def as_json(self) -> dict[str, object]:
        check = self.check
        return {
            "id": check.id,
            "title": check.title,
            "sources": list(check.sources),
            "sends": check.sends,
            "passes": check.passes,
            "why": check.why,
            "outcome": self.outcome,
            "detail": self.detail,
            "seconds": round(self.seconds, 2),
        }


def check(
    identifier: str, sources: str, *, sends: str, passes: str, why: str
) -> Callable[[Run], Check]:
    """Makes a check of a function; its title is the first line of the function's docstring.

    The function returns what it saw where the server passes, and raises where it does not.
    `sources` are separated by commas.
    """

    def checked(run: Run) -> Check:
        title = (run.__doc__ or "").partition("\n")[0].rstrip(".")
        named = tuple(source.strip() for source in sources.split(","))
        return Check(identifier, title, named, sends, passes, why, run)

    return checked


async def run_check(one: Check, peer: Peer, limit_s: float) -> Result:
    """What comes of it, within `limit_s` seconds."""
    started = time.monotonic()
    outcome: Outcome = "pass"
    try:
        async with asyncio.timeout(limit_s):
            detail = await one.run(peer)
    except (Failed, Refused) as failure:
        outcome, detail = "fail", str(failure)
    except NotApplicable as reason:
        outcome, detail = "n/a", str(reason)
    except TimeoutError:
        outcome, detail = "error", f"no verdict within {limit_s:.0f} s"
    except (httpx2.HTTPError, ValueError, LookupError, TypeError) as error:
        # An answer in no shape that the dialect has, or none.
        outcome, detail = "error", f"{type(error).__name__}: {error}"[:200]
    return Result(one, outcome, detail, time.monotonic() - started)


def enough(n_good: int, n: int, at_least: float, what: str) -> str:
    """`"3 of 4 what"`; raises `Failed` with it below the share `at_least`."""
    said = f"{n_good} of {n} {what}"
    if n_good < at_least * n:
        raise Failed(said)
    return said


def require(condition: bool, otherwise: str) -> None:
    """Raises `Failed` unless the condition holds."""
    if not condition:
        raise Failed(otherwise)
