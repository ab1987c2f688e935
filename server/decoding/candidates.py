"""The tokens that may still be drawn, and the samplers that leave fewer of them.

Each function has the meaning of llama.cpp's sampler of that name, softmaxes included: what was cut
before counts for nothing. A row of 152k logits is never sorted: what can be kept is picked by a
threshold first, which is exact wherever enough passes it, and all is looked at only where not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suture.healing.vocabulary import TokenIds

Logits = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]

# Sorting fewer is cheaper than picking first.
_FEW = 512
# Of a model's row some hundred tokens are so near the best, and they have nearly all the weight.
_HEAD_NATS = (6.0, 12.0)
_BLOCK = 512
_GROUP = 128


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Logits and the ids they belong to; without ids they are a whole row's. Never empty."""

    logits: Logits
    token_ids: TokenIds | None = None

    def __len__(self) -> int:
        return len(self.logits)

    def keep(self, indices: Indices) -> Candidates:
        kept = indices if self.token_ids is None else self.token_ids[indices]
        return Candidates(self.logits[indices], kept)

    def with_logits(self, logits: Logits) -> Candidates:
        return Candidates(logits, self.token_ids)

    def id_at(self, index: int) -> int:
        return index if self.token_ids is None else int(self.token_ids[index])

    def find(self, token_ids: npt.NDArray[np.int64]) -> tuple[Indices, Indices]:
        """Where those of the sorted `token_ids` stand that are here, and which of them they are."""
        if self.token_ids is None:
            return token_ids, np.arange(len(token_ids))
        at = np.flatnonzero(np.isin(self.token_ids, token_ids))
        return at, np.searchsorted(token_ids, self.token_ids[at])


def top_k(candidates: Candidates, k: int) -> Candidates:
    """The k best; of equals those that stand first."""
    logits = candidates.logits
    if not 0 < k < len(logits):
        return candidates
    near = _at_least(logits, k)
    values = logits[near]
    if k == len(near):
        return candidates.keep(near)
    least = np.partition(values, -k)[-k]
    better = values > least
    equal = np.flatnonzero(values == least)[: k - int(np.count_nonzero(better))]
    better[equal] = True
    return candidates.keep(near[better])


def top_p(candidates: Candidates, p: float, min_keep: int = 0) -> Candidates:
    """The fewest of the best that reach the probability `p` together."""
    if p >= 1.0:
        return candidates
    log_total = _log_total(candidates.logits)
    for order in _best_first(candidates.logits):
        probabilities = np.exp(candidates.logits[order].astype(np.float64) - log_total)
        n = max(int(np.searchsorted(np.cumsum(probabilities), p)) + 1, min_keep)
        if n <= len(order):
            return candidates.keep(order[:n])
    return candidates


def min_p(candidates: Candidates, p: float, min_keep: int = 0) -> Candidates:
    """Those that are at least `p` times as probable as the best."""
    if p <= 0.0:
        return candidates
    logits = candidates.logits
    kept = np.flatnonzero(logits >= logits.max() + np.float32(np.log(p)))
    return candidates.keep(kept) if len(kept) >= min_keep else top_k(candidates, min_keep)


def top_n_sigma(candidates: Candidates, n: float) -> Candidates:
    """Those whose logit is within `n` standard deviations of the best one."""
    logits = candidates.logits
    if n <= 0.0 or len(logits) <= 1:
        return candidates
    finite = logits[np.isfinite(logits)]
    deviation = finite.std(dtype=np.float64)
    return candidates.keep(np.flatnonzero(logits >= np.float32(finite.max() - n * deviation)))


def typical_p(candidates: Candidates, p: float, min_keep: int = 0) -> Candidates:
    """Those whose surprise is nearest to the expected one, until they exceed `p` together.

    llama.cpp's entropy is not a number where a token has probability 0; here it counts for nothing.
    """
    if p >= 1.0:
        return candidates
    candidates = candidates.keep(np.flatnonzero(np.isfinite(candidates.logits)))
    log_p = candidates.logits.astype(np.float64) - _log_total(candidates.logits)
    probabilities = np.exp(log_p)
    distance = np.abs(-log_p + probabilities @ log_p)
    for within in (*_HEAD_NATS, np.inf) if len(log_p) > _FEW else (np.inf,):
        near = np.flatnonzero(distance <= within)
        order = near[np.argsort(distance[near], kind="stable")]
        reached = np.searchsorted(np.cumsum(probabilities[order]), p, side="right")
        n = max(int(reached) + 1, min_keep)
        if n <= len(order):
            return candidates.keep(order[:n])
    return candidates


def xtc(candidates: Candidates, threshold: float, min_keep: int = 0) -> Candidates:
    """Without the best ones, of all that reach the probability `threshold` but the least."""
    logits = candidates.logits
    floor = np.log(threshold) if threshold > 0 else -np.inf
    log_p = logits.astype(np.float64) - _log_total(logits)
    # A banned token reaches a threshold of 0 too.
    reach = np.flatnonzero(np.isfinite(logits) & (log_p >= floor))
    n_cut = len(reach) - 1
    if n_cut <= 0 or len(logits) - n_cut < min_keep:
        return candidates
    worst_first = np.argsort(logits[reach], kind="stable")
    kept = np.ones(len(logits), bool)
    kept[reach[worst_first[1:]]] = False
    return candidates.keep(np.flatnonzero(kept))


def temperature(candidates: Candidates, t: float) -> Candidates:
    """Logits below the best one's, divided by `t`; the best alone where that is 0."""
    logits = candidates.logits
    if t < 1e-6:
        return candidates.keep(np.array([logits.argmax()]))
    return candidates.with_logits((logits - logits.max()) / np.float32(t))


def dynamic_temperature(
    candidates: Candidates, t: float, spread: float, exponent: float
) -> Candidates:
    """A temperature within `spread` of `t`, by the entropy's share of the largest possible."""
    if len(candidates) <= 1:
        return candidates
    log_p = candidates.logits.astype(np.float64) - _log_total(candidates.logits)
    log_p = log_p[np.isfinite(log_p)]
    share = min(max(-float(np.exp(log_p) @ log_p) / np.log(len(candidates)), 0.0), 1.0)
    low, high = max(0.0, t - spread), t + spread
    return temperature(candidates, low + (high - low) * share**exponent)


def draw(candidates: Candidates, uniform: float) -> int:
    """The token at the share `uniform` of all probability; with 0 <= uniform < 1 any of them."""
    logits = candidates.logits
    weights = np.exp(logits - logits.max())
    if len(weights) <= _BLOCK:
        inside = np.cumsum(weights, dtype=np.float64)
        return candidates.id_at(_first_above(inside, uniform * inside[-1]))
    # A running sum over a whole row costs more than all else: one over its blocks says in which.
    starts = np.arange(0, len(weights), _BLOCK)
    totals = np.cumsum(np.add.reduceat(weights, starts), dtype=np.float64)
    target = uniform * totals[-1]
    block = _first_above(totals, target)
    first = block * _BLOCK
    inside = np.cumsum(weights[first : first + _BLOCK], dtype=np.float64)
    before = totals[block - 1] if block else 0.0
    return candidates.id_at(first + _first_above(inside, target - before))


def _first_above(cumulative: npt.NDArray[np.float64], target: float) -> int:
    """Where a running sum first exceeds `target`; rounding never leads to what weighs nothing."""
    index = int(np.searchsorted(cumulative, target, side="right"))
    return index if index < len(cumulative) else int(cumulative.argmax())


def _log_total(logits: Logits) -> float:
    """The logarithm of the sum of what the logits are logarithms of."""
    best = logits.max()
    return float(best) + float(np.log(np.exp(logits - best).sum()))


def _at_least(logits: Logits, n: int) -> Indices:
    """The indices of the `n` best among others, in their order."""
    n_groups = len(logits) // _GROUP
    if n > n_groups:
        return np.arange(len(logits))
    # The best of n groups are n logits, so the least of those is reached by the n best of all.
    best = logits[: n_groups * _GROUP].reshape(_GROUP, n_groups).max(axis=0)
    return np.flatnonzero(logits >= np.partition(best, -n)[-n])


def _best_first(logits: Logits) -> Iterator[Indices]:
    """Indices best first: of those near the best, then of more, then of all."""
    if len(logits) > _FEW:
        best = logits.max()
        for nats in _HEAD_NATS:
            near = np.flatnonzero(logits >= best - np.float32(nats))
            yield near[np.argsort(-logits[near], kind="stable")]
    yield np.argsort(-logits, kind="stable")
