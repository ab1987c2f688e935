"""Whether a chunk of another file says what stands at the cursor.

A model repeats what it is shown twice: behind a second copy of the lines at the cursor it goes on
as that copy does, and the text of a stale copy is what one is about to change. So a chunk is left
out that

  repeats   the text at the cursor: more than half of its lines stand there
  contains  the place of the cursor: more than half of the lines next to it stand in the chunk,
            however long that is. Only lines that tell something count, and at least `MIN_NEAR` of
            them: all files have `}` and `return`, and files of one project their imports and
            the licence in their first comment.

Lines are compared without the blanks around them, each once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from suture.server.prompt.windows import CursorWindows

# On each side of the cursor: the middle half of the chunks that editors send.
N_NEAR = 16
MIN_NEAR = 6

_WORD_CHARACTERS = re.compile(r"[^\W_]")
_MIN_WORD_CHARACTERS = 4
_COMMENT = re.compile(r"[#*;%]|//|/\*|--|<!--")
_IMPORT = re.compile(r"(?:from|import|export|use|using|package|require|include)\b")


@dataclass(frozen=True, slots=True)
class CursorLines:
    """The lines of the windows at the cursor, and those `near` it that tell where it is."""

    lines: frozenset[str]
    near: frozenset[str]

    @classmethod
    def of(cls, windows: CursorWindows) -> CursorLines:
        """Those of a prompt's windows; the cursor's own line is being written, and is none."""
        before, after = _lines(windows.prefix.text), _lines(windows.suffix.text)
        near = (*before[:-1][-N_NEAR:], *after[1:][:N_NEAR])
        return cls(_distinct((*before, *after)), frozenset(filter(_tells, near)))

    def are_in(self, text: str) -> bool:
        """Whether a chunk with this text repeats them, or contains the cursor's place."""
        lines = _distinct(_lines(text))
        if len(lines & self.lines) * 2 > len(lines):
            return True
        return len(self.near) >= MIN_NEAR and len(lines & self.near) * 2 > len(self.near)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def _distinct(lines: Iterable[str]) -> frozenset[str]:
    return frozenset(lines) - {""}


def _tells(line: str) -> bool:
    if len(_WORD_CHARACTERS.findall(line)) < _MIN_WORD_CHARACTERS:
        return False
    return not (_COMMENT.match(line) or _IMPORT.match(line))
