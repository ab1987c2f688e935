"""What follows a suggestion, asked for ahead: in the pause while one reads it.

Q2  One text at a time. Any other request ends it; who accepts the suggestion gets it, also while it
    is on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from suture.lsp.documents import Cursor
from suture.lsp.shown import Suggestion
from suture.lsp.writing import Writing


class Ahead:
    """The text that is written, or was, where nobody is yet; `begin` has one written."""

    def __init__(self, begin: Callable[[Cursor], Writing]) -> None:
        self._begin = begin
        self._writing: Writing | None = None

    @property
    def is_busy(self) -> bool:
        """Whether one is being written."""
        return self._writing is not None and not self._writing.is_over

    def fetch(self, cursor: Cursor) -> None:
        """Have the text at a cursor written, if it was not asked for already."""
        if not self._is_at(cursor):
            self.end()
            self._writing = self._begin(cursor)

    def take(self, cursor: Cursor) -> Writing | None:
        """The text that was asked for at this very cursor, which is ahead no more."""
        return self._take() if self._is_at(cursor) else None

    def take_shown(self, suggestion: Suggestion) -> Writing | None:
        """The text that is being written of which this is a part, as that is shown now."""
        writing = self._writing
        if writing is None or writing.is_over or writing.known is None:
            return None
        return self._take() if writing.known.number == suggestion.number else None

    def end(self) -> None:
        """Nobody wants it."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _take(self) -> Writing | None:
        writing, self._writing = self._writing, None
        return writing

    def _is_at(self, cursor: Cursor) -> bool:
        if self._writing is None:
            return False
        at = self._writing.cursor
        return (at.uri, at.prefix, at.suffix) == (cursor.uri, cursor.prefix, cursor.suffix)


def after_accepting(cursor: Cursor, suggestion: Suggestion) -> Cursor:
    """The cursor behind a suggestion that was accepted."""
    prefix = cursor.prefix + suggestion.text
    suffix = cursor.suffix[suggestion.delete_after :]
    before = (cursor.before + suggestion.text).replace("\r", "\n").rpartition("\n")[2]
    after = cursor.after[suggestion.delete_after :]
    return replace(
        cursor,
        line=cursor.line + suggestion.text.count("\n"),
        before=before,
        after=after,
        prefix=prefix,
        suffix=suffix,
        is_on_empty_line=not before and not after,
    )
