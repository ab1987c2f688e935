"""G1: drafted and not, a request gives the same tokens, text and end."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.toy import toy_encode, toy_generation, toy_vocabulary
from suture.server.decoding.drafts import DraftWidth
from suture.server.decoding.step_costs import StepCosts
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import Model, ScriptedEngine, speaking_model
from suture.server.request import CompletionRequest, CompletionResult, SamplingParams

VOCABULARY = toy_vocabulary()


class Always(DraftWidth):
    """Drafts all there is."""

    def best(self, n_matched: int, n_available: int) -> int:
        return n_available


def repetitive_model(seed: int) -> Model:
    """Its logits depend on the last two tokens only, so it soon repeats itself."""

    def logits(tokens: Sequence[int]) -> Logits:
        key = zlib.crc32(np.asarray(tokens[-2:], np.int64).tobytes(), seed)
        return np.random.default_rng(key).standard_normal(VOCABULARY.n_vocab).astype(np.float32) * 6

    return logits


def complete(
    model: Model,
    request: CompletionRequest,
    width: DraftWidth | None,
    expected: Sequence[int] = (),
) -> tuple[tuple[int, ...], str, CompletionResult, int]:
    """Ids, text, result and number of evaluations."""
    engine = ScriptedEngine(VOCABULARY, toy_encode, model)
    generation = toy_generation(request, engine, expected=expected)
    sequence = engine.open()
    ids: tuple[int, ...] = ()
    text, n_steps = "", 0
    while True:
        tree = generation.tree(len(engine.tokens(sequence)), width)
        [rows] = engine.evaluate([(sequence, tree)])
        chunk = generation.feed(rows)
        engine.commit(sequence, generation.kept)
        n_steps += 1
        if chunk is not None:
            ids, text = ids + chunk.token_ids, text + chunk.text
            if chunk.result is not None:
                committed = tuple(engine.tokens(sequence))
                assert committed == (*generation.prompt_ids, *ids)[: len(committed)]
                return ids, text, chunk.result, n_steps


requests = st.builds(
    CompletionRequest,
    st.sampled_from(["", "def x", "const userNa", "a = b\na = b\na =", "return" * 5]),
    max_tokens=st.integers(0, 60),
    min_tokens=st.integers(0, 8),
    stop=st.sampled_from([(), ("me",), ("\n",), ("x", "ret")]),
    include_stop=st.booleans(),
    ignore_eos=st.booleans(),
    stream_interval=st.sampled_from([1, 5]),
    sampling=st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.7]),
        repeat_penalty=st.sampled_from([1.0, 1.2]),
        seed=st.integers(0, 5),
    ),
)


@settings(max_examples=80, deadline=None)
@given(requests, st.integers(0, 20), st.integers(0, 9), st.integers(0, 9))
def test_g1_the_text_does_not_depend_on_what_is_expected(
    request: CompletionRequest, seed: int, n_right: int, n_wrong: int
) -> None:
    model = repetitive_model(seed)
    plain = complete(model, request, None)
    wrong = [VOCABULARY.n_vocab - 1 - n for n in range(n_wrong)]

    drafted = complete(model, request, Always(StepCosts()), [*plain[0][:n_right], *wrong])

    assert drafted[:2] == plain[:2]
    assert drafted[2].finish == plain[2].finish
    assert drafted[3] == plain[3] - drafted[2].draft.accepted


@settings(max_examples=150, deadline=None)
@given(requests, st.integers(0, 20))
def test_g1_the_text_does_not_depend_on_drafts(request: CompletionRequest, seed: int) -> None:
    model = repetitive_model(seed)

    plain = complete(model, request, None)
    drafted = complete(model, request, Always(StepCosts()))

    assert drafted[:2] == plain[:2]
    assert drafted[2].finish == plain[2].finish
    assert drafted[2].completion_tokens == plain[2].completion_tokens
    assert drafted[3] == plain[3] - drafted[2].draft.accepted


def test_a_text_that_repeats_what_is_there_takes_few_evaluations() -> None:
    body = b"    const user = me(x)\n    return x\n" * 3
    request = CompletionRequest(body.decode(), max_tokens=30, healing="off")
    model = speaking_model(VOCABULARY, body + body)

    _, text, result, n_steps = complete(model, request, DraftWidth(StepCosts()))

    assert text == complete(model, request, None)[1]
    assert result.completion_tokens == 30
    assert n_steps < 20
    assert result.draft.accepted == 30 - n_steps


@pytest.mark.parametrize("n", [1, 2, 3])
def test_drafts_do_not_run_over_the_limit(n: int) -> None:
    body = b"return x\n" * 6
    request = CompletionRequest(body.decode(), max_tokens=n, healing="off")

    ids, _, result, _ = complete(speaking_model(VOCABULARY, body * 2), request, Always(StepCosts()))

    assert (len(ids), result.finish) == (n, "length")
