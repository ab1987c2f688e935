"""What was shown of late in all documents of an editor, as it can be shown at a cursor. PURE."""

from __future__ import annotations

from dataclasses import replace

from suture.lsp.documents import Cursor
from suture.lsp.shown import Shown, Suggestion


class Remembered:
    """The suggestions of each document.

    Without `shows_last_line_end` a text on an empty line is cut before its last line ends: what is
    shown, counted and gone on from is one text.
    """

    def __init__(self) -> None:
        self.shows_last_line_end = True
        self._shown: dict[str, Shown] = {}

    def add(self, cursor: Cursor, suggestion: Suggestion) -> None:
        """Remember a suggestion for a cursor."""
        self._in(cursor.uri).add(cursor.prefix, cursor.suffix, suggestion)

    def rest(self, cursor: Cursor) -> Suggestion | None:
        """What is left, at a cursor, of what was shown or fetched ahead."""
        rest = self._in(cursor.uri).rest(cursor.prefix, cursor.suffix)
        return None if rest is None else self.cut(cursor, rest)

    def cut(self, cursor: Cursor, suggestion: Suggestion) -> Suggestion:
        """A suggestion as it can be shown at a cursor."""
        if self.shows_last_line_end or not cursor.is_on_empty_line:
            return suggestion
        return replace(suggestion, text=suggestion.text.rstrip("\r\n"))

    def forget(self, uri: str | None) -> None:
        """Forget what was shown in a document, or in all."""
        if uri is None:
            self._shown.clear()
        else:
            self._shown.pop(uri, None)

    def _in(self, uri: str) -> Shown:
        return self._shown.setdefault(uri, Shown())
