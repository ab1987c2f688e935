"""The open documents, kept by incremental sync, and the cursors in them. PURE.

A document is a list of lines, each with its line end, so that a key in a long file touches one
line. Lines end at LF, CRLF and CR, as the protocol has it, and at nothing else that Python takes
for a line end.

L1  The text before a cursor and the text after it are the document, in every encoding.
L2  After any changes the text is what they make of it, applied one by one to the whole text.
L3  Nothing a client sends raises: positions are clamped, what changes before it is opened begins
    empty, versions are taken as they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from suture.lsp.positions import Encoding, index_of

# A long line without an end is tried once, not from each of its characters.
_LINE = re.compile(r"[^\r\n]*+(?:\r\n|\n|\r)|[^\r\n]++")
_SURROGATE = re.compile("[\ud800-\udfff]")
# More than any prompt holds, and what is sent of a long file. It is cut at whole blocks of lines,
# so that what is sent begins at the same line for as long as one types in a place. Where lines are
# long, blocks are smaller: at most a quarter of what there is room for.
MAX_BEFORE = 160_000
MAX_AFTER = 80_000
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Position:
    """A place as clients name it, both counted from 0."""

    line: int
    character: int


@dataclass(frozen=True, slots=True)
class Change:
    """Text in the place of a range; without one, the whole new text."""

    text: str
    start: Position | None = None
    end: Position | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a document at one moment, and the text around it.

    `prefix` and `suffix` may leave out what is far away. `before` and `after` are the cursor's own
    line without its end; `line` counts from 0. `n_changes` is how often the document had changed.
    `is_on_empty_line` tells of the line in the document, also where a text is taken for typed.
    """

    uri: str
    language: str
    version: int | None
    line: int
    before: str
    after: str
    prefix: str
    suffix: str
    n_changes: int = 0
    is_on_empty_line: bool = False


class Document:
    """One document: its lines, its language as the editor names it, its version."""

    def __init__(self, uri: str, language: str, version: int | None, text: str) -> None:
        self.uri = uri
        self.language = language
        self.version = version
        self.n_changes = 0
        self._lines = split_lines(text)

    @property
    def text(self) -> str:
        return "".join(self._lines)

    @property
    def n_lines(self) -> int:
        return len(self._lines)

    def apply(self, change: Change, encoding: Encoding) -> None:
        """Put the text of `change` in the place of its range (L2, L3)."""
        self.n_changes += 1
        if change.start is None or change.end is None:
            self._lines = split_lines(change.text)
            return
        start, end = sorted(
            (self._place(change.start, encoding), self._place(change.end, encoding))
        )
        first = start[0]
        text = self._lines[first][: start[1]] + change.text + self._lines[end[0]][end[1] :]
        if first and text.startswith("\n") and self._lines[first - 1].endswith("\r"):
            # A line end that comes in two halves is one.
            first -= 1
            text = self._lines[first] + text
        lines = split_lines(text)
        if end[0] + 1 < len(self._lines) and not lines[-1]:
            lines.pop()  # what begins there is the next line
        self._lines[first : end[0] + 1] = lines

    def cursor(self, position: Position, encoding: Encoding) -> Cursor:
        """The cursor at a position, and the text around it now (L1)."""
        line, index = self._place(position, encoding)
        whole = self._lines[line]
        prefix = "".join(self._lines[self._window_start(line) : line]) + whole[:index]
        suffix = whole[index:] + "".join(self._lines[line + 1 : self._window_end(line)])
        return Cursor(
            uri=self.uri,
            language=self.language,
            version=self.version,
            line=line,
            before=whole[:index],
            after=whole[index:].rstrip("\r\n"),
            prefix=prefix,
            suffix=suffix,
            n_changes=self.n_changes,
            is_on_empty_line=not whole.rstrip("\r\n"),
        )

    def _place(self, position: Position, encoding: Encoding) -> tuple[int, int]:
        """Line and index of a position; beyond the last line is the end of the document."""
        if position.line >= len(self._lines):
            return len(self._lines) - 1, len(self._lines[-1])
        line = max(0, position.line)
        character = position.character if position.line >= 0 else 0
        return line, index_of(self._lines[line].rstrip("\r\n"), character, encoding)

    def _window_start(self, line: int) -> int:
        n_chars = 0
        for start in range(line, 0, -1):
            n_chars += len(self._lines[start - 1])
            if n_chars > MAX_BEFORE:
                return _at_block(start, line - start)
        return 0

    def _window_end(self, line: int) -> int:
        # Counted from the end of the document, which a new line at the cursor does not move.
        n_chars, n_lines = 0, len(self._lines)
        for end in range(line + 1, n_lines):
            n_chars += len(self._lines[end])
            if n_chars > MAX_AFTER:
                return n_lines - _at_block(n_lines - end, end - line - 1)
        return n_lines


def _at_block(n: int, n_window: int) -> int:
    """The next multiple from `n` on of a block that fits a window of so many lines."""
    block = _BLOCK
    while block > max(1, n_window // 4):
        block //= 2
    return -(-n // block) * block


class Documents:
    """All open documents; `encoding` is what was agreed on with the client."""

    def __init__(self, encoding: Encoding = "utf-16") -> None:
        self.encoding = encoding
        self._documents: dict[str, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(self._documents.values())

    def open(self, uri: str, language: str, version: int | None, text: str) -> None:
        """A document was opened, or opened again."""
        self._documents[uri] = Document(uri, language, version, text)

    def change(self, uri: str, version: int | None, changes: Sequence[Change]) -> None:
        """Apply changes, in their order; a document that was never opened begins empty (L3)."""
        document = self._documents.setdefault(uri, Document(uri, "", version, ""))
        for change in changes:
            document.apply(change, self.encoding)
        document.version = version

    def close(self, uri: str) -> None:
        """Forget a document."""
        self._documents.pop(uri, None)

    def is_current(self, cursor: Cursor) -> bool:
        """Whether nothing has changed since in the cursor's document."""
        document = self.find(cursor.uri)
        return document is not None and document.n_changes == cursor.n_changes

    def find(self, uri: str) -> Document | None:
        """The open document of a URI."""
        return self._documents.get(uri)

    def cursor(self, uri: str, position: Position) -> Cursor | None:
        """The cursor at a position; None where the document is not open."""
        document = self.find(uri)
        return None if document is None else document.cursor(position, self.encoding)


def split_lines(text: str) -> list[str]:
    """The lines of a text with their ends; the last one has none, and may be empty."""
    if _SURROGATE.search(text):
        # Two halves of a character that came one by one are the character.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    lines = _LINE.findall(text)
    return lines if lines and lines[-1][-1] not in "\r\n" else [*lines, ""]


def without_halves(text: str) -> str:
    """A text that can be sent: half a character is U+FFFD, as wide as it was."""
    return _SURROGATE.sub("�", text)
