"""Scores of holes, against the same probabilities worked out by enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.toy import PIECES, SPECIALS, toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.healing import CanonicalPairs
from suture.server.calibration.choice import choose
from suture.server.calibration.holes import Hole, own_holes
from suture.server.calibration.scoring import FLOOR, Scorer, UnspelledHole
from suture.server.calibration.variants import Variant
from suture.server.completion import LoadedModel
from suture.server.decoding.covering import Coverings
from suture.server.engine.scripted import ScriptedEngine, random_model, speaking_model
from suture.server.errors import InfillUnsupported
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt

HOLES = [
    Hole("const userNa", "me = x()\n", "return x\n"),
    Hole("x = (\n    re", "turn userName)\n  y\n", ""),
    Hole("const us", "er x", " = ()"),
    Hole("import num", "py", "\n\ndef"),
    Hole("x = (us", "er", ")\n"),
]
VOCABULARY = toy_vocabulary()


def model_of(engine: ScriptedEngine, *, exact: bool = True) -> LoadedModel:
    coverings = Coverings(VOCABULARY, CanonicalPairs(VOCABULARY, toy_encode)) if exact else None
    family = detect_family(VOCABULARY, "qwen2.5-coder")
    return LoadedModel(engine, family, toy_budget(), toy_codec(toy_encode), coverings)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(VOCABULARY, toy_encode, random_model(VOCABULARY.n_vocab))


class Oracle:
    """Probabilities token by token, each out of a whole row of the model."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._logits = random_model(VOCABULARY.n_vocab)
        family = model.family
        assert family is not None
        self._ends = VOCABULARY.eog_ids | family.stop_ids

    def plan(self, hole: Hole, variant: Variant) -> PromptPlan:
        request = variant.request(hole.prefix, hole.suffix, 24)
        return plan_prompt(request, VOCABULARY, self._model.family, toy_encode, toy_budget())

    def probs(self, tokens: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        row = self._logits(tokens).astype(np.float64)
        for token_id in range(VOCABULARY.n_vocab):
            if not VOCABULARY.bytes_of(token_id) and token_id not in self._ends:
                row[token_id] = -np.inf
        weights = np.exp(row - row.max())
        return np.asarray(weights / weights.sum())

    def product(self, kept: tuple[int, ...], ids: list[int]) -> float:
        return math.prod(
            float(self.probs((*kept, *ids[:n]))[token_id]) for n, token_id in enumerate(ids)
        )

    def recursive(self, plan: PromptPlan, ids: list[int]) -> float:
        total, pending = 1.0, plan.pending
        for n, token_id in enumerate(ids):
            probs = self.probs((*plan.kept_ids, *ids[:n]))
            allowed = [
                i
                for i in range(VOCABULARY.n_vocab)
                if (piece := VOCABULARY.bytes_of(i))
                and (piece.startswith(pending) or pending.startswith(piece))
            ]
            share = sum(float(probs[i]) for i in allowed) if pending else 1.0
            total *= float(probs[token_id]) / share
            pending = pending[len(VOCABULARY.bytes_of(token_id)) :]
        return total

    def evidence(self, kept: tuple[int, ...], pending: bytes, left: tuple[int, ...]) -> float:
        """Of all canonical ways to say the pending bytes and at least one token's worth more."""
        pairs = CanonicalPairs(VOCABULARY, toy_encode)
        total = 0.0
        for token_id, prob in enumerate(self.probs(kept)):
            piece = VOCABULARY.bytes_of(token_id)
            if not pending:
                may_follow = token_id in self._ends or (piece and pairs.extends(left, token_id))
                total += float(prob) if may_follow else 0.0
            elif piece and pairs.extends(left, token_id):
                if piece.startswith(pending) and len(piece) > len(pending):
                    total += float(prob)
                elif pending.startswith(piece):
                    rest = self.evidence(
                        (*kept, token_id), pending[len(piece) :], (*left, token_id)
                    )
                    total += float(prob) * rest
        return total


def spelled(plan: PromptPlan, text: bytes, end: int) -> list[int]:
    """The tokens of the pending bytes and the text, up to a token end behind it."""
    ids, at = [], -len(plan.pending)
    for token_id in toy_encode(plan.pending + text):
        if at >= end:
            break
        ids.append(token_id)
        at += len(VOCABULARY.bytes_of(token_id))
    assert at == end
    return ids


@pytest.mark.parametrize("hole", [*HOLES[:3], HOLES[4]])
def test_scores_are_what_enumeration_says(engine: ScriptedEngine, hole: Hole) -> None:
    model = model_of(engine)
    oracle = Oracle(model)
    n_word = {HOLES[0]: 2, HOLES[1]: 4, HOLES[2]: 2, HOLES[4]: 2}[hole]
    for variant, score in Scorer(model).score(hole).items():
        plan = oracle.plan(hole, variant)
        ids = spelled(plan, hole.middle.encode(), n_word)
        match variant.healing:
            case "off":
                expected = oracle.product(plan.kept_ids, ids)
            case "recursive":
                expected = oracle.recursive(plan, ids)
            case "exact":
                evidence = oracle.evidence(plan.kept_ids, plan.pending, plan.left_ids)
                expected = oracle.product(plan.kept_ids, ids) / evidence
        assert score.word == pytest.approx(math.log2(expected), abs=2e-4), variant
        assert score.line <= score.word + 1e-9


def test_every_variant_of_the_family_is_scored_and_no_other(engine: ScriptedEngine) -> None:
    names = [str(variant) for variant in Scorer(model_of(engine)).variants]
    assert names == [
        "psm keep off",
        "psm move recursive",
        "psm move exact",
        *(f"{layout} {level}" for layout in ("anchor", "spm") for level in LEVELS),
    ]
    unable = Scorer(model_of(engine, exact=False)).variants
    assert all(variant.healing != "exact" for variant in unable)


LEVELS = ("off", "recursive", "exact")


def test_a_hole_is_scored_alike_cold_and_warm(engine: ScriptedEngine) -> None:
    scorer = Scorer(model_of(engine))
    cold = [scorer.score(hole) for hole in HOLES]
    n_cold = engine.n_evaluated
    assert [scorer.score(hole) for hole in HOLES] == cold
    assert engine.n_evaluated - n_cold < n_cold


def test_variants_of_one_prompt_share_its_evaluation(engine: ScriptedEngine) -> None:
    hole = Hole("const x = ()\n" * 20 + "return userNa", "me", "\n" + "x = ()\n" * 20)
    model = model_of(engine)
    scorer, oracle = Scorer(model), Oracle(model)
    scorer.score(hole)
    prompts = {variant.place: oracle.plan(hole, variant).kept_ids for variant in scorer.variants}
    assert engine.n_evaluated < sum(map(len, prompts.values())) + 200


def test_what_the_model_would_write_is_a_match() -> None:
    hole = Hole("const userNa", "me = x()", "\nreturn x\n")
    plan = Oracle(model_of(ScriptedEngine(VOCABULARY, toy_encode, lambda _: NO_LOGITS))).plan(
        hole, Variant("spm", None, "exact")
    )
    before = b"".join(map(VOCABULARY.bytes_of, plan.kept_ids))
    text = before + plan.pending + hole.middle.encode()
    engine = ScriptedEngine(VOCABULARY, toy_encode, speaking_model(VOCABULARY, text))
    matches = Scorer(model_of(engine)).matches(hole)
    assert matches[Variant("spm", None, "exact")]
    assert not matches[Variant("psm", "keep", "off")]


NO_LOGITS = np.zeros(len(PIECES) + len(SPECIALS) + 3, np.float32)


def test_what_a_variant_rules_out_has_a_floor(engine: ScriptedEngine) -> None:
    for scores in map(Scorer(model_of(engine)).score, HOLES):
        assert all(FLOOR <= score.line <= score.word <= 0.0 for score in scores.values())


def test_a_hole_without_text_is_refused(engine: ScriptedEngine) -> None:
    with pytest.raises(UnspelledHole, match="spell"):
        Scorer(model_of(engine)).score(Hole("x", "", "y"))


def test_a_model_without_sentinels_is_refused(engine: ScriptedEngine) -> None:
    model = model_of(engine)
    without = LoadedModel(engine, None, model.budget, model.codec, model.coverings)
    with pytest.raises(InfillUnsupported):
        Scorer(without)


def test_the_shipped_holes_are_the_same_every_time_and_mostly_inside_words() -> None:
    holes = own_holes(48)
    assert holes == own_holes(48) != own_holes(48, seed=1)
    assert len(holes) == 48 and all(hole.middle for hole in holes)
    inside = [h for h in holes if (h.prefix[-1] + h.middle[0]).replace("_", "a").isalpha()]
    assert len(inside) > 30


def test_a_choice_can_be_made_of_scores(engine: ScriptedEngine) -> None:
    scorer = Scorer(model_of(engine))
    scores = [scorer.score(hole) for hole in HOLES]
    assert choose({v: [score[v] for score in scores] for v in scorer.variants}).taken
