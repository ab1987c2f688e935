"""What the study of layouts prints of its results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VARIANTS = ("psm keep off", "psm move exact", "anchor exact")
# Bits of the word and of the line, by hole: keep is best at the first, move at the second.
BITS = {
    "a@1": ((-1.0, -2.0), (-3.0, -4.0), (-1.5, -3.0)),
    "b@1": ((-5.0, -6.0), (-2.0, -2.5), (-1.5, -3.5)),
}


def reported(results: Path) -> dict[str, list[str]]:
    """The columns of the first table, by variant."""
    command = [sys.executable, "benchmarks/infilling.py", "--csv", str(results), "--report"]
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    table = made.stdout.split("\n\n")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows[2:]}


def results_of(tmp_path: Path, variants: tuple[str, ...]) -> Path:
    path = tmp_path / "holes.csv"
    lines = [
        f"0,{hole},1,{variant},{word},{line},\n"
        for hole, scores in BITS.items()
        for variant, (word, line) in zip(VARIANTS, scores, strict=True)
        if variant in variants
    ]
    path.write_text("model,hole,needed,variant,word,line,match\n" + "".join(lines))
    return path


def test_the_bound_of_a_mix_is_the_better_boundary_at_each_hole(tmp_path: Path) -> None:
    table = reported(results_of(tmp_path, VARIANTS))
    assert list(table) == [*VARIANTS, "psm mix (bound)"]
    # The best variants are anchor exact and, of the line, psm move exact.
    assert table["psm mix (bound)"] == [
        "-1.500 ± 0.500",
        "-2.250 ± 0.250",
        "0.000 ± 0.500",
        "-1.000 ± 1.000",
        "-",
    ]


def test_where_a_boundary_was_not_measured_there_is_no_bound(tmp_path: Path) -> None:
    table = reported(results_of(tmp_path, ("psm move exact", "anchor exact")))
    assert list(table) == ["psm move exact", "anchor exact"]
