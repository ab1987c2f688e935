"""Measures a model on the holes that ship with the product, and says which layout it is to have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from suture.server.calibration.choice import Choice, choose, mean_of
from suture.server.calibration.holes import Hole
from suture.server.calibration.profile import Figures, Profile
from suture.server.calibration.scoring import Score, Scorer, UnspelledHole
from suture.server.calibration.variants import Variant
from suture.server.completion import LoadedModel
from suture.server.errors import ModelError
from suture.server.prompt.families import TailBoundary
from suture.server.request import Healing

N_HOLES = 48

Scores = Mapping[Variant, Sequence[Score]]


def measure(
    model: LoadedModel, holes: Sequence[Hole], tell: Callable[[int], object] = lambda n: None
) -> Scores:
    """The scores of all holes under all variants; `tell` is told how many are done.

    Holes that the tokens do not spell are left out. Raises `ModelError` where fewer than two
    are left.
    """
    scorer = Scorer(model)
    scores: dict[Variant, list[Score]] = {variant: [] for variant in scorer.variants}
    for n_done, hole in enumerate(holes, 1):
        try:
            found = scorer.score(hole)
        except UnspelledHole:
            continue
        finally:
            tell(n_done)
        for variant, score in found.items():
            scores[variant].append(score)
    if any(len(of) < 2 for of in scores.values()):
        raise ModelError("the model's tokens do not spell the texts that it is calibrated on")
    return scores


def profile_of(
    scores: Scores, file: str, name: str, family: str, healing: Healing
) -> tuple[Profile, Choice]:
    """What the rule makes of scores, with what it rests on; `file` is the model's fingerprint."""
    chosen = choose(scores, healing=healing)
    taken = chosen.taken
    profile = Profile(
        file=file,
        model=name,
        family=family,
        layout=taken.layout,
        # Of a layout that has none it is what psm has where a request asks for that.
        boundary=taken.boundary or _boundary(chosen),
        holes=len(scores[taken]),
        figures=tuple(_figures(variant, of, chosen) for variant, of in scores.items()),
    )
    return profile, chosen


def _boundary(chosen: Choice) -> TailBoundary:
    of_psm = {v.boundary: mean.mean for v, mean in chosen.regrets.items() if v.boundary}
    return min(of_psm, key=of_psm.__getitem__, default="keep")


def _figures(variant: Variant, scores: Sequence[Score], chosen: Choice) -> Figures:
    word, line = mean_of([s.word for s in scores]), mean_of([s.line for s in scores])
    regret = chosen.regrets.get(variant)
    return Figures(
        variant=str(variant),
        word=word.mean,
        word_error=word.error,
        line=line.mean,
        line_error=line.error,
        regret=regret.mean if regret else None,
        upper=regret.upper if regret else None,
    )
