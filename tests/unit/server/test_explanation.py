"""What an explanation is put together from, against the posterior that it is of."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.toy import toy_budget, toy_encode, toy_vocabulary
from suture.healing import CanonicalPairs, Posterior, cover_tree, log_softmax_row
from suture.server.diagnoses import SENTENCES, Facts, diagnose
from suture.server.engine.scripted import random_model
from suture.server.explanation import (
    Tried,
    asked_method,
    explain,
    explain_covers,
    trials,
)
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import (
    CompletionRequest,
    CompletionResult,
    HealingLevel,
    HealingReport,
    PromptReport,
    SamplingParams,
)

VOCABULARY = toy_vocabulary()
PAIRS = CanonicalPairs(VOCABULARY, toy_encode)
FAMILY = detect_family(VOCABULARY, "toy")


def posterior(pending: bytes, seed: int = 0) -> Posterior:
    tree = cover_tree(pending, (), VOCABULARY, PAIRS)
    model = random_model(VOCABULARY.n_vocab, seed)
    rows = {node: log_softmax_row(model(tree.path(node))) for node in tree.wants}
    return Posterior(tree, rows, VOCABULARY, PAIRS, VOCABULARY.eog_ids)


def planned(request: CompletionRequest) -> PromptPlan:
    return plan_prompt(request, VOCABULARY, FAMILY, toy_encode, toy_budget())


def result_of(plan: PromptPlan, level: HealingLevel | None = None) -> CompletionResult:
    report = HealingReport(level=level or plan.level, pending=plan.pending)
    return CompletionResult("eos", healing=report, prompt=PromptReport(reused=3))


def codes(
    request: CompletionRequest,
    stable_pending: bytes | None,
    level: HealingLevel | None = None,
    *,
    heals: bool = True,
    log_evidence: float | None = None,
    tv_bound: float = 0.0,
) -> dict[str, bool]:
    """Each code that is found, and whether it is healed."""
    plan = planned(request)
    facts = Facts(request, plan, level or plan.level, stable_pending, heals, log_evidence, tv_bound)
    return {one.code: one.is_healed for one in diagnose(facts)}


@pytest.mark.parametrize("pending", [b"userNa", b" userNa", b"re", b" nump", b"\n", b"x"])
def test_shares_are_those_of_the_posterior_and_add_up_to_one(pending: bytes) -> None:
    covers = explain_covers(posterior(pending), VOCABULARY)
    expected = posterior(pending)
    every = expected.ask_best(len(expected))
    weights = np.exp(expected.log_weights[every] - expected.log_evidence)
    assert [share.probability for share in covers.best] == pytest.approx(
        weights[: len(covers.best)].tolist(), abs=1e-4
    )
    total = sum(share.probability for share in covers.best) + covers.others
    assert total == pytest.approx(1.0, abs=1e-9)
    assert covers.tv_bound == pytest.approx(expected.draw_bound, abs=1e-4)
    for share in covers.best:
        spelled = b"".join(token.piece for token in share.tokens)
        assert spelled == pending + share.overhang
        assert share.is_exact_end == (not share.overhang) == bool(share.following)
        assert sum(one.probability for one in share.following) <= 1.0 + 1e-9


def test_nodes_stand_behind_their_parents_with_the_probability_of_their_path() -> None:
    covers = explain_covers(posterior(b"userNa"), VOCABULARY)
    for number, node in enumerate(covers.nodes):
        assert -1 <= node.parent < number
        before = covers.nodes[node.parent].probability if node.parent >= 0 else 1.0
        assert 0 < node.probability <= before


def test_the_asked_method_runs_first_and_each_is_greedy_and_alone() -> None:
    sampling = SamplingParams(temperature=0.8, repeat_penalty=1.1)
    request = CompletionRequest("x", n=4, seq=3, session="s", max_tokens=4096, sampling=sampling)
    for healing, give_back, asked in (
        ("exact", None, "exact"),
        ("recursive", None, "recursive"),
        ("recursive", 1, "drop_one"),
        ("off", None, "off"),
        ("exact", 1, "exact"),
    ):
        given = replace(request, healing=healing, give_back=give_back)  # type: ignore[arg-type]
        assert asked_method(given) == asked
        tried = trials(given)
        assert next(iter(tried)) == asked and len(tried) == 4
        chosen = tried[asked]
        assert (chosen.healing, chosen.give_back) == (healing, give_back)
        for trial in tried.values():
            assert (trial.n, trial.seq, trial.max_tokens) == (1, None, 4096)
            assert trial.sampling == replace(sampling, temperature=0.0)
    assert trials(replace(request, max_tokens=0))["exact"].max_tokens == 1


def test_the_boundary_and_the_map_say_what_the_plan_does() -> None:
    request = CompletionRequest("é" * 40 + "\nconst userNa", "é" * 20)
    tried = {
        name: Tried(plan, "me", result_of(plan))
        for name, plan in ((name, planned(trial)) for name, trial in trials(request).items())
    }
    typed_ids = toy_encode(request.prefix.encode())
    told = explain(request, tried, None, typed_ids, b" userNa", VOCABULARY, True)
    boundary = told.boundary
    assert [token.name for token in boundary.typed] == ["\n", "const", " user", "Na"]
    assert [token.name for token in boundary.kept] == ["\n", "const"]
    assert (boundary.pending, boundary.dropped_tokens) == (b" userNa", 2)
    assert boundary.before.decode().endswith("é\nconst userNa") and len(boundary.before) <= 48
    assert boundary.after == ("é" * 12).encode()
    assert [method.name for method in told.methods] == ["off", "drop_one", "recursive", "exact"]
    assert told.asked.name == "exact" and told.asked.text == "me"
    assert sum(one.n_tokens for one in told.prompt.segments) == told.prompt.n_tokens
    assert sum(one.n_reused for one in told.prompt.segments) == told.prompt.n_reused == 3


def test_what_is_healed_needs_no_cure() -> None:
    assert codes(CompletionRequest("const userNa"), b" userNa") == {"INSIDE_WORD": True}
    assert codes(CompletionRequest("const "), b" ") == {"TRAILING_BLANK": True}
    assert codes(CompletionRequest("x\n"), b"\n") == {"OPEN_TOKEN": True}
    assert codes(CompletionRequest("const x;"), b"") == {}
    assert codes(CompletionRequest(""), b"") == {}


def test_what_keeps_an_end_from_being_healed_is_named() -> None:
    word = CompletionRequest("const userNa")
    off = replace(word, healing="off")
    assert codes(off, b" userNa") == {"INSIDE_WORD": False, "HEALING_OFF": False}
    hole = replace(word, suffix=";\n", infill=True)
    kept = replace(hole, fim_boundary="keep")
    assert codes(kept, b" userNa") == {"INSIDE_WORD": False, "BEHIND_SENTINEL": False}
    moved = replace(hole, fim_boundary="move")
    assert codes(moved, b" userNa") == {"INSIDE_WORD": True}
    assert codes(word, None, "none") == {"INSIDE_WORD": False, "UNSPELLABLE": False}
    assert codes(word, b"a", "none", heals=False) == {"INSIDE_WORD": False, "NO_BYTES": False}
    assert codes(word, b" userNa", "none") == {"INSIDE_WORD": False, "HEALING_DROPPED": False}
    short = replace(word, give_back=1)
    assert codes(short, b" userNa") == {"INSIDE_WORD": True, "GIVE_BACK_SHORT": False}


def test_what_the_numbers_say_is_named() -> None:
    clean = CompletionRequest("x;")
    assert codes(clean, b"", log_evidence=math.log(1e-6)) == {"UNLIKELY_TEXT": False}
    assert codes(clean, b"", tv_bound=0.2) == {"BOUNDED": False}
    assert codes(clean, b"", "recursive") == {"NOT_EXACT": False}
    assert codes(clean, b"", log_evidence=-1.0, tv_bound=0.01) == {}


@pytest.mark.parametrize(
    ("prefix", "suffix", "code"),
    [
        ("get", "Name()", "WORD_AFTER_CURSOR"),
        ("Not ", "qual", "WORD_BEGINS_AT_CURSOR"),
        ("", "qual", "WORD_BEGINS_AT_CURSOR"),
        ("e", "\u0301 x", "INSIDE_CHARACTER"),
        ("👩", "\u200d🔬", "INSIDE_CHARACTER"),
        ("👩\u200d", "🔬", "INSIDE_CHARACTER"),
        ("x;\r", "\ny", "BETWEEN_CR_AND_LF"),
    ],
)
def test_a_cursor_inside_something_is_named(prefix: str, suffix: str, code: str) -> None:
    assert codes(CompletionRequest(prefix, suffix), b"") == {code: False}
    assert codes(CompletionRequest(prefix, ""), b"") == {}


def test_each_finding_is_a_sentence_with_a_cure() -> None:
    for found, cure in SENTENCES.values():
        assert found.endswith(".") and cure.endswith(".")
        assert len(found) < 100 and len(cure) < 130


def test_every_diagnosis_is_documented_with_its_words() -> None:
    text = Path(__file__).parents[3].joinpath("docs", "http.md").read_text("utf-8")
    for code, (found, cure) in SENTENCES.items():
        assert f"| `{code}` | {found} | {cure} |" in text
