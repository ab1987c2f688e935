"""Developers who type: keys of real lines, with the times between them. PURE.

What is typed is what `harness.trace` types for the benchmark of keys: lines of this project's own
files, with brackets in pairs, mistakes and a jump. A *task* is one such trace, in a file of the
developer's own; after it comes another file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.fleet.prompts import tokens_of
from harness.trace import Key, all_traces

N_BEFORE, N_AFTER = 40, 60
# The bridge's default: lsp/settings.py.
MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Habits:
    """Seconds, on average; shares of one.

    `key_s` is measured: 136 million keystrokes of 168,000 people, 52 words a minute (Dhakal et al.,
    CHI 2018, doi 10.1145/3173574.3174220), which is of prose that is copied. All else is assumed:
    how times scatter, how long one thinks before a line and reads before another file, and how good
    suggestions are. Three of ten are taken, the order of what is published of Copilot (Ziegler et
    al., CACM 67(3), 2024).
    """

    key_s: float = 0.23
    key_spread: float = 0.5
    line_s: float = 4.0
    file_s: float = 20.0
    look_s: float = 0.7
    accepted: float = 0.3
    n_right: float = 3.0

    def between_keys(self, rng: random.Random, key: Key) -> float:
        """Seconds before a key."""
        seconds = rng.gammavariate(self.key_spread**-2, self.key_s * self.key_spread**2)
        if key.action in ("enter", "jump"):
            seconds += rng.expovariate(1 / self.line_s)
        return seconds


@dataclass(frozen=True)
class Trace:
    """Keys that are typed one after the other."""

    keys: Sequence[Key]

    @cached_property
    def line_ends(self) -> Sequence[int]:
        """At each key, the last one of its line."""
        ends, end = [], len(self.keys) - 1
        for n in range(len(self.keys) - 1, -1, -1):
            ends.append(end)
            if self.keys[n].action in ("enter", "jump"):
                end = n - 1
        return ends[::-1]

    @cached_property
    def n_answers(self) -> Sequence[int]:
        """At each key, how many tokens the rest of its line has, with the one that ends it."""
        return [self._n_answer(n) for n in range(len(self.keys))]

    def _n_answer(self, n: int) -> int:
        here, there = self.keys[n].prefix, self.keys[self.line_ends[n]].prefix
        n_rest = len(tokens_of(there[len(here) :])) if there.startswith(here) else 0
        return min(n_rest + 1, MAX_TOKENS)


def traces() -> list[Trace]:
    return [Trace(keys) for keys in all_traces(N_BEFORE, N_AFTER)]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What is shown, of which the next `n_right` keys are what one types. All of it `is_taken`."""

    n_right: int
    is_taken: bool


def suggestion(rng: random.Random, habits: Habits, trace: Trace, n: int) -> Suggestion:
    """How good the answer to key `n` is."""
    n_left = trace.line_ends[n] - n
    if rng.random() < habits.accepted:
        return Suggestion(n_left, n_left > 0)
    n_right = 0
    while n_right < n_left and rng.random() < habits.n_right / (1 + habits.n_right):
        n_right += 1
    return Suggestion(n_right, False)


@dataclass(frozen=True, slots=True)
class Chance:
    """What happens to a developer: for each thing random numbers of its own, so that they are the
    same whatever else happened before. Policies are compared on the same people."""

    seed: int
    user: int

    def of(self, *thing: object) -> random.Random:
        return random.Random(f"{self.seed} {self.user} {thing}")
