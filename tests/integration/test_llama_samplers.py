"""Each sampler against llama.cpp's own: the same tokens are left, with the same logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support import llama_samplers
from support.llama_samplers import Row
from suture.server.decoding import candidates as cut
from suture.server.decoding.candidates import Candidates
from suture.server.decoding.repetition import (
    Breakers,
    avoid_repetition,
    penalize,
    sequence_breakers,
)
from suture.server.engine import libllama
from suture.server.engine.llama import LlamaEngine
from suture.server.request import SamplingParams

pytestmark = pytest.mark.model

GREEDY = SamplingParams()
SIZES = (2, 50, 3000)
CASES: dict[str, list[dict[str, Any]]] = {
    "top_k": [{"top_k": k} for k in (1, 2, 40, 700)],
    "top_p": [
        {"top_p": p, "min_keep": keep} for p in (0.0, 0.3, 0.95, 0.999) for keep in (0, 1, 30)
    ],
    "min_p": [{"min_p": p, "min_keep": keep} for p in (0.001, 0.05, 1.0) for keep in (0, 30)],
    "typ_p": [{"typical_p": p, "min_keep": keep} for p in (0.1, 0.5, 0.99) for keep in (0, 30)],
    "top_n_sigma": [{"top_n_sigma": n} for n in (0.5, 1.0, 3.0)],
    "xtc": [
        {"xtc_probability": 1.0, "xtc_threshold": t, "min_keep": keep}
        for t in (0.01, 0.1, 0.5)
        for keep in (0, 30)
    ],
    "temperature": [
        {"temperature": t, "dynatemp_range": spread, "dynatemp_exponent": exponent}
        for t in (0.5, 1.5)
        for spread, exponent in ((0.0, 1.0), (0.4, 1.0), (0.4, 2.0), (2.0, 0.5))
    ],
}


def rows(n: int) -> list[np.ndarray]:
    """Flat and peaked ones, as of a model that knows and of one that does not."""
    rng = np.random.default_rng(n)
    noise = [rng.standard_normal(n).astype(np.float32) * scale for scale in (0.5, 2.0, 4.0)]
    peak = np.zeros(n, np.float32)
    peak[: n // 10 + 2] = np.linspace(12, 0, n // 10 + 2)
    return [*noise, noise[1] + peak]


def ours(name: str, params: SamplingParams, row: np.ndarray) -> Candidates:
    left, p = Candidates(row), params
    match name:
        case "top_k":
            return cut.top_k(left, p.top_k)
        case "top_p":
            return cut.top_p(left, p.top_p, p.min_keep)
        case "min_p":
            return cut.min_p(left, p.min_p, p.min_keep)
        case "typ_p":
            return cut.typical_p(left, p.typical_p, p.min_keep)
        case "top_n_sigma":
            return cut.top_n_sigma(left, p.top_n_sigma)
        case "xtc":
            return cut.xtc(left, p.xtc_threshold, p.min_keep)
    if p.dynatemp_range > 0:
        return cut.dynamic_temperature(left, p.temperature, p.dynatemp_range, p.dynatemp_exponent)
    return cut.temperature(left, p.temperature)


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_is_what_llama_cpp_leaves(name: str) -> None:
    for size in SIZES:
        theirs_row = Row(size)
        for case in CASES[name]:
            params = replace(GREEDY, **case)
            with llama_samplers.chain([name], params) as samplers:
                for row in rows(size):
                    theirs = theirs_row.left(samplers, row)
                    left = ours(name, params, row)
                    ids = [left.id_at(i) for i in range(len(left))]
                    assert_the_same(dict(zip(ids, left.logits.tolist(), strict=True)), theirs, case)


def assert_the_same(ours: dict[int, float], theirs: dict[int, float], case: object) -> None:
    # Theirs are sums of float32, one after the other: what weighs nothing may be on either side.
    best = max(ours.values())
    differing = ours.keys() ^ theirs.keys()
    weight = sum(np.exp((ours | theirs)[token] - best) for token in differing)
    assert weight < 1e-3 * sum(np.exp(logit - best) for logit in ours.values()), case
    common = sorted(ours.keys() & theirs.keys())
    mine, other = ([logits[i] for i in common] for logits in (ours, theirs))
    # A temperature is taken of the distance to the best, which says the same.
    distances = (np.array(mine) - max(mine)) - (np.array(other) - max(other))
    assert np.abs(distances).max() < 1e-2, case


def test_penalties_are_llama_cpps(engine: LlamaEngine) -> None:
    rng = np.random.default_rng(1)
    n_vocab = engine.vocabulary.n_vocab
    for last_n in (1, 20, 64):
        params = SamplingParams(
            repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.4, repeat_last_n=last_n
        )
        histories = rng.integers(0, 60, (4, 100)).tolist()
        row = rng.standard_normal(n_vocab).astype(np.float32)
        assert_adjusted_alike("penalties", params, engine, histories, row, {})


def test_dry_is_llama_cpps(engine: LlamaEngine) -> None:
    rng = np.random.default_rng(2)
    text = b'for a in b:\n    print("x", a)\n    print("x", b)\nfor a in b:\n    print('
    histories = [engine.encode(text), [7, 7, 7, 7, 7], *(random_history(rng) for _ in range(30))]
    row = rng.standard_normal(engine.vocabulary.n_vocab).astype(np.float32)
    for texts in (("\n", ":", '"', "*"), ("nt(", " print", "in b")):
        breakers = sequence_breakers(texts, engine.vocabulary, engine.encode)
        for allowed, last_n in ((2, 512), (0, 512), (1, 20), (5, 512)):
            params = SamplingParams(
                dry_multiplier=0.8,
                dry_allowed_length=allowed,
                dry_penalty_last_n=last_n,
                dry_sequence_breakers=texts,
            )
            assert_adjusted_alike("dry", params, engine, histories, row, breakers)


def random_history(rng: np.random.Generator) -> list[int]:
    """Few different tokens, so that much is repeated."""
    return [int(i) for i in rng.integers(200, 200 + rng.integers(2, 6), rng.integers(3, 80))]


def assert_adjusted_alike(
    name: str,
    params: SamplingParams,
    engine: LlamaEngine,
    histories: list[list[int]],
    row: np.ndarray,
    breakers: Breakers,
) -> None:
    n_vocab = engine.vocabulary.n_vocab
    lib = libllama.load()
    theirs_row = Row(n_vocab)
    with llama_samplers.chain([name], params, engine.vocab, n_vocab) as samplers:
        for history in histories:
            lib.llama_sampler_reset(samplers)
            for token in history:
                lib.llama_sampler_accept(samplers, token)
            theirs = theirs_row.adjusted(samplers, row)
            if name == "penalties":
                mine = penalize(Candidates(row), history, params)
            else:
                mine = avoid_repetition(Candidates(row), history, params, breakers)
            assert np.allclose(mine.logits, theirs, rtol=1e-5, atol=1e-4), (params, history)
