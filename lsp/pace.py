"""Whether all of a text comes soon enough to be shown at once, or its first line is shown before.

Lines that come one after the other are a text that moves. So who has the first line waits for the
rest, as long as nobody would notice: up to `SOON_MS` in all, or a share of what was waited already.
Where the engine needs longer than that, at the pace at which it wrote of late, one waits for what
is on its way already, and no more. PURE.
"""

from __future__ import annotations

SOON_MS = 300.0
_SHARE = 0.15
_LEAST_MS = 15.0
# What is taken for so before anything was written: an engine that is quick is seen to be so.
_FIRST_PIECE_MS = 5.0
_FIRST_BEHIND = 20.0
# How much of the averages the latest is: one piece of many in a text, one text.
_WEIGHT_OF_PIECE = 0.1
_WEIGHT_OF_TEXT = 0.25


class Pace:
    """How fast an engine writes of late, in pieces of some token each, and how much."""

    def __init__(self) -> None:
        self._piece_ms = _FIRST_PIECE_MS
        self._n_behind = _FIRST_BEHIND

    def came(self, after_ms: float) -> None:
        """A piece came so long after the one before it."""
        self._piece_ms += _WEIGHT_OF_PIECE * (after_ms - self._piece_ms)

    def ended(self, n_behind: int) -> None:
        """A text has ended so many pieces behind its first line."""
        self._n_behind += _WEIGHT_OF_TEXT * (n_behind - self._n_behind)

    def patience_ms(self, waited_ms: float) -> float:
        """How long one waits for the rest who has waited so long for the first line."""
        left = max(SOON_MS - waited_ms, _SHARE * waited_ms)
        return left if self._n_behind * self._piece_ms <= left else _LEAST_MS
