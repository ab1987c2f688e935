"""Tables in Markdown on standard output, progress on standard error."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n| {' | '.join(columns)} |")
    print(f"|{' --- |' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def show_progress(text: str) -> None:
    """What is being done, over what was shown before."""
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many percent of the values do not exceed."""
    return sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)]


def ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.3f}" if theirs else "-"


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
