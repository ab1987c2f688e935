"""What an evaluation of so many tokens costs, learned from those that are made.

On a CPU the cost does not grow evenly: a kernel for few rows gives way to one for many, and what
lies between is the worst of both. What is not known is taken from a quantized model's costs on two
cores. Costs are kept as multiples of a single token's, which is evaluated all the time: a machine
that is busy with other things becomes slower for all sizes at once.
"""

from __future__ import annotations

from bisect import bisect_left

# Tokens and milliseconds, the rows of all wanted; only the ratios count.
_COSTS = {1: 47.0, 2: 78.0, 3: 108.0, 4: 118.0, 8: 291.0, 16: 373.0, 32: 678.0, 64: 1241.0}
_SIZES = tuple(_COSTS)
# How much of what was believed is believed still after an evaluation said otherwise.
_MEMORY = 0.9


class StepCosts:
    """Seconds by the number of tokens. For one engine, whose thread uses it."""

    def __init__(self) -> None:
        self._one_s = _COSTS[1] / 1000
        self._multiples = {n: ms / _COSTS[1] for n, ms in _COSTS.items()}
        self._seen: set[int] = set()

    def of(self, n_tokens: int) -> float:
        """Seconds that `n_tokens` will take; between the sizes that are known, in proportion."""
        known = self._multiples
        at = bisect_left(_SIZES, n_tokens)
        if at == len(_SIZES):
            return self._one_s * known[_SIZES[-1]] * n_tokens / _SIZES[-1]
        above = _SIZES[at]
        if n_tokens == above or at == 0:
            return self._one_s * known[above]
        below = _SIZES[at - 1]
        share = (n_tokens - below) / (above - below)
        return self._one_s * (known[below] + share * (known[above] - known[below]))

    def has_seen(self, n_tokens: int) -> bool:
        """Whether so many tokens have been evaluated here."""
        return n_tokens in self._seen

    def is_redone_sooner(self, n_tokens: int, n_all: int, elapsed_s: float) -> bool:
        """Whether `n_tokens` alone would be done before the evaluation of `n_all` they are in."""
        return self.of(n_tokens) < self.of(n_all) - elapsed_s

    def observe(self, n_tokens: int, seconds: float) -> None:
        """An evaluation of `n_tokens` took so long."""
        known = self._multiples
        if n_tokens not in known:
            return
        is_first = n_tokens not in self._seen
        if not self._seen:
            self._one_s = seconds / known[n_tokens]
        elif n_tokens == 1:
            self._one_s = seconds if is_first else _blend(self._one_s, seconds)
        else:
            seen = seconds / self._one_s
            known[n_tokens] = seen if is_first else _blend(known[n_tokens], seen)
        self._seen.add(n_tokens)


def _blend(believed: float, seen: float) -> float:
    return _MEMORY * believed + (1 - _MEMORY) * seen
