"""The blank end of an answer: not needed where a line end follows the cursor.

T1  Only blanks and line ends at the end are left out, and only if nothing but blanks stands behind
    the cursor in its line. Before code a line end at the end may be what keeps it on its own line.
    In prose the blanks of the last line of text stay: two of them may mean something.
T2  Held is what may be that end, and nothing else.
"""

from __future__ import annotations

import re

from suture.server.shaping.closers import are_auto_closed
from suture.server.shaping.lexical import lexical_syntax
from suture.server.shaping.style import blanks_of
from suture.server.shaping.surroundings import Surroundings

_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")
_BLANKS = " \t\n"
_TRIPLE = re.compile("\"\"\"|'''")
# What was opened farther before the cursor is not looked for.
_MAX_PREFIX = 4096


class Tail:
    """Leaves out the blank end of a text that comes in parts."""

    name = "tail"
    ended = False

    def __init__(self, around: Surroundings) -> None:
        is_unknown = around.is_suffix_cut and not around.suffix
        self._is_at_end = not is_unknown and _LINE_END.match(around.suffix) is not None
        self._rest = around.rest
        # Two blanks at a line's end break the line in Markdown.
        self._keeps_blanks = not lexical_syntax(around.language, around.path).is_indented
        self._has_text = bool(around.cursor_line.strip(" \t"))
        self._said = around.prefix[-_MAX_PREFIX:]
        triple = _TRIPLE.match(self._rest.strip(" \t"))
        self._triple = triple[0] if triple else ""
        self._held = ""
        self.fired = False

    def feed(self, text: str) -> str:
        """The next part of the text without the blanks at its end."""
        if not self._is_at_end:
            return text
        self._held += text
        end = len(self._held.rstrip(_BLANKS))
        self._has_text = self._has_text or end > 0
        if self._keeps_blanks and self._has_text:
            end += len(blanks_of(self._held[end:]))
        return self._release(end)

    def flush(self) -> str:
        """What is held, if the rest of the cursor's line still follows."""
        if self._held and self._rest and self._is_rest_open():
            return self._release(len(self._held))
        self.fired = self.fired or bool(self._held)
        return ""

    def _is_rest_open(self) -> bool:
        """Whether the text has not written the rest itself."""
        if self._triple:  # its string goes over line ends
            return self._said.count(self._triple) % 2 == 1
        return are_auto_closed(self._rest, self._said)

    def _release(self, end: int) -> str:
        text, self._held = self._held[:end], self._held[end:]
        if self._rest:
            self._said += text
        return text
