from __future__ import annotations

from pathlib import Path

REASONS = """LOADING BUSY BUDGET DEADLINE SUPERSEDED CANCELLED LOW_CONFIDENCE DUPLICATE_SUFFIX EMPTY
MIDWORD NO_FIM EXCLUDED DISABLED UNREACHABLE AUTH ERROR""".split()


def test_every_reason_code_is_documented_once() -> None:
    text = Path(__file__).parents[3].joinpath("docs", "reasons.md").read_text("utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    assert [row[1].strip(" `") for row in rows] == REASONS
    assert all(len(row[2].strip()) > 20 for row in rows)
