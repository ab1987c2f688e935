"""A text as lines that come in parts: what a rule says of each, and what is released of them.

A line that goes on is released as it comes, once the rule has said so. Blank lines are released
at once: it is not for these rules to keep them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum


class Verdict(Enum):
    """What a rule makes of a line, or of the beginning of one."""

    GOES_ON = "goes on"
    UNSURE = "unsure"
    ENDS = "ends"


class LineRule(ABC):
    """Ends a text before the first line that `_judge` says ends it.

    `typed` stands before the cursor in its line. Where it is only blanks, the first line is taken
    with it; else the first line is a rest of one, and only `_pass` sees it.
    """

    def __init__(self, typed: str) -> None:
        self._typed = typed
        self._is_rest = bool(typed.strip(" \t"))
        self._line = ""  # what has been said of the line so far
        self._n_held = 0  # characters of it that are not released
        self._goes_on = self._is_rest
        self._is_first = True
        self._ended = False

    @property
    def fired(self) -> bool:
        return self._ended

    @property
    def ended(self) -> bool:
        return self._ended

    def feed(self, text: str) -> str:
        """What of the text is sure now and was not before; nothing once it has ended."""
        released = []
        for part in lines_of(text):
            if self._ended:
                break
            released.append(self._feed_part(part))
        return "".join(released)

    def flush(self) -> str:
        """What is left of the text, which ends here."""
        if not self._ended and not self._goes_on and self._line.strip():
            self._ended = self._judge(self._whole, is_whole=True) is Verdict.ENDS
        return "" if self._ended else self._release()

    def _feed_part(self, part: str) -> str:
        self._line += part
        self._n_held += len(part)
        is_whole = part.endswith("\n")
        if not self._goes_on and self._line.strip():
            verdict = self._judge(self._whole, is_whole)
            self._ended = verdict is Verdict.ENDS
            self._goes_on = verdict is Verdict.GOES_ON
        is_blank_line = is_whole and not self._line.strip()
        released = self._release() if self._goes_on or is_blank_line else ""
        if is_whole and not self._ended:
            self._pass(self._typed + self._line if self._is_first else self._line)
            self._line, self._goes_on, self._is_first = "", False, False
        return released

    @property
    def _whole(self) -> str:
        line = self._line.removesuffix("\n")
        return self._typed + line if self._is_first else line

    def _release(self) -> str:
        released = self._line[len(self._line) - self._n_held :]
        self._n_held = 0
        return released

    @abstractmethod
    def _judge(self, line: str, is_whole: bool) -> Verdict:
        """Whether the text ends before a line, as much as is known of it; not UNSURE of a whole."""

    @abstractmethod
    def _pass(self, line: str) -> None:
        """A whole line, its line end with it, has gone on."""


def lines_of(text: str) -> list[str]:
    """Its lines with their line ends, by LF only."""
    *whole, part = text.split("\n")
    return [*(line + "\n" for line in whole), *([part] if part else [])]
