"""Lines that the model is unsure of are left out, with all that comes behind them.

A line is as sure as the geometric mean probability of its tokens. A token is of the line in which
it begins, its line end included: `)\\n` is of the line that it ends, and so is a token of two line
ends, behind which the blank line has no token. A line without tokens is as good as sure.

Where the first line is unsure, nothing is left. Before a later one the text ends, without the line
end between them. Only a line with its line end, or at the end of the text, is judged, so what is
held is the line being said and the line end before it.
"""

from __future__ import annotations

import math
from collections import deque


class Unsure:
    """The rule for one text; off where `min_confidence`, a probability, is 0."""

    name = "unsure"

    def __init__(self, min_confidence: float) -> None:
        self._min_confidence = min_confidence
        self._tokens: deque[tuple[int, float]] = deque()
        self._held = ""
        # Where the line being said begins: in the text, and in what is held.
        self._start = 0
        self._n_before = 0
        self._refused: float | None = None

    @property
    def fired(self) -> bool:
        return self._refused is not None

    @property
    def ended(self) -> bool:
        return self._refused is not None

    @property
    def refused_all(self) -> float | None:
        """How sure the first line was if it was too unsure, else None."""
        return self._refused if self._start == 0 else None

    def note(self, start: int, logprob: float) -> None:
        """A token that begins at the character `start` of the text, before that text is fed."""
        if self._min_confidence > 0.0:
            self._tokens.append((start, logprob))

    def feed(self, text: str) -> str:
        """The lines that are sure now and were not before."""
        if self._min_confidence <= 0.0:
            return text
        if self.ended:
            return ""
        self._held += text
        released = ""
        while (end := self._held.find("\n", self._n_before)) >= 0:
            if not self._is_sure(end + 1 - self._n_before):
                return released
            released += self._held[:end]
            self._start += end + 1 - self._n_before
            self._held, self._n_before = self._held[end:], 1
        return released

    def flush(self) -> str:
        """The last line, unless it is unsure."""
        n_chars = len(self._held) - self._n_before
        held, self._held = self._held, ""
        return held if not n_chars or self._is_sure(n_chars) else ""

    def _is_sure(self, n_chars: int) -> bool:
        """Judge the line being said, which has so many characters."""
        n_tokens, logprob = 0, 0.0
        while self._tokens and self._tokens[0][0] < self._start + n_chars:
            n_tokens += 1
            logprob += self._tokens.popleft()[1]
        confidence = math.exp(logprob / n_tokens) if n_tokens else 1.0
        if confidence >= self._min_confidence:
            return True
        self._refused = confidence
        self._held = ""
        return False
