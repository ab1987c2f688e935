"""The texts of a step, open or from the disk, with what they define. For one thread.

C4  What may not be shown has no source. The text of an open document is the one in the editor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suture.lsp.context.chunks import lines_of
from suture.lsp.context.definitions import definitions_of, grammar_of
from suture.lsp.context.disk import Disk
from suture.lsp.context.excerpts import Definition
from suture.lsp.context.exclusions import is_unfit
from suture.lsp.context.look import Opened
from suture.lsp.context.parsed import Known, Parsed, Stamp


@dataclass(frozen=True, slots=True)
class Source:
    """A file's lines, and what they define."""

    path: str
    grammar: str | None
    lines: list[str]
    definitions: tuple[Definition, ...]


class Sources:
    """The files that one step looks at."""

    def __init__(self, opened: Mapping[str, Opened], disk: Disk, parsed: Parsed) -> None:
        self._opened = opened
        self._disk = disk
        self._parsed = parsed

    def at_hand(self, path: str) -> Source:
        """The document at hand, of which nothing is shown, whatever is in it."""
        document = self._opened[path]
        lines = lines_of(document.text)
        grammar = grammar_of(path, document.language)
        return Source(path, grammar, lines, definitions_of(grammar, lines) if grammar else ())

    def of(self, path: str) -> Source | None:
        """A file's source; None where it is not there, or not to be shown (C4)."""
        document = self._opened.get(path)
        stamp = self._stamp(path)
        known = None if stamp is None else self._parsed.find(path, stamp)
        if stamp is None or (known is not None and known.definitions is None):
            return None
        text = self._text(path)
        if text is None:
            return None
        lines = lines_of(text)
        grammar = grammar_of(path, document.language if document is not None else None)
        known = known or self._parsed.add(path, _found(stamp, grammar, text, lines))
        if known.definitions is None:
            return None
        return Source(path, grammar, lines, known.definitions)

    def has(self, path: str) -> bool:
        """Whether a file has a source; it is read where it is not known, and never parsed."""
        stamp = self._stamp(path)
        if stamp is None:
            return False
        if (known := self._parsed.find(path, stamp)) is not None:
            return known.definitions is not None
        text = self._text(path)
        return text is not None and not is_unfit(text)

    def _text(self, path: str) -> str | None:
        document = self._opened.get(path)
        return self._disk.read(path) if document is None else document.text

    def _stamp(self, path: str) -> Stamp | None:
        document = self._opened.get(path)
        if document is None:
            return self._disk.stamp(path)
        return document.stamp if self._disk.may_show(path) else None


def _found(stamp: Stamp, grammar: str | None, text: str, lines: list[str]) -> Known:
    if is_unfit(text):
        return Known(stamp, None)
    return Known(stamp, definitions_of(grammar, lines) if grammar else ())
