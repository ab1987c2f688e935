"""Where an answer leaves the fenced code block of Markdown that the cursor is in.

  fence    a line of three or more backticks or tildes; behind one that opens may be a language
  closing  a fence without one, of the same characters and at least as many

F1  The text ends before the first closing fence, where the suffix has it already: with both, what
    is below would be code, and the code below text.
F2  Without a fence that is open at the cursor, and one behind it, nothing ends. A prefix whose
    beginning is cut off opens only a fence with a language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from suture.server.shaping.lexical import lexical_syntax
from suture.server.shaping.lines import LineRule, Verdict
from suture.server.shaping.surroundings import Surroundings

_FENCE = re.compile(r"[ \t>]*(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)\Z")
_HALF = re.compile(r"[ \t>]*(?P<marks>`+|~+)?[ \t]*\Z")


class Fence(LineRule):
    """Ends a text that comes in parts before the fence that closes the cursor's block."""

    name = "fence"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.cursor_line)
        self._marks = ""
        if not lexical_syntax(around.language, around.path).is_indented:
            self._marks = _open_marks(around)

    def feed(self, text: str) -> str:
        """What of the text is sure now and was not before; nothing once it has ended."""
        return super().feed(text) if self._marks else text

    def flush(self) -> str:
        """What is left of the text, which ends here."""
        return super().flush() if self._marks else ""

    def _judge(self, line: str, is_whole: bool) -> Verdict:
        if not is_whole:
            return Verdict.UNSURE if _HALF.match(line) else Verdict.GOES_ON
        return Verdict.ENDS if _closes(line, self._marks) else Verdict.GOES_ON

    def _pass(self, line: str) -> None:
        """Nothing is kept of lines."""


def _open_marks(around: Surroundings) -> str:
    """The marks of the fence that is open at the cursor and closed behind it; else nothing."""
    marks = _open_behind(around.lines_above, around.is_prefix_cut)
    rest, *below = (around.rest + around.suffix).split("\n")
    if not around.cursor_line.strip():
        below.insert(0, rest)
    next_fence = next((line for line in below if _FENCE.match(line)), "")
    return marks if marks and _closes(next_fence, marks) else ""


def _open_behind(lines: Iterable[str], is_cut: bool) -> str:
    """The marks of the fence that is open behind some lines; empty if none is."""
    marks = ""
    for line in lines:
        found = _FENCE.match(line)
        if not found:
            continue
        if not marks and (not is_cut or found["info"].strip()):
            marks = found["marks"]
        elif _closes(line, marks):
            marks = ""
    return marks


def _closes(line: str, marks: str) -> bool:
    """Whether a line closes a fence of these marks."""
    found = _FENCE.match(line)
    return bool(found and not found["info"].strip() and marks and found["marks"].startswith(marks))
