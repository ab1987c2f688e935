"""How many tokens each part of a prompt and the output may take.

  room   the most tokens the prompt may have
  scope  what bounds it: "latency", for text that appears while one types, is the time until the
         first text on a cold cache; "context" is all that the model's context holds

G1  Prompt + output never exceed the context. What is asked for too much is taken off the output
    first, but never more than leaves it half of the context.
G2  Noise in the measured speed does not change a prompt: the room goes in steps of a factor of
    the square root of 2, rounded down. Parts lend each other room in whole grains, so that one
    more character in the prefix seldom moves the end of the suffix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from suture.server.errors import SetupError

Scope = Literal["latency", "context"]

MIN_CONTEXT = 64
# With less, a model of 1.5B fills holes visibly worse: it takes the end of a suffix that was cut
# off early for the end of the file, and goes on past it.
MIN_LATENCY_ROOM = 192
LENDING_GRAIN = 16
MAX_AHEAD = 4
# For tokens that say given-back bytes again: at worst one a byte (`boundary.py`).
HEALING_ROOM = 64


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """What a model on this machine can take.

    `n_ctx` is in tokens, `prefill_tokens_per_s` is measured with a cold cache, `first_text_ms`
    is how long the first text of a completion may take then.
    """

    n_ctx: int
    prefill_tokens_per_s: float
    first_text_ms: int = 2000

    def __post_init__(self) -> None:
        if self.n_ctx < MIN_CONTEXT:
            raise SetupError(
                f"a context of {self.n_ctx} tokens is too small: at least {MIN_CONTEXT} are needed"
            )
        if not 0 < self.prefill_tokens_per_s < math.inf:
            raise ValueError(f"not a speed: {self.prefill_tokens_per_s} tokens/s")

    def prompt_room(self, max_tokens: int, scope: Scope) -> int:
        """The most tokens a prompt may have that is to be followed by `max_tokens` of output."""
        context_room = self.n_ctx - min(max_tokens + HEALING_ROOM, self.n_ctx // 2)
        return context_room if scope == "context" else min(context_room, self._latency_room())

    def ahead_room(self) -> int:
        """The most tokens that text from other files may have which was read ahead of time.

        The cache may have lost it after all, so there is a bound besides a quarter of the context:
        reading it anew takes at most so many times as long as a prompt may. With it a prompt still
        leaves half of the context to the output.
        """
        room = self._latency_room()
        return max(min(self.n_ctx // 4, MAX_AHEAD * room, self.n_ctx // 2 - room), 0)

    def output_room(self, max_tokens: int, n_kept: int, n_pending: int) -> int:
        """`max_tokens`, or as many as fit after `n_kept` prompt tokens and the healed ones.

        Healing takes at most one token for each of the `n_pending` bytes, most often one in all.
        """
        n_left = self.n_ctx - n_kept - n_pending
        return min(max_tokens, max(n_left, 1))

    def _latency_room(self) -> int:
        ratio = self.prefill_tokens_per_s * self.first_text_ms / 1000 / MIN_LATENCY_ROOM
        n_steps = math.floor(2 * math.log2(ratio)) if ratio > 1 else 0
        return int(MIN_LATENCY_ROOM * 2 ** (n_steps / 2))


def share_room(room: int, n_prefix: int, n_suffix: int) -> tuple[int, int]:
    """The tokens that prefix and suffix get of `room`, where they have `n_prefix`, `n_suffix`.

    Three to one; what one does not need goes to the other.
    """
    if n_prefix + n_suffix <= room:
        return n_prefix, n_suffix
    suffix_quota = room // 4
    return (
        min(n_prefix, max(room - suffix_quota, room - _in_grains(n_suffix))),
        min(n_suffix, max(suffix_quota, room - _in_grains(n_prefix))),
    )


def extra_room(room: int, n_used: int) -> int:
    """The tokens that text from other files gets: what the cursor's leaves, at most a quarter."""
    return max(min(room // 4, room - _in_grains(n_used)), 0)


def _in_grains(n_tokens: int) -> int:
    """Rounded up to whole grains."""
    return -(-n_tokens // LENDING_GRAIN) * LENDING_GRAIN
