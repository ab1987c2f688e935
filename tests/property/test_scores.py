"""The scores of a text's tokens: their sum against enumeration, and which tokens have one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.answering import answered, answering_model, hesitating_model
from support.driving import chunks_of, whole
from support.toy import toy_encode, toy_generation, toy_vocabulary
from suture.healing import CanonicalPairs, log_softmax_row, reference
from suture.server.codec import DetokenizerName
from suture.server.decoding.drafts import DraftWidth
from suture.server.decoding.generation import Generation
from suture.server.decoding.step_costs import StepCosts
from suture.server.engine.scripted import Model, ScriptedEngine, random_model
from suture.server.prompt.plan import PromptPlan
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    SamplingParams,
    ScoredToken,
)

VOCABULARY = toy_vocabulary()
PAIRS = CanonicalPairs(VOCABULARY, toy_encode)
PREFIXES = [
    "const userNa",
    ";\n    ret",
    "def return    x us",
    "import nump",
    "def x;",
    "",
    "éà ☕",
]
Path = tuple[int, ...]


class Told:
    """All that a generation has said."""

    def __init__(self, generation: Generation, model: Model) -> None:
        engine = ScriptedEngine(VOCABULARY, toy_encode, model)
        self.chunks: list[CompletionChunk] = list(chunks_of(generation, engine))
        self.plan: PromptPlan = generation.plan
        self.text = "".join(chunk.text for chunk in self.chunks)
        self.ids = tuple(i for chunk in self.chunks for i in chunk.token_ids)
        self.scores = [score for chunk in self.chunks for score in chunk.scores]
        last = self.chunks[-1].result
        assert last is not None
        self.result: CompletionResult = last

    @property
    def total(self) -> float:
        return sum(score.logprob for score in self.scores)


def told(request: CompletionRequest, model: Model, detokenizer: DetokenizerName = "bytes") -> Told:
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    return Told(toy_generation(request, engine, detokenizer), model)


def sampled(request: CompletionRequest, seed: int, temperature: float) -> CompletionRequest:
    sampling = SamplingParams(temperature=temperature, seed=seed)
    return replace(request, sampling=sampling, n_probs=0, shape="raw", ignore_eos=True)


def joint(model: Model, prompt: Sequence[int], ids: Sequence[int]) -> float:
    """The log probability of tokens, one by one."""
    return sum(
        float(log_softmax_row(model([*prompt, *ids[:n]]))[token_id])
        for n, token_id in enumerate(ids)
    )


def log_evidence(model: Model, plan: PromptPlan, end_ids: Collection[int]) -> float:
    """By enumeration of all covers."""

    def may_begin(path: Path) -> bool:
        ids = (*plan.left_ids, *path)
        n_left = len(plan.left_ids)
        return all(PAIRS.extends(ids[:n], ids[n]) for n in range(n_left, len(ids)))

    def log_prob(path: Path, token_id: int) -> float:
        return float(log_softmax_row(model([*plan.kept_ids, *path]))[token_id])

    masses = reference.cover_masses(plan.pending, VOCABULARY, may_begin, log_prob, end_ids)
    return math.log(sum(masses.values()))


@settings(max_examples=30)
@given(st.sampled_from(PREFIXES), st.integers(0, 999), st.sampled_from([0.0, 1.0]))
def test_c1_the_scores_add_up_to_the_texts_probability_given_the_bytes(
    prefix: str, seed: int, temperature: float
) -> None:
    model = random_model(VOCABULARY.n_vocab, seed)
    answer = told(sampled(CompletionRequest(prefix, max_tokens=4), seed, temperature), model)
    plan = answer.plan
    total = joint(model, plan.kept_ids, answer.ids)
    if answer.result.healing.level == "exact":
        # The ends are banned, and are in the model's own rows all the same.
        evidence = log_evidence(model, plan, ())
        assert answer.result.healing.log_evidence == pytest.approx(evidence, abs=1e-5)
        total -= evidence
    else:
        # Nothing crosses: as without healing.
        n_again = len(plan.pending)
        said = 0
        for n, token_id in enumerate(answer.ids):
            if said == n_again:
                total = joint(model, [*plan.kept_ids, *answer.ids[:n]], answer.ids[n:])
                break
            said += len(VOCABULARY.bytes_of(token_id))
    assert answer.total == pytest.approx(total, abs=1e-4)
    assert len(answer.scores) == answer.result.completion_tokens == 4


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_scores_are_the_models_own_whatever_is_done_to_draw(temperature: float) -> None:
    sampling = SamplingParams(
        temperature=temperature,
        seed=3,
        logit_bias=((ord("z"), 8.0), (257, -2.0)),
        repeat_penalty=1.5,
        top_k=10,
    )
    n_exact = 0
    for seed in range(20):
        model = random_model(VOCABULARY.n_vocab, seed)
        request = CompletionRequest("const userNa", max_tokens=3, n_probs=0, shape="raw")
        request = replace(request, sampling=sampling, ignore_eos=True)
        answer = told(request, model)
        n_exact += answer.result.healing.level == "exact"
        total = joint(model, answer.plan.kept_ids, answer.ids)
        total -= log_evidence(model, answer.plan, ())
        assert answer.total == pytest.approx(total, abs=1e-4)
    assert n_exact == 20


def test_c4_a_grammar_changes_what_is_drawn_and_no_score() -> None:
    model = random_model(VOCABULARY.n_vocab, 7)
    # Only an exact end goes on with this.
    request = CompletionRequest(
        "const userNa", max_tokens=4, n_probs=0, shape="raw", grammar='root ::= "QQ"'
    )
    answer = told(request, model)
    assert (answer.text, answer.result.healing.level) == ("QQ", "exact")
    # The end has no text, and so no score.
    said, ends = answer.ids[:-1], VOCABULARY.eog_ids | answer.plan.stop_ids
    total = joint(model, answer.plan.kept_ids, said) - log_evidence(model, answer.plan, ends)
    assert answer.total == pytest.approx(total, abs=1e-4)
    assert [score.piece for score in answer.scores] == [b"Q", b"Q"]


@settings(max_examples=30)
@given(st.sampled_from(PREFIXES), st.integers(0, 999), st.sampled_from([0.0, 1.0]))
def test_h4_each_new_token_has_a_score_and_its_own_bytes_past_the_cursor(
    prefix: str, seed: int, temperature: float
) -> None:
    model = random_model(VOCABULARY.n_vocab, seed)
    for healing in ("exact", "recursive", "off"):
        request = CompletionRequest(prefix, max_tokens=6, healing=healing)
        answer = told(sampled(request, seed, temperature), model)
        said = b"".join(map(VOCABULARY.bytes_of, answer.ids))
        pending = b"" if healing == "off" else answer.plan.pending
        assert b"".join(score.piece for score in answer.scores) == said.removeprefix(pending)
        assert [score.token_id for score in answer.scores] == list(
            answer.ids[len(answer.ids) - len(answer.scores) :]
        )
        assert len(answer.scores) == answer.result.completion_tokens
        offsets = [score.offset for score in answer.scores]
        assert offsets == sorted(offsets) and max(offsets) < len(answer.text)
        assert answer.result.confidence == pytest.approx(
            math.exp(answer.total / len(answer.scores))
        )


def test_the_recursive_rule_is_scored_as_it_draws() -> None:
    """Among the tokens that it allows; what says nothing new counts with what comes next."""
    for seed in range(20):
        model = random_model(VOCABULARY.n_vocab, seed)
        request = CompletionRequest("const userNa", max_tokens=2, healing="recursive")
        answer = told(sampled(request, seed, 1.0), model)
        expected, pending = 0.0, answer.plan.pending
        for n, token_id in enumerate(answer.ids):
            row = model([*answer.plan.kept_ids, *answer.ids[:n]])
            if pending:
                pieces = list(map(VOCABULARY.bytes_of, range(VOCABULARY.n_vocab)))
                allowed = [
                    i
                    for i, piece in enumerate(pieces)
                    if piece and (piece.startswith(pending) or pending.startswith(piece))
                ]
                # No token of the toy's leaves something that no other one says.
                expected += float(row[token_id]) - np.logaddexp.reduce(row[allowed])
                pending = pending[len(pieces[token_id]) :]
            else:
                expected += float(log_softmax_row(row)[token_id])
        assert answer.total == pytest.approx(expected, abs=1e-4)


@settings(max_examples=20)
@given(st.sampled_from(PREFIXES), st.integers(0, 999))
def test_the_best_alternatives_are_the_best_of_all(prefix: str, seed: int) -> None:
    model = random_model(VOCABULARY.n_vocab, seed)
    request = sampled(CompletionRequest(prefix, max_tokens=3), seed, 0.0)
    answer = told(replace(request, n_probs=5), model)
    for n, score in enumerate(answer.scores):
        logprobs = [one.logprob for one in score.top]
        assert len(logprobs) == 5 and logprobs == sorted(logprobs, reverse=True)
        assert score.logprob <= logprobs[0] + 1e-6
        if n:
            so_far = answer.ids[: len(answer.ids) - len(answer.scores) + n]
            row = log_softmax_row(model([*answer.plan.kept_ids, *so_far]))
            assert logprobs == pytest.approx(sorted(row.tolist(), reverse=True)[:5])


def test_c1_the_alternatives_at_the_cursor_are_covers_with_their_probabilities() -> None:
    model = random_model(VOCABULARY.n_vocab, 5)
    request = replace(sampled(CompletionRequest("const userNa", max_tokens=1), 0, 0.0), n_probs=100)
    answer = told(request, model)
    [score] = answer.scores
    # A hundred of them are nearly all.
    assert 0.9 < sum(math.exp(one.logprob) for one in score.top) <= 1.0 + 1e-5
    assert (score.token_id, score.piece) in {(one.token_id, one.piece) for one in score.top}


def same_bytes(text: str, scores: Sequence[ScoredToken]) -> bool:
    """Whether the text is what the tokens say, but for what the last one says behind it."""
    said = b"".join(score.piece for score in scores)
    before = b"".join(score.piece for score in scores[:-1])
    return said.startswith(text.encode()) and len(before) < max(1, len(text.encode()))


HOLE = CompletionRequest(
    "def f(w, h):\n    x = ", "\n    return x\n\nprint(f)\n", infill=True, max_tokens=60, n_probs=0
)


@pytest.mark.parametrize("detokenizer", ["bytes", "window"])
@pytest.mark.parametrize(
    ("request_", "says", "text"),
    [
        (HOLE, "w * h\n    y = x\n    return x\n\nprint(f)\n", "w * h\n    y = x"),
        (replace(HOLE, shape="line"), "w * h\n    y = x", "w * h"),
        (replace(HOLE, stop=(" = ",)), "w * h\n    y = x", "w * h\n    y"),
        (replace(HOLE, stop=("return",)), "w * h # ☕ ret\n", "w * h # ☕ ret"),
        (replace(HOLE, stop=("return",), include_stop=True), "w return x", "w return"),
        (replace(HOLE, on_incomplete="drop", max_tokens=3), "w☕", "w"),
        (HOLE, "\n    return x\n\nprint(f)\n", ""),
    ],
)
def test_o5_what_is_left_out_has_no_scores(
    request_: CompletionRequest, says: str, text: str, detokenizer: DetokenizerName
) -> None:
    model = answering_model(request_, says)
    answer = told(request_, model, detokenizer)
    assert answer.text == text
    assert same_bytes(text, answer.scores)
    streamed = ""
    for chunk in answer.chunks:
        for score in chunk.scores:
            # Each comes with the chunk that has its first character.
            assert len(streamed) <= score.offset < len(streamed + chunk.text)
        streamed += chunk.text


def test_o5_line_ends_as_the_document_has_them_are_the_same_tokens() -> None:
    request = CompletionRequest("a = 1\r\nb = ", "\r\nc = 3\r\n", infill=True, n_probs=0)
    model = answering_model(request, "2\nd = 4")
    answer = told(request, model)
    assert answer.text == "2\r\nd = 4"
    assert b"".join(score.piece for score in answer.scores) == b"2\nd = 4"
    offset_of = {score.piece: score.offset for score in answer.scores}
    assert (offset_of[b"2"], offset_of[b"\n"], offset_of[b"d"]) == (0, 1, 3)


def test_without_text_the_tokens_are_scored_all_the_same() -> None:
    request = replace(HOLE, detokenize=False)
    answer = told(request, answering_model(request, "w * h"))
    assert b"".join(score.piece for score in answer.scores) == b"w * h"
    assert [score.token_id for score in answer.scores] == list(
        answer.ids[len(answer.ids) - len(answer.scores) - 1 : -1]
    )


class Always(DraftWidth):
    """Drafts all there is."""

    def best(self, n_matched: int, n_available: int) -> int:
        return n_available


def test_g1_drafted_tokens_have_the_scores_that_they_have_alone() -> None:
    request = replace(HOLE, n_probs=3)
    model = answering_model(request, "w * h + w * h + w * h")
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    expected = toy_encode(b"w * h + w * h")
    generation = toy_generation(request, engine, expected=expected)
    sequence, scores = engine.open(), list[ScoredToken]()
    width = Always(StepCosts())
    while not generation.finished:
        [rows] = engine.evaluate([(sequence, generation.tree(len(engine.tokens(sequence)), width))])
        chunk = generation.feed(rows)
        engine.commit(sequence, generation.kept)
        scores += chunk.scores if chunk is not None else ()
        result = chunk.result if chunk is not None else None
    assert result is not None and result.draft.accepted > 3
    assert scores == told(request, model).scores


# Confidence


def unsure_after(pattern: str, probability: float) -> Callable[[bytes], float]:
    """How sure a model is: much, but for what comes behind a pattern up to the line's end."""

    def of(so_far: bytes) -> float:
        line = re.search(pattern.encode() + rb"[^\n]*\Z", so_far)
        return probability if line else 0.95

    return of


def complete(request: CompletionRequest, model: Model) -> tuple[str, CompletionResult]:
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    return whole(toy_generation(request, engine), engine)


LINES = replace(HOLE, n_probs=None, min_confidence=0.5)


def test_low_confidence_leaves_nothing_and_says_how_sure_the_line_was() -> None:
    model = hesitating_model(
        answering_model(LINES, "w * h\n    y = 2"), unsure_after(r"(x = |print\(f\)\n)", 0.25)
    )
    text, result = complete(LINES, model)
    assert (text, result.reason, result.finish) == ("", "LOW_CONFIDENCE", "stop")
    assert result.rules == ("unsure",)
    assert result.confidence is not None and 0.2 < result.confidence < 0.5
    assert result.completion_tokens < 10
    text, result = complete(replace(LINES, min_confidence=0.2), model)
    assert (text, result.reason, result.rules) == ("w * h\n    y = 2", None, ())


def test_the_text_ends_before_a_line_that_the_model_is_unsure_of() -> None:
    model = hesitating_model(
        answering_model(LINES, "w * h\n    y = 2\n    z = 3"), unsure_after("    y", 0.2)
    )
    text, result = complete(LINES, model)
    assert (text, result.reason, result.finish) == ("w * h", None, "stop")
    assert result.rules == ("unsure",)
    assert result.confidence == pytest.approx(0.95, abs=1e-3)
    text, result = complete(replace(LINES, min_confidence=0.0), model)
    assert text == "w * h\n    y = 2\n    z = 3" and result.confidence is None
    raw, result = complete(replace(LINES, shape="raw"), model)
    assert raw == text and result.confidence is None


def test_several_candidates_say_how_sure_they_are() -> None:
    request = replace(HOLE, n_probs=None, n=2)
    model = hesitating_model(answering_model(request, "w * h"), lambda so_far: 0.9)
    text, result = complete(request, model)
    assert text == "w * h" and result.confidence == pytest.approx(0.9, abs=1e-3)
    assert answered(replace(request, n=1), "w * h")[1].confidence is None
