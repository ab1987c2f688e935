"""The scores of a text's tokens, each given out with the text that it begins.

A token is of the text where a character is that it has bytes of: so one that is left out by shaping
or a stop string has no entry, one that is cut by them has, and one that goes on past them has its
own whole piece. Tokens that share a character come together.

O5  Entries are in the order of their tokens, and each comes with the first text that has it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from suture.server.request import ScoredToken
from suture.server.shaping.alignment import Alignment


class ScoreLog:
    """What the tokens of one text were scored, matched with what is left of it when shaped."""

    def __init__(self) -> None:
        self._alignment = Alignment()
        self._waiting: deque[tuple[int, ScoredToken]] = deque()
        self._untaken: list[ScoredToken] = []
        self._n_tokens = 0
        self._logprob = 0.0

    @property
    def n_said(self) -> int:
        """Characters of the text so far, before shaping."""
        return self._alignment.n_said

    @property
    def confidence(self) -> float | None:
        """The geometric mean probability of the tokens given out; None if there are none."""
        return math.exp(self._logprob / self._n_tokens) if self._n_tokens else None

    def add(self, score: ScoredToken, start: int) -> None:
        """The next token, which begins in the character `start` of the text."""
        if score.piece:
            self._waiting.append((start, score))

    def add_without_text(self, score: ScoredToken) -> None:
        """The next token, where no text is made of tokens."""
        self._give(score)

    def say(self, text: str) -> None:
        """Text that the tokens have released."""
        self._alignment.say(text)

    def leave(self, shaped: str) -> None:
        """What of it is inserted."""
        for at, offset in self._alignment.leave(shaped):
            while self._waiting and self._waiting[0][0] <= at:
                start, score = self._waiting.popleft()
                end = max(start + 1, self._waiting[0][0]) if self._waiting else math.inf
                if at < end:
                    self._give(replace(score, offset=offset))

    def take(self) -> tuple[ScoredToken, ...]:
        """Those given out since the last call."""
        taken = tuple(self._untaken)
        self._untaken.clear()
        return taken

    def _give(self, score: ScoredToken) -> None:
        self._n_tokens += 1
        self._logprob += score.logprob
        self._untaken.append(score)
