"""A text one types in, as editors have it: a cursor, indentation, pairs of brackets, undo. PURE."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PAIRS = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'"}
_CLOSERS = frozenset(_PAIRS.values())
_WORD = re.compile(r"\w*\Z")


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` takes the place of what stands between two indices; the cursor is at `cursor` then."""

    start: int
    end: int
    text: str
    cursor: int


class Buffer:
    """A text and a cursor in it, an index. What is done is an edit, which the caller applies."""

    def __init__(self, text: str, closes_brackets: bool) -> None:
        self.text = text
        self.cursor = 0
        self._closes = closes_brackets
        # Closers behind the cursor that were put there for the user, who may type over them.
        self._n_closed = 0
        self._before: list[tuple[str, int]] = []

    @property
    def line_end(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def place(self, index: int) -> tuple[int, str]:
        """The line of an index, and what stands in it before that."""
        before = self.text[:index]
        return before.count("\n"), before.rpartition("\n")[2]

    def index(self, line: int, index: int) -> int:
        """The index of a place in a line, both counted from 0; clamped."""
        lines = self.text.split("\n")
        line = min(line, len(lines) - 1)
        at = min(index, len(lines[line].removesuffix("\r")))
        return sum(len(one) + 1 for one in lines[:line]) + at

    def word_start(self) -> int:
        """Where the word before the cursor begins."""
        found = _WORD.search(self.text[: self.cursor])
        assert found is not None
        return found.start()

    def typed(self, char: str) -> Edit:
        """What a key that writes does."""
        at = self.cursor
        if char == "\n":
            return self.inserted(self.line_end + self._indentation())
        if self._closes:
            if char in _CLOSERS and self._n_closed and self.text[at : at + 1] == char:
                return Edit(at, at + 1, char, at + 1)
            is_inside = self.text[at : at + 1].strip() and self.text[at] not in _CLOSERS
            if char in _PAIRS and not is_inside:
                return Edit(at, at, char + _PAIRS[char], at + 1)
        return self.inserted(char)

    def inserted(self, text: str) -> Edit:
        """Text at the cursor."""
        return Edit(self.cursor, self.cursor, text, self.cursor + len(text))

    def deleted(self, n_before: int, n_behind: int) -> Edit:
        """What Backspace and Delete do; a pair that is empty goes together."""
        start, end = max(0, self.cursor - n_before), self.cursor + n_behind
        if n_before and self._n_closed and _PAIRS.get(self.text[start]) == self.text[end : end + 1]:
            end += 1
        return Edit(start, end, "", start)

    def apply(self, edit: Edit) -> None:
        """Make an edit, which one may undo."""
        self._before.append((self.text, self.cursor))
        n_put = len(edit.text) - (edit.cursor - edit.start)
        self._n_closed = max(0, self._n_closed + n_put - (edit.end - self.cursor))
        self.text = self.text[: edit.start] + edit.text + self.text[edit.end :]
        self.cursor = edit.cursor

    def undone(self) -> Edit | None:
        """What takes the last edit back."""
        if not self._before:
            return None
        text, cursor = self._before.pop()
        start, end, put = difference(self.text, text)
        return Edit(start, end, put, cursor)

    def move(self, index: int) -> None:
        """Put the cursor elsewhere."""
        self.cursor = max(0, min(index, len(self.text)))
        self._n_closed = 0

    def _indentation(self) -> str:
        """What editors put in front of a new line of Python."""
        before = self.place(self.cursor)[1]
        indentation = before[: len(before) - len(before.lstrip())]
        return indentation + "    " if before.rstrip().endswith(":") else indentation


def difference(old: str, new: str) -> tuple[int, int, str]:
    """The least that makes `new` of `old`: text in the place of what is between two indices."""
    start = 0
    shortest = min(len(old), len(new))
    while start < shortest and old[start] == new[start]:
        start += 1
    n_behind = 0
    while n_behind < shortest - start and old[-1 - n_behind] == new[-1 - n_behind]:
        n_behind += 1
    return start, len(old) - n_behind, new[start : len(new) - n_behind]
