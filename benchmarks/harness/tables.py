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


def ratio_with_error(pairs: Sequence[tuple[float, float]]) -> str:
    """The ratio of two sums, with its standard error: a jackknife over the pairs they are of."""
    n, ours, theirs = len(pairs), sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    if n < 2:
        return ratio(ours, theirs)
    without = [(ours - pair[0]) / (theirs - pair[1]) for pair in pairs]
    error = statistics.pstdev(without) * (n - 1) ** 0.5
    return f"{ratio(ours, theirs)} ± {error:.3f}"


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
