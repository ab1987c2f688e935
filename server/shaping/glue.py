"""A last line that would be glued to the code which stands behind the cursor in its line.

  rest       that code
  last line  of an answer of several lines, what stands behind its last line end
  glued      with a line end between them the file would have fewer parse errors, or both are
             words (`a = b()return c`, `a = breturn c`)

G1  Left out is the last line, but for the blanks that it begins with: those before the cursor, if
    nothing else stands there, or else all. The rest goes on behind them.
G2  Nothing is left out but what is glued, and only where the file has fewer parse errors without.
    Without an opinion nothing is.
G3  Held is the line being said, from the second one on.
G4  How the text comes apart changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from suture.server.shaping.style import blanks_of
from suture.server.shaping.surroundings import Surroundings

_WORD = re.compile(r"\w")


class Glue:
    """Leaves out the last line of a text that comes in parts, where it would be glued.

    `n_errors` are the file's parse errors with a text at the cursor; None is no opinion.
    """

    name = "glue"
    ended = False

    def __init__(self, around: Surroundings, n_errors: Callable[[str], int | None]) -> None:
        self._rest = around.suffix.partition("\n")[0]
        self._is_on = bool(self._rest.strip())
        self._typed = around.cursor_line
        self._n_errors = n_errors
        self._text = ""
        self._n_released = 0
        self.fired = False

    def feed(self, text: str) -> str:
        """What of the text is sure now and was not before."""
        if not self._is_on:
            return text
        self._text += text
        return self._release(self._last_line or len(self._text))

    def flush(self) -> str:
        """What is left of the text, which ends here."""
        end = len(self._text)
        start = self._last_line
        line = self._text[start:]
        if start and line.strip() and self._is_cut(line):
            self.fired = True
            end = self._cut_at(start)
        return self._release(end)

    @property
    def _last_line(self) -> int:
        """Where the last line begins; 0 while there is one alone."""
        return self._text.rfind("\n") + 1

    def _cut_at(self, start: int) -> int:
        blanks = blanks_of(self._text[start:])
        is_blank = not self._typed.strip() and blanks.startswith(self._typed)
        return start + len(self._typed if is_blank else blanks)

    def _is_cut(self, line: str) -> bool:
        n_with = self._n_errors(self._text)
        if not n_with or not self._is_glued(line, n_with):  # 0, or nobody knows
            return False
        n_without = self._n_errors(self._text[: self._cut_at(self._last_line)])
        return n_without is not None and n_without < n_with

    def _is_glued(self, line: str, n_with: int) -> bool:
        if _WORD.match(line[-1]) and _WORD.match(self._rest):
            return True
        n_apart = self._n_errors(self._text + "\n" + blanks_of(line))
        return n_apart is not None and n_apart < n_with

    def _release(self, end: int) -> str:
        text = self._text[self._n_released : end]
        self._n_released = max(end, self._n_released)
        return text
