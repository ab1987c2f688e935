"""The rule that names a layout, on made-up scores."""

from __future__ import annotations

import math

import pytest

from suture.server.calibration.choice import choose, mean_of, regret
from suture.server.calibration.scoring import Score
from suture.server.calibration.variants import Variant

KEEP = Variant("psm", "keep", "off")
MOVE = Variant("psm", "move", "exact")
ANCHOR = Variant("anchor", None, "exact")
ANCHOR_OFF = Variant("anchor", None, "off")
ANCHOR_RECURSIVE = Variant("anchor", None, "recursive")
SPM = Variant("spm", None, "exact")


def scores(*words: float) -> list[Score]:
    return [Score(word, word) for word in words]


def shifted(of: list[Score], by: float, noise: float = 0.0) -> list[Score]:
    signs = (noise if n % 2 else -noise for n in range(len(of)))
    return [Score(s.word + by + sign, s.line) for s, sign in zip(of, signs, strict=True)]


BASE = scores(*(-n / 7 for n in range(64)))


def test_the_cheapest_is_taken_where_it_is_as_good() -> None:
    chosen = choose({KEEP: BASE, ANCHOR: shifted(BASE, -0.05), SPM: BASE})
    assert chosen.taken == ANCHOR and chosen.best in (KEEP, SPM)
    assert chosen.regrets[ANCHOR].mean == pytest.approx(0.05)


def test_a_layout_that_is_worse_than_the_margin_is_not_taken() -> None:
    assert choose({KEEP: BASE, ANCHOR: shifted(BASE, -0.2)}).taken == KEEP


def test_a_mean_below_the_margin_is_not_enough_where_it_is_not_sure() -> None:
    unsure = shifted(BASE, -0.05, noise=1.0)
    assert choose({KEEP: BASE, ANCHOR: unsure}).taken == KEEP
    sure = shifted(BASE * 100, -0.05, noise=1.0)
    assert choose({KEEP: BASE * 100, ANCHOR: sure}).taken == ANCHOR


def test_regret_is_paired_so_that_hard_holes_do_not_blur_it() -> None:
    assert mean_of([s.word for s in BASE]).error > 0.1
    assert regret(BASE, shifted(BASE, -0.05)).error == pytest.approx(0.0, abs=1e-12)


def test_the_layouts_are_tried_in_the_order_of_their_cost() -> None:
    bad = shifted(BASE, -1.0)
    assert choose({KEEP: BASE, MOVE: BASE, ANCHOR: bad, SPM: BASE}).taken == SPM
    assert choose({KEEP: bad, MOVE: BASE, ANCHOR: bad, SPM: bad}).taken == MOVE


def test_between_equal_costs_exact_matches_decide_and_then_bits() -> None:
    both = {KEEP: BASE, MOVE: shifted(BASE, -0.01)}
    assert choose(both).taken == KEEP
    matches = {KEEP: [True, False], MOVE: [True, True]}
    assert choose(both, matches).taken == MOVE


def test_a_healing_that_is_not_served_is_no_candidate() -> None:
    # Healed anchor would win, and a server with healing off would not have it.
    measured = {KEEP: BASE, ANCHOR: BASE, ANCHOR_OFF: shifted(BASE, -9.0)}
    assert choose(measured).taken == ANCHOR
    assert choose(measured, healing="off").taken == KEEP


def test_where_exact_was_not_measured_the_next_lower_healing_stands_for_it() -> None:
    measured = {KEEP: BASE, ANCHOR_OFF: shifted(BASE, -9.0), ANCHOR_RECURSIVE: BASE}
    assert choose(measured).taken == ANCHOR_RECURSIVE


def test_one_hole_decides_nothing_but_which_is_best() -> None:
    assert choose({KEEP: scores(-1.0), ANCHOR: scores(-1.01)}).taken == KEEP
    assert mean_of([1.0]).error == math.inf


def test_without_scores_nothing_is_chosen() -> None:
    with pytest.raises(ValueError, match="nothing"):
        choose({})
    with pytest.raises(ValueError, match="nothing"):
        choose({KEEP: []})
