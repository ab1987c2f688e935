"""Drawing one token from a row of logits.

The order is llama.cpp's: bias, penalties, (the healer's constraint), top-k, top-p, min-p,
temperature, draw. The constraint stands before the truncations: a top-k of the free row may hold
none of the tokens that the given-back bytes allow.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from suture.healing.vocabulary import TokenIds
from suture.server.request import SamplingParams

Logits = npt.NDArray[np.float32]

# Below exp(-20) of the best token's probability, 152k tokens together weigh 3e-4: a draw from the
# untruncated row needs no sort of them. A temperature above 1 lifts the tail, so it scales this.
_TAIL_NATS = 20.0
_GREEDY_BELOW = 1e-6


class Sampler:
    """Draws tokens by one request's parameters; a fixed seed gives fixed draws (N1).

    `seed` is the one in use, which is fresh where the parameters have none.
    """

    def __init__(self, params: SamplingParams, banned_ids: Iterable[int] = ()) -> None:
        self._params = params
        self._banned_ids = np.fromiter(banned_ids, np.int64)
        self.seed = secrets.randbits(31) if params.seed is None else params.seed
        self._rng = np.random.default_rng(self.seed)

    def adjust(self, row: Logits, history: Sequence[int], also_banned: Iterable[int] = ()) -> None:
        """Apply bans, biases and penalties to `row` in place; `history` is the text so far."""
        params = self._params
        for token_id, bias in params.logit_bias:
            row[token_id] += bias
        self._penalize(row, history)
        row[self._banned_ids] = -np.inf
        for token_id in also_banned:
            row[token_id] = -np.inf

    def pick(self, logits: Logits, token_ids: TokenIds | None = None) -> int:
        """A token drawn from `logits`, which belong to `token_ids` or to the whole vocabulary."""
        index = self._pick_index(logits)
        return index if token_ids is None else int(token_ids[index])

    def _pick_index(self, logits: Logits) -> int:
        params = self._params
        best = int(logits.argmax())
        # Not finite: biases ban every candidate, and what healing needs has to be said anyway.
        if params.temperature < _GREEDY_BELOW or len(logits) == 1 or not np.isfinite(logits[best]):
            return best
        kept = _top_k(logits, params.top_k, logits[best] - _TAIL_NATS * max(1, params.temperature))
        values = logits[kept].astype(np.float64)
        kept, values = _nucleus(kept, values, params.top_p, params.min_p)
        weights = np.exp((values - values[0]) / params.temperature)
        cumulative = np.cumsum(weights)
        drawn = np.searchsorted(cumulative, self._rng.random() * cumulative[-1], side="right")
        return int(kept[min(int(drawn), len(kept) - 1)])

    def _penalize(self, row: Logits, history: Sequence[int]) -> None:
        params = self._params
        neutral = (
            params.repeat_penalty == 1.0
            and params.presence_penalty == 0.0
            and params.frequency_penalty == 0.0
        )
        if neutral or params.repeat_last_n == 0:
            return
        last = history if params.repeat_last_n < 0 else history[-params.repeat_last_n :]
        seen, counts = np.unique(np.asarray(last, np.int64), return_counts=True)
        values = row[seen]
        values = np.where(
            values > 0, values / params.repeat_penalty, values * params.repeat_penalty
        )
        row[seen] = values - counts * params.frequency_penalty - params.presence_penalty


def log_probability(row: Logits, token_id: int) -> float:
    """The token's log probability under the full row, in nats."""
    top = row.max()
    return float(row[token_id] - top - np.log(np.exp(row - top).sum(dtype=np.float64)))


def _top_k(logits: Logits, k: int, threshold: float) -> npt.NDArray[np.intp]:
    """Indices of the k largest, best first; with k = 0 of all that reach `threshold`."""
    if 0 < k < len(logits):
        kept = np.argpartition(logits, -k)[-k:]
    else:
        kept = np.flatnonzero(logits >= threshold)
    # Stable, so that ties go to the lower id whatever the partition left behind.
    kept = np.sort(kept)
    return kept[np.argsort(-logits[kept], kind="stable")]


def _nucleus(
    kept: npt.NDArray[np.intp], values: npt.NDArray[np.float64], top_p: float, min_p: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Cut the sorted candidates by top-p, then by min-p; at least one is left."""
    probabilities = np.exp(values - values[0])
    if top_p < 1.0:
        cumulative = np.cumsum(probabilities)
        n = int(np.searchsorted(cumulative, top_p * cumulative[-1])) + 1
        kept, values, probabilities = kept[:n], values[:n], probabilities[:n]
    if min_p > 0.0:
        n = max(int(np.count_nonzero(probabilities >= min_p)), 1)
        kept, values = kept[:n], values[:n]
    return kept, values
