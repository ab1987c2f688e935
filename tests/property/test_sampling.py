"""The samplers against what they mean, computed slowly: on whole rows, where they pick first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from suture.healing.vocabulary import TokenIds
from suture.server.decoding import candidates as cut
from suture.server.decoding.candidates import Candidates
from suture.server.decoding.repetition import repeat_lengths
from suture.server.decoding.sampling import Sampler
from suture.server.request import SAMPLERS, SamplingParams

SHARES = st.floats(0, 1)


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """Short ones and long ones, flat and peaked, with bans and with equals."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.sampled_from([1, 2, 5, 100, 3000]))
    row = rng.standard_normal(n) * draw(st.sampled_from([0.0, 0.1, 2.0, 6.0]))
    if draw(st.booleans()):
        row = np.round(row)
    row[rng.random(n) < draw(st.sampled_from([0.0, 0.5]))] = -np.inf
    row[rng.integers(n)] = draw(st.sampled_from([0.0, 5.0, 20.0]))
    return row.astype(np.float32)


def probabilities(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row.astype(np.float64) - row.max())
    return np.asarray(weights / weights.sum())


def ids(left: Candidates) -> list[int]:
    return sorted(left.id_at(i) for i in range(len(left)))


def best_first(row: np.ndarray) -> np.ndarray:
    return np.argsort(-row, kind="stable")


@given(rows(), st.integers(1, 4000))
def test_top_k_is_the_head_of_the_sorted_row(row: np.ndarray, k: int) -> None:
    assert ids(cut.top_k(Candidates(row), k)) == sorted(best_first(row)[:k].tolist())


@given(rows(), SHARES, st.integers(0, 20))
def test_top_p_is_the_head_that_reaches_it(row: np.ndarray, p: float, min_keep: int) -> None:
    order = best_first(row)
    n = len(ids(left := cut.top_p(Candidates(row), p, min_keep)))
    assert ids(left) == sorted(order[:n].tolist())
    reached = np.cumsum(probabilities(row)[order])
    assert n == len(row) or reached[n - 1] >= p - 1e-5
    assert n <= max(min_keep, 1) or reached[n - 2] <= p + 1e-5


@given(rows(), st.floats(0.001, 1))
def test_min_p_is_what_the_best_times_it_is_reached_by(row: np.ndarray, p: float) -> None:
    found = set(ids(cut.min_p(Candidates(row), p)))
    all_p = probabilities(row)
    assert {i for i in range(len(row)) if all_p[i] > 1.0001 * p * all_p.max()} <= found
    assert found <= {i for i in range(len(row)) if all_p[i] > 0.9999 * p * all_p.max()}


@given(rows(), st.floats(0.01, 0.5))
def test_xtc_leaves_the_least_of_the_likely_and_all_others(row: np.ndarray, t: float) -> None:
    assume(np.abs(probabilities(row) - t).min() > 1e-5)
    found = ids(cut.xtc(Candidates(row), t))
    likely = np.flatnonzero(probabilities(row) >= t)
    assert len(found) == len(row) - max(len(likely) - 1, 0)
    kept = [i for i in likely.tolist() if i in found]
    assert not kept or row[kept].max() == row[likely].min()


@settings(max_examples=30)
@given(rows(), st.integers(0, 2**32 - 1))
def test_draws_follow_the_softmax_over_blocks_too(row: np.ndarray, seed: int) -> None:
    uniform = np.random.default_rng(seed).random(2000)
    drawn = [cut.draw(Candidates(row), u) for u in uniform]
    assert np.isfinite(row[drawn]).all()
    groups = np.arange(len(row)) % 5
    found = np.bincount(groups[drawn], minlength=5) / len(drawn)
    expected = np.bincount(groups, weights=probabilities(row), minlength=5)
    assert np.abs(found - expected).max() < 0.08


@given(rows(), st.sampled_from([0.0, 0.5, 1 - 2**-53]))
def test_no_share_draws_what_is_banned(row: np.ndarray, share: float) -> None:
    assert np.isfinite(row[cut.draw(Candidates(row), share)])


@given(
    rows(),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 1e-5, 0.8, 1.0, 1e6]),
        top_k=st.integers(0, 50),
        top_p=SHARES,
        min_p=SHARES,
        typical_p=SHARES,
        top_n_sigma=st.floats(-1, 5),
        xtc_probability=SHARES,
        xtc_threshold=st.just(0.0) | SHARES,
        dynatemp_range=st.floats(0, 3),
        dynatemp_exponent=st.floats(0, 1e6),
        min_keep=st.integers(0, 200),
        repeat_penalty=st.sampled_from([1e-6, 1.0, 1.2, 1e6]),
        frequency_penalty=st.floats(-1e30, 1e30),
        dry_multiplier=st.sampled_from([0.0, 0.8, 1e30, -1e30]),
        dry_base=st.sampled_from([1.0, 1.75, 1e30]),
        dry_allowed_length=st.integers(0, 3),
        samplers=st.lists(st.sampled_from(SAMPLERS), unique=True).map(tuple),
        seed=st.integers(0, 2**32 - 1),
    ),
    st.lists(st.integers(0, 4), max_size=20),
)
def test_any_parameters_draw_a_token_that_is_not_banned(
    row: np.ndarray, params: SamplingParams, history: list[int]
) -> None:
    history = [i for i in history if i < len(row)]
    banned = ~np.isfinite(row)
    assert not banned[Sampler(params).pick(row, history=history)]


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 4), st.integers(0, 4))
def test_repeats_are_the_longest_ones_after_the_last_breaker(
    text: list[int], min_length: int, breaker: int
) -> None:
    found = repeat_lengths(np.array(text, np.int64), min_length, {breaker: [()]})
    n_after = text[::-1].index(breaker) if breaker in text else len(text)
    expected: dict[int, int] = {}
    for end in range(1, len(text)):
        n = 0
        while n < min(end, n_after) and text[end - 1 - n] == text[-1 - n]:
            n += 1
        if n >= min_length:
            expected[text[end]] = max(expected.get(text[end], 0), n)
    assert found == (expected if n_after >= min_length < len(text) else {})


def test_a_seed_fixes_the_draws() -> None:
    row = np.random.default_rng(3).standard_normal(3000).astype(np.float32)
    params = SamplingParams(temperature=1.0, xtc_probability=0.5, xtc_threshold=0.001, seed=4)
    first, again = ([s.pick(row) for _ in range(20)] for s in (Sampler(params), Sampler(params)))
    assert first == again and len(set(first)) > 10


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_a_constraint_leaves_is_all_there_is(temperature: float) -> None:
    row = np.zeros(3000, np.float32)
    row[7] = 50.0
    sampler = Sampler(SamplingParams(temperature=temperature, top_k=1, repeat_penalty=2.0, seed=1))
    allowed: TokenIds = np.array([900, 40, 2000], np.intp)
    assert sampler.pick(row[allowed.tolist()], allowed, history=[40]) == 900
