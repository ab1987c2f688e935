"""Which benchmarks `make bench-NAME LLAMA_SERVER=PATH` hands the peer to: those that take it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = [path.stem for path in sorted((ROOT / "benchmarks").glob("*.py"))]
# It heals, which its peer does not: there is nothing to compare.
REFUSING = {"healing_cost"}


@pytest.mark.parametrize("name", NAMES)
def test_only_those_that_compare_are_handed_a_peer(name: str) -> None:
    made = subprocess.run(
        ["make", "-n", f"bench-{name}", "LLAMA_SERVER=/peer"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    text = (ROOT / "benchmarks" / f"{name}.py").read_text("utf-8")
    takes_it = "parser_of(" in text and name not in REFUSING
    assert ("--llama-server /peer" in made.stdout) == takes_it
