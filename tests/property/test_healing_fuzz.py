"""Two thousand random requests; `python -m support.healing_fuzz 100000` runs more of them."""

from __future__ import annotations

from collections import Counter

from support.healing_fuzz import run


def test_c4_h4_random_requests_end_well_whatever_they_combine() -> None:
    outcomes = Counter(map(run, range(2000)))
    assert set(outcomes) == {"exact", "recursive", "none", "refused"}
    assert outcomes["exact"] > 300
