"""How long a request waits for the next key. PURE.

An engine that answers quickly is asked quickly. A slow one is asked less often: each request that
the next key makes useless has cost it some of its prompt. Where all are made useless nothing is
answered, and so they count as well: who was not answered for a while would have waited so long, and
then, for all one knows, as long as anybody.
"""

from __future__ import annotations

from typing import Literal

SHORTEST_MS = 40.0
LONGEST_MS = 200.0
# Of what an answer takes; and what an answer is taken to take before there was one.
_SHARE = 0.1
_FIRST_MS = 500.0
# How much of the average the latest answer is.
_WEIGHT = 0.25


class Debounce:
    """The wait before a request, by what it took of late until something could be shown."""

    def __init__(self) -> None:
        self._answer_ms = _FIRST_MS

    def answered(self, took_ms: float) -> None:
        """Note how long an answer took, or its first line."""
        self._note(took_ms)

    def given_up(self, waited_ms: float) -> None:
        """Note that there was no answer for so long, when nobody wanted it any more."""
        self._note(waited_ms + self._answer_ms)

    def wait_ms(self, is_automatic: bool, setting: Literal["auto"] | int = "auto") -> float:
        """Milliseconds to wait. Who asks by hand waits for nothing."""
        if not is_automatic:
            return 0.0
        if setting != "auto":
            return float(setting)
        return min(LONGEST_MS, max(SHORTEST_MS, _SHARE * self._answer_ms))

    def _note(self, ms: float) -> None:
        # No more than the longest wait is for: a quick answer is soon believed.
        ms = min(ms, LONGEST_MS / _SHARE)
        self._answer_ms += _WEIGHT * (ms - self._answer_ms)
