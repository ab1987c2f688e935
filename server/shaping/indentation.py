"""The blanks that lines begin with: as deep as the place allows, and written as the file does.

  typed    the blanks before the cursor where nothing else stands in its line
  deeper   a line that no line before it allows: the last one opens no block, nothing is unfinished
  unit     what one more level adds, in columns; a tab is one unit

I1  Only blanks at the beginning of lines are left out or are others. Lines within a string or a
    comment that goes over line ends stay as they are.
I2  The first line loses the blanks that were typed if it begins with the same again and is deeper
    for it, as often as it does. Within brackets and behind an unfinished statement any line may be.
I3  Where all lines of the file, or all but a few, begin with tabs, spaces at the beginning of a
    line become tabs, and the other way round. Spaces behind a tab, which align, stay.
I4  Held are the blanks that a line begins with.
"""

from __future__ import annotations

import re

from suture.server.shaping.lexical import lexical_syntax
from suture.server.shaping.lines import lines_of
from suture.server.shaping.statements import is_unfinished, opens_block
from suture.server.shaping.style import UNITS, Style, blanks_of, nesting_above, style_of
from suture.server.shaping.surroundings import Surroundings

# What a deeper line may begin with wherever it is: it goes on with the one above.
_GOES_ON = re.compile(
    r"[.?:&|+\-*/=<>,)\]}%^\\#;@\"'`]|(?:and|or|in|is|if|else|for|from|where|extends|throws)\b"
)


class FirstLine:
    """Leaves out the typed blanks where the answer says them again (I2)."""

    name = "indent"
    ended = False

    def __init__(self, around: Surroundings) -> None:
        line = around.cursor_line
        self._typed = line
        self._style = style_of(around)
        self._most = _deepest(around, self._style) if line and not line.strip(" \t") else None
        self._blanks = ""
        self._is_over = self._most is None
        self.fired = False

    def feed(self, text: str) -> str:
        """The next part of the text, without what was typed."""
        if self._is_over:
            return text
        self._blanks += text
        n_blanks = len(blanks_of(self._blanks))
        if n_blanks == len(self._blanks):
            return ""
        blanks, behind = self._blanks[:n_blanks], self._blanks[n_blanks:]
        while (n_again := self._n_again(blanks)) and self._is_deeper(blanks, behind):
            self.fired = True
            blanks = blanks[n_again:]
        self._blanks = blanks + behind
        return self.flush()

    def flush(self) -> str:
        """What is held, as it is."""
        text, self._blanks, self._is_over = self._blanks, "", True
        return text

    def _n_again(self, blanks: str) -> int:
        """How many of the blanks are as wide as what was typed, with tabs or without; 0 if none."""
        width = self._style.columns(self._typed)
        widths = (self._style.columns(blanks[:n]) for n in range(1, len(blanks) + 1))
        return next((n for n, columns in enumerate(widths, 1) if columns == width), 0)

    def _is_deeper(self, blanks: str, behind: str) -> bool:
        if behind[0] == "\n" or _GOES_ON.match(behind) or self._most is None:
            return False
        return self._style.columns(self._typed + blanks) > self._most


class Tabs:
    """Writes the blanks that lines begin with as the file does (I3)."""

    name = "tabs"
    ended = False

    def __init__(self, around: Surroundings) -> None:
        self.fired = False
        self._style = style_of(around)
        self._typed = around.cursor_line
        self._nesting = nesting_above(around).copy()
        self._above = around.last_line_above or ""
        self._unit = 0  # of the answer's spaces, once it is known
        self._line = self._said = ""
        self._is_first = True
        # The blanks of the line are done; of a line that was begun there are none to change.
        self._is_inside = bool(self._typed.strip(" \t"))

    def feed(self, text: str) -> str:
        """The next part of the text, as far as the blanks are known."""
        if self._style.uses is None:
            return text
        return "".join(map(self._feed_part, lines_of(text)))

    def flush(self) -> str:
        """What is held: blanks behind which nothing came."""
        return "" if self._is_inside else self._line

    def _feed_part(self, part: str) -> str:
        self._line += part
        released = ""
        if self._is_inside:
            released = part
        elif self._line.strip(" \t"):
            released, self._is_inside = self._written(self._line), True
        self._said += released
        if part.endswith("\n"):
            before = self._typed if self._is_first else ""
            self._nesting.feed(before + self._line)
            if self._line.strip():
                self._above = before + self._said
            self._line = self._said = ""
            self._is_first = self._is_inside = False
        return released

    def _written(self, line: str) -> str:
        """The line as far as it is known, its blanks as the file has them."""
        n_blanks = len(blanks_of(line))
        blanks = line[:n_blanks]
        if not blanks or line[n_blanks] == "\n" or self._nesting.string_end:
            return line
        if self._nesting.closers[-1:] in (*")]",):
            return line
        written = self._as_tabs(blanks) if self._style.uses == "tabs" else self._as_spaces(blanks)
        self.fired = self.fired or written != blanks
        return written + line[n_blanks:]

    def _as_spaces(self, blanks: str) -> str:
        return blanks.expandtabs(self._style.unit)

    def _as_tabs(self, blanks: str) -> str:
        if blanks[0] == "\t" or (" " in self._typed and self._is_first):
            return blanks
        n_spaces = len(blanks) - len(blanks.lstrip(" "))
        if n_spaces < 2:
            return blanks
        if not self._unit:
            n_typed = len(self._typed) if self._is_first else 0
            n_levels = blanks_of(self._above).count("\t") + opens_block(self._above)
            self._unit = _answers_unit(n_spaces, n_levels - n_typed)
        n_tabs = max(n_spaces // self._unit, 1)
        return "\t" * n_tabs + " " * (n_spaces - n_tabs * self._unit) + blanks[n_spaces:]


def _answers_unit(n_spaces: int, n_levels: int) -> int:
    """How many spaces of the first line that has some are one level, of `n_levels` expected."""
    if n_levels > 0 and n_spaces % n_levels == 0 and n_spaces // n_levels in UNITS:
        return n_spaces // n_levels
    return n_spaces if n_spaces in UNITS else 4


def _deepest(around: Surroundings, style: Style) -> int | None:
    """How deep the cursor's line may be, in columns; None where it may be anywhere."""
    syntax = lexical_syntax(around.language, around.path)
    nesting = nesting_above(around)
    last = around.last_line_above
    is_anywhere = not syntax.is_indented or nesting.statement_at is not None
    if last is None or is_anywhere or is_unfinished(last):
        return None
    below = next((line for line in around.suffix.split("\n")[1:] if line.strip()), "")
    most = style.columns(blanks_of(last)) + style.most * opens_block(last)
    return max(most, style.columns(blanks_of(below)))
