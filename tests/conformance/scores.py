"""Scores as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.check import Check
from conformance.suite import Score


def scored(score: Score) -> str:
    """One server's table."""
    rows = [
        (result.check.id, result.check.title, result.outcome, result.detail)
        for result in score.results
    ]
    head = f"{score.server}, {score.model}, dialect {score.dialect}"
    if not score.fills:
        head += ", fills no holes with this model"
    total = f"passed {score.n_passed} of {score.n_applied} checks that apply"
    return f"{head}\n\n{table(('check', 'what', 'result', 'seen'), rows)}\n\n{total}"


def compared(scores: Sequence[dict[str, Any]]) -> str:
    """Several servers side by side, of what `--json` printed of each."""
    found = [{one["id"]: one for one in score["results"]} for score in scores]
    titles = {one["id"]: one["title"] for score in scores for one in score["results"]}
    rows = [
        (name, title, *(_cell(results.get(name)) for results in found))
        for name, title in titles.items()
    ]
    totals = ("", "passed of those that apply", *map(_total, scores))
    columns = ("check", "what", *(score["server"] for score in scores))
    return table(columns, [*rows, totals])


def listed(checks: Sequence[Check]) -> str:
    """What each check is."""
    return "\n\n".join(
        f"{one.id}  {one.title}\n"
        f"  sends   {one.sends}\n"
        f"  passes  {one.passes}\n"
        f"  why     {one.why}\n"
        f"  from    {', '.join(one.sources)}"
        for one in checks
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _escaped(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())


def _cell(result: dict[str, Any] | None) -> str:
    return "" if result is None else f"**{result['outcome']}**: {result['detail']}"


def _total(score: dict[str, Any]) -> str:
    return f"{score['passed']} of {score['applied']}"
