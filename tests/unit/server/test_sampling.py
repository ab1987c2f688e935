"""Drawing a token: order of the steps, distribution, edge cases."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.healing import Vocabulary
from suture.server.decoding.candidates import Candidates
from suture.server.decoding.repetition import avoid_repetition, penalize, sequence_breakers
from suture.server.decoding.sampling import Sampler, log_probability
from suture.server.request import SamplingParams

ROW = np.array([0.0, 3.0, 1.0, 2.9, -5.0], np.float32)


def draws(params: SamplingParams, row: np.ndarray = ROW, n: int = 4000) -> np.ndarray:
    sampler = Sampler(params)
    return np.bincount([sampler.pick(row.copy()) for _ in range(n)], minlength=len(row)) / n


def softmax(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row - row.max())
    return np.asarray(weights / weights.sum())


def test_greedy_takes_the_best_and_the_lower_id_of_equals() -> None:
    assert Sampler(SamplingParams()).pick(ROW.copy()) == 1
    assert Sampler(SamplingParams()).pick(np.array([1.0, 7.0, 7.0], np.float32)) == 1


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax_at_a_temperature(temperature: float) -> None:
    found = draws(SamplingParams(temperature=temperature, seed=1))
    assert np.abs(found - softmax(ROW / temperature)).max() < 0.03


def test_top_k_keeps_the_k_best() -> None:
    found = draws(SamplingParams(temperature=2.0, top_k=2, seed=1))
    assert set(np.flatnonzero(found)) == {1, 3}


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    first_two = softmax(ROW)[[1, 3]].sum()
    found = draws(SamplingParams(temperature=1.0, top_p=float(first_two) - 0.01, seed=1))
    assert set(np.flatnonzero(found)) == {1, 3}


def test_min_p_is_relative_to_the_best() -> None:
    found = draws(SamplingParams(temperature=1.0, min_p=0.5, seed=1))
    assert set(np.flatnonzero(found)) == {1, 3}


def test_truncation_comes_before_temperature_as_in_llama_cpp() -> None:
    found = draws(SamplingParams(temperature=100.0, min_p=0.5, seed=1))
    assert set(np.flatnonzero(found)) == {1, 3}


def test_a_constraint_comes_before_truncation() -> None:
    ids = np.array([0, 4], np.intp)
    sampler = Sampler(SamplingParams(temperature=1.0, top_k=1, seed=1))
    assert sampler.pick(ROW[ids], ids) == 0


def test_biases_and_bans() -> None:
    sampler = Sampler(SamplingParams(logit_bias=((1, -100.0), (2, 1.0))), banned_ids=[3])
    row = ROW.copy()
    sampler.adjust(row, also_banned=[0])
    assert np.array_equal(np.isinf(row), [True, False, False, True, False])
    assert sampler.pick(row) == 2


def test_penalties_weigh_the_last_tokens_only() -> None:
    params = SamplingParams(repeat_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    left = penalize(Candidates(ROW), [1, 4, 4], params)
    assert left.logits == pytest.approx([0.0, 3 / 2 - 0.75, 1.0, 2.9, -5 * 2 - 1.0])
    left = penalize(Candidates(ROW), [1, 3], SamplingParams(repeat_penalty=2.0, repeat_last_n=1))
    assert left.logits == pytest.approx([0.0, 3.0, 1.0, 2.9 / 2, -5.0])


def test_penalties_come_where_they_are_listed() -> None:
    params = SamplingParams(top_k=1, repeat_penalty=10.0)
    assert Sampler(params).pick(ROW, history=[1]) == 3
    listed = ("top_k", "penalties", "temperature")
    after = replace(params, samplers=listed, temperature=1.0)
    assert Sampler(after).pick(ROW, history=[1]) == 1


def test_banning_everything_that_healing_needs_still_draws_it() -> None:
    banned = np.full(2, -np.inf, np.float32)
    sampler = Sampler(SamplingParams(temperature=1.0, top_p=0.9, seed=1))
    assert sampler.pick(banned, np.array([7, 9], np.int32)) in (7, 9)


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40),
    st.floats(0, 5),
    st.integers(0, 50),
    st.floats(0.01, 1),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_any_row_and_parameters_give_a_token(
    row: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    params = SamplingParams(temperature, top_k, top_p, min_p, seed=seed)
    logits = np.array(row, np.float32)
    assert 0 <= Sampler(params).pick(logits) < len(row)


def test_log_probability_is_the_softmaxs() -> None:
    expected = np.log(softmax(ROW.astype(np.float64)))
    assert [log_probability(ROW, i) for i in range(5)] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_v1_xtc_never_leaves_a_banned_token(seed: int) -> None:
    row = np.array([-np.inf, 1, 2, 3], np.float32)
    params = SamplingParams(temperature=1.0, xtc_probability=1.0, xtc_threshold=0.0, seed=seed)
    assert Sampler(params).pick(row) == 1


def test_dry_keeps_every_logit_a_number() -> None:
    row = np.array([-np.inf, 1, 2, 3], np.float32)
    history = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    for multiplier in (-1e30, 1e30):
        params = SamplingParams(dry_multiplier=multiplier, dry_base=1e30)
        left = avoid_repetition(Candidates(row), history, params, {})
        assert not np.isnan(left.logits).any() and left.logits.max() < np.inf
        assert Sampler(params).pick(row, history=history) == 3


def test_a_greedy_chain_keeps_what_stands_before_penalties() -> None:
    row = np.array([0, 1, 2, 3], np.float32)
    params = SamplingParams(top_k=1, repeat_penalty=1e6)
    for names in (("top_k", "penalties", "temperature"), ("temperature", "penalties")):
        assert Sampler(replace(params, samplers=names)).pick(row, history=[3]) == 3
    assert Sampler(params).pick(row, history=[3]) == 2


@pytest.mark.parametrize("base", [1.0, 1.75])
def test_dry_looks_at_a_text_of_one_token_a_bounded_number_of_times(base: float) -> None:
    params = SamplingParams(dry_multiplier=1.0, dry_base=base)
    row = np.zeros(3, np.float32)
    started = time.thread_time()
    left = avoid_repetition(Candidates(row), [1] * 50_000, params, {})
    assert time.thread_time() - started < 2.0
    assert left.logits[1] < 0 == left.logits[0]


def test_the_rest_of_a_breaker_is_tokenized_once_for_each_beginning_of_it() -> None:
    encoded: list[bytes] = []

    def encode(text: bytes) -> list[int]:
        encoded.append(text)
        return list(text)

    vocabulary = Vocabulary([*(bytes([i]) for i in range(256)), b"xa", b"ya", b"za", b"zab"])
    breakers = sequence_breakers(("abc",), vocabulary, encode)
    assert sorted(encoded) == [b"bc", b"c"]
    assert breakers[256] == breakers[257] == [(ord("b"), ord("c"))]
    assert breakers[259] == [(ord("c"),)]
