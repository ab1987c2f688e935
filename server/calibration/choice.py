"""Which layout is taken, by a rule that was fixed before anything was measured.

1. Candidates are one for each layout and boundary, with the healing that requests are served with.
2. Regret is the best candidate's score of a hole less the candidate's own, paired hole by hole:
   bits of the true text up to the word's end. A candidate is *non-inferior* where the upper end of
   the one-sided 95% confidence interval of its mean regret is below `MARGIN`.
3. Of the non-inferior ones the cheapest to type in is taken: anchor, then spm, then psm. Anchor
   reads again what was typed on the line, spm all but the suffix, psm the suffix at every key.
4. Between equals, which psm's two boundaries are, that with more exact matches, where they were
   measured, then that with more bits.

The best candidate is non-inferior to itself, so there is always one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suture.server.calibration.scoring import Score
from suture.server.calibration.variants import Variant
from suture.server.request import Healing

MARGIN = 0.10
"""Bits a hole."""

_Z_95 = 1.645  # one-sided
_COST = {"anchor": 0, "spm": 1, "psm": 2}


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its standard error; that of a single value is infinite."""

    mean: float
    error: float

    @property
    def upper(self) -> float:
        """The upper end of the one-sided 95% confidence interval."""
        return self.mean + _Z_95 * self.error


@dataclass(frozen=True, slots=True)
class Choice:
    """The variant that is taken, the best one, and each candidate's regret against that."""

    taken: Variant
    best: Variant
    regrets: Mapping[Variant, Mean]


def mean_of(values: Sequence[float]) -> Mean:
    """Their mean. Raises `ValueError` for none."""
    if not values:
        raise ValueError("there is no mean of nothing")
    if len(values) == 1:
        return Mean(values[0], math.inf)
    return Mean(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))


def regret(best: Sequence[Score], scores: Sequence[Score]) -> Mean:
    """How many bits a hole one variant says less of the word than another, paired."""
    pairs = zip(best, scores, strict=True)
    return mean_of([theirs.word - ours.word for theirs, ours in pairs])


def choose(
    scores: Mapping[Variant, Sequence[Score]],
    matches: Mapping[Variant, Sequence[bool]] | None = None,
    healing: Healing = "exact",
    margin: float = MARGIN,
) -> Choice:
    """What the rule takes; scores stand in the same order of holes for all variants.

    Where a place was not measured with `healing`, its best healing below that stands for it. Raises
    `ValueError` without any scores.
    """
    candidates = _candidates(scores, healing)
    if not candidates:
        raise ValueError("there is nothing to choose from")
    means = {variant: mean_of([s.word for s in scores[variant]]).mean for variant in candidates}
    best = max(candidates, key=means.__getitem__)
    regrets = {variant: regret(scores[best], scores[variant]) for variant in candidates}
    # A single hole decides nothing, not even that the best is as good as itself.
    good = [v for v in candidates if v == best or regrets[v].upper < margin]
    found = matches or {}

    def rank(variant: Variant) -> tuple[int, float, float]:
        return _COST[variant.layout], -sum(found.get(variant, ())), -means[variant]

    return Choice(min(good, key=rank), best, regrets)


def _candidates(scores: Mapping[Variant, Sequence[Score]], healing: Healing) -> list[Variant]:
    """For each place the variant that is served there with `healing`."""
    levels: tuple[Healing, ...] = ("off", "recursive", "exact")
    served: dict[object, Variant] = {}
    for level in levels[: levels.index(healing) + 1]:
        served |= {variant.place: variant for variant in scores if variant.healing == level}
    return list(served.values())
