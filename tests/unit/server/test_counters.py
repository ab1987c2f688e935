"""Tallies, against counting by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from suture.server.counters import Tally

values = st.lists(st.floats(0, 100, allow_nan=False), max_size=50)


@given(values, st.lists(st.integers(0, 99), min_size=1, max_size=6, unique=True))
def test_each_value_is_counted_at_the_first_bound_that_it_is_not_above(
    observed: list[float], bounds: list[int]
) -> None:
    tally = Tally(sorted(map(float, bounds)))
    for value in observed:
        tally.observe(value)

    for n, bound in enumerate(tally.bounds):
        assert sum(tally.counts[: n + 1]) == sum(value <= bound for value in observed)
    assert sum(tally.counts) == len(observed)
    assert tally.total == sum(observed)


def test_zeros_are_added_to_a_copy() -> None:
    tally = Tally((0.0, 1.0))
    tally.observe(0.5)
    copy = tally.with_zeros(3)

    assert (copy.counts, copy.total) == ([3, 1, 0], 0.5)
    assert tally.counts == [0, 1, 0]
