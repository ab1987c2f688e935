"""Drawing one token from a row of logits.

The order is llama.cpp's: biases and bans, (the healer's constraint), then the samplers in the order
in which they are listed, then the draw. The constraint stands before the truncations: a top-k of
the free row may hold none of the tokens that the given-back bytes allow.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from suture.healing.vocabulary import TokenIds
from suture.server.decoding import candidates as cut
from suture.server.decoding.candidates import Candidates, Logits
from suture.server.decoding.repetition import Breakers, avoid_repetition, penalize
from suture.server.request import SamplingParams

_GREEDY_BELOW = 1e-6
_LOOK_BACK = ("penalties", "dry")
_NO_BREAKERS: Breakers = MappingProxyType({})

Step = Callable[[Candidates, Sequence[int]], Candidates]
"""A sampler with its parameters, over what is left and the text so far."""


class Sampler:
    """Draws tokens by one request's parameters; a fixed seed gives fixed draws (N1).

    `seed` is the one in use, which is fresh where the parameters have none. `is_greedy` says that
    the best token is always drawn. `breakers` are those of `dry_sequence_breakers`.
    """

    def __init__(
        self,
        params: SamplingParams,
        banned_ids: Iterable[int] = (),
        breakers: Breakers = _NO_BREAKERS,
    ) -> None:
        self._biased_ids = np.array([i for i, _ in params.logit_bias], np.intp)
        self._biases = np.array([bias for _, bias in params.logit_bias], np.float32)
        self._banned_ids = np.fromiter(banned_ids, np.intp)
        self.seed = secrets.randbits(31) if params.seed is None else params.seed
        self._rng = np.random.default_rng(self.seed)
        steps = self._steps(params, breakers)
        names = [name for name in params.samplers if name in steps]
        self._chain = [steps[name] for name in names]
        self._penalties = [steps[name] for name in names if name in _LOOK_BACK]
        self._cuts = [steps[name] for name in names if name not in _LOOK_BACK]
        self.is_greedy = _is_greedy(params, steps)
        if self.is_greedy:
            self._chain = _until_best_is_known(params, steps)

    def adjust(self, row: Logits, also_banned: Iterable[int] = ()) -> None:
        """Apply biases and bans to `row` in place."""
        # One by one where an id stands twice: both biases count.
        np.add.at(row, self._biased_ids, self._biases)
        row[self._banned_ids] = -np.inf
        for token_id in also_banned:
            row[token_id] = -np.inf

    def pick(
        self, logits: Logits, token_ids: TokenIds | None = None, history: Sequence[int] = ()
    ) -> int:
        """A token drawn from `logits`, which belong to `token_ids` or to the whole vocabulary.

        `history` is the text so far.
        """
        left = Candidates(logits, token_ids)
        if (self._chain or not self.is_greedy) and not np.isfinite(logits.max()):
            # Biases ban every candidate, and what healing needs has to be said anyway.
            return left.id_at(0)
        for step in self._chain:
            left = step(left, history)
        if self.is_greedy or len(left) == 1:
            return left.id_at(int(left.logits.argmax()))
        return cut.draw(left, self._rng.random())

    def penalized(self, row: Logits, history: Sequence[int]) -> Logits:
        """A copy of a whole row with biases, bans and what depends on the text so far."""
        row = row.copy()
        self.adjust(row)
        left = Candidates(row)
        for step in self._penalties:
            left = step(left, history)
        return left.logits

    def pick_index(self, log_weights: Logits) -> int:
        """An index drawn by weights of which rows are `penalized` already: what else there is to a
        draw, truncations and temperature, is of the weights."""
        left = Candidates(log_weights)
        if self.is_greedy or len(left) == 1:
            return left.id_at(int(log_weights.argmax()))
        for step in self._cuts:
            left = step(left, ())
        return cut.draw(left, self._rng.random())

    def _steps(self, params: SamplingParams, breakers: Breakers) -> Mapping[str, Step]:
        """The samplers that do something, by their names."""
        least = params.min_keep
        t, spread, exponent = params.temperature, params.dynatemp_range, params.dynatemp_exponent
        steps: dict[str, Step] = {}
        if _has_penalties(params):
            steps["penalties"] = lambda left, history: penalize(left, history, params)
        if params.dry_multiplier != 0.0 and params.dry_base >= 1.0:
            steps["dry"] = lambda left, history: avoid_repetition(left, history, params, breakers)
        if params.top_n_sigma > 0.0:
            steps["top_n_sigma"] = lambda left, _: cut.top_n_sigma(left, params.top_n_sigma)
        if params.top_k > 0:
            steps["top_k"] = lambda left, _: cut.top_k(left, params.top_k)
        if params.typical_p < 1.0:
            steps["typ_p"] = lambda left, _: cut.typical_p(left, params.typical_p, least)
        if params.top_p < 1.0:
            steps["top_p"] = lambda left, _: cut.top_p(left, params.top_p, least)
        if params.min_p > 0.0:
            steps["min_p"] = lambda left, _: cut.min_p(left, params.min_p, least)
        if params.xtc_probability > 0.0 and params.xtc_threshold <= 0.5:
            steps["xtc"] = lambda left, _: self._exclude_top(left, params)
        if spread > 0.0:
            steps["temperature"] = lambda left, _: cut.dynamic_temperature(
                left, t, spread, exponent
            )
        elif t != 1.0:
            steps["temperature"] = lambda left, _: cut.temperature(left, t)
        return steps

    def _exclude_top(self, left: Candidates, params: SamplingParams) -> Candidates:
        if len(left) < 2 or self._rng.random() > params.xtc_probability:
            return left
        return cut.xtc(left, params.xtc_threshold, params.min_keep)


def _has_penalties(params: SamplingParams) -> bool:
    return params.repeat_last_n != 0 and (
        params.repeat_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def _is_greedy(params: SamplingParams, steps: Mapping[str, Step]) -> bool:
    """Whether the best token after penalties is always drawn, as these two may take it away."""
    names = set(params.samplers) & steps.keys()
    is_cold = params.temperature < _GREEDY_BELOW and params.dynatemp_range <= 0.0
    return is_cold and "temperature" in names and not names & {"typ_p", "xtc"}


def _until_best_is_known(params: SamplingParams, steps: Mapping[str, Step]) -> list[Step]:
    """The chain up to the last that changes which token is best: of the rest none takes it away.

    What stands before may leave the others out of the change.
    """
    names = [name for name in params.samplers if name in steps]
    last = max((i for i, name in enumerate(names) if name in _LOOK_BACK), default=-1)
    return [steps[name] for name in names[: last + 1]]


def log_probability(row: Logits, token_id: int) -> float:
    """The token's log probability under the full row, in nats."""
    top = row.max()
    return float(row[token_id] - top - np.log(np.exp(row - top).sum(dtype=np.float64)))
