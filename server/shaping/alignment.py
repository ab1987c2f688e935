"""Where in a model's text stands what shaping has left of it.

Shaping leaves text out, and writes blanks and line ends as the file has them (S1). So what is left
is found again in the text, in order: a character is itself, a line end any line end, and a run of
blanks the run in its place. Behind something left out the next word is looked for, which may be
found too early where the text left out has it as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANKS = re.compile(r"[ \t]*")
_WORD = re.compile(r"\S+")


class Alignment:
    """A text that comes in parts, and what is left of it, which comes in parts behind it."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._n_left = 0
        self._last = ""

    @property
    def n_said(self) -> int:
        """Characters of the text so far."""
        return len(self._text)

    def say(self, text: str) -> None:
        """More of the text."""
        self._text += text

    def leave(self, left: str) -> Iterator[tuple[int, int]]:
        """More of what is left: where characters of it stand in the text, and in what is left.

        Both increase, the first strictly.
        """
        for index, char in enumerate(left):
            found = self._find(char, left, index)
            self._last = char
            for at in found:
                yield at, self._n_left
                self._at = at + 1
            self._n_left += 1

    def _find(self, char: str, left: str, index: int) -> range:
        at = self._at
        if char == "\n" and self._last == "\r":
            # The two are one line end, of which the text has the other half or nothing more.
            has_both = self._text.startswith("\r\n", at - 1)
            return range(at, at + 1) if has_both else range(0)
        if self._text.startswith(char, at):
            return range(at, at + 1)
        if char in " \t":
            # Others in the place of this one and those behind it, if they were not passed yet.
            return range(at, self._behind_blanks())
        if char in "\r\n":
            return self._found("\n", self._behind_blanks())
        return self._skipped_to(char, left, index)

    def _skipped_to(self, char: str, left: str, index: int) -> range:
        at = self._at
        while self._text[at : at + 1].isspace():
            at += 1
        if self._text.startswith(char, at):
            return range(at, at + 1)
        word = _WORD.match(left, index)
        return (word and self._found(word[0], at)) or self._found(char, at)

    def _found(self, wanted: str, start: int) -> range:
        at = self._text.find(wanted, start)
        return range(at, at + 1) if at >= 0 else range(0)

    def _behind_blanks(self) -> int:
        blanks = _BLANKS.match(self._text, self._at)
        return blanks.end() if blanks else self._at
