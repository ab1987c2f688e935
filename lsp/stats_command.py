"""What became of suggestions in your editors. It is counted on this machine and stays there."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

from filelock import Timeout

from suture.lsp.stats import MAX_DAYS, Days, stats_file
from suture.lsp.tally import Counts
from suture.server.commands import exits
from suture.server.commands.asking import number
from suture.server.commands.flags import add_settings, settings_of
from suture.server.errors import SetupError

SUMMARY = "say what became of suggestions in your editors"

Json = dict[str, Any]
_HEAD = ("", "shown", "accepted", "in part", "rejected", "characters", "rate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", type=_days, default=30, metavar="N", help="of the last N days (default 30)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--forget", action="store_true", help="delete all that was counted")
    add_settings(parser)


def run(args: argparse.Namespace) -> int:
    stats = stats_file(settings_of(args).cache)
    try:
        if args.forget:
            stats.forget()
            return exits.OK
        kept = stats.read()
    except (OSError, Timeout) as error:
        raise SetupError(f"{stats.path}: {' '.join(str(error).split())}") from None
    first = (date.today() - timedelta(days=args.days - 1)).isoformat()
    days = {day: counts for day, counts in kept.items() if day >= first}
    if args.json:
        print(json.dumps(as_json(days, args.days), indent=2))
    else:
        print("\n".join(_report(days, args.days)))
    return exits.OK


def as_json(days: Days, n_days: int) -> Json:
    """All sums with their rates, and each day."""
    return {
        "n_days": n_days,
        "total": _rated(_sum(counts for day in days.values() for counts in day.values())),
        "languages": {name: _rated(counts) for name, counts in _by_language(days).items()},
        "days": {day: _rated(_sum(languages.values())) for day, languages in days.items()},
    }


def rate(counts: Counts) -> float | None:
    """Which share of what was shown was accepted, as a whole or in part; None where none was.

    It is no more than 1: some editors do not tell what they show.
    """
    n_used = counts.accepted + counts.partly_accepted
    return min(1.0, n_used / counts.shown) if counts.shown else None


def _report(days: Days, n_days: int) -> Iterable[str]:
    """A line for each language, those with the most first, and one for all."""
    if not days:
        yield f"Nothing was counted in the last {n_days} days."
        return
    languages = _by_language(days)
    rows = [_HEAD, *(_row(name, counts) for name, counts in languages.items())]
    if len(languages) > 1:
        rows.append(_row("all", _sum(languages.values())))
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    for name, *numbers in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True))
        yield f"{name:<{widths[0]}}  {'  '.join(cells)}".rstrip()


def _row(name: str, counts: Counts) -> tuple[str, ...]:
    share = rate(counts)
    numbers = (counts.shown, counts.accepted, counts.partly_accepted, counts.rejected,
               counts.characters)  # fmt: skip
    return (name, *map(str, numbers), "-" if share is None else f"{share:.0%}")


def _by_language(days: Days) -> dict[str, Counts]:
    sums: dict[str, Counts] = {}
    for languages in days.values():
        for name, counts in languages.items():
            sums.setdefault(name, Counts()).add(counts)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].shown, item[0])))


def _sum(all_counts: Iterable[Counts]) -> Counts:
    total = Counts()
    for counts in all_counts:
        total.add(counts)
    return total


def _rated(counts: Counts) -> Json:
    share = rate(counts)
    return asdict(counts) | {"rate": None if share is None else round(share, 4)}


def _days(text: str) -> int:
    n_days = number(text)
    if not 1 <= n_days <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_DAYS}")
    return n_days
