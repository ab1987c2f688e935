"""Notebooks: cells are documents of their own, and the model is shown them as one text. PURE.

Before a cursor stand the cells above its own, behind it those below: code in the same language
alone, and of long notebooks the nearest.

N1  A cell is synchronized as any document is, whatever is sent of the notebook (documents.py).
N2  The cursor's line, its version and what is accepted there are those of its own cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from suture.lsp.documents import MAX_AFTER, MAX_BEFORE, Cursor, Documents
from suture.lsp.sync import CHANGE, CLOSE, OPEN, apply_event, read_object

NOTEBOOK_OPEN, NOTEBOOK_CHANGE, NOTEBOOK_CLOSE = (
    f"notebookDocument/did{event}" for event in ("Open", "Change", "Close")
)
NOTEBOOK_EVENTS = frozenset({NOTEBOOK_OPEN, NOTEBOOK_CHANGE, NOTEBOOK_CLOSE})
_CODE = 2

# What happened to a cell, as if it were told of a document.
Event = tuple[str, str]


class Notebooks:
    """The open notebooks, whose cells are among `documents`."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        # Of each notebook its cells in their order, and whether they are code.
        self._cells: dict[str, list[tuple[str, bool]]] = {}

    def apply(self, method: str, params: Any) -> list[Event]:
        """Take what a client told of a notebook; what happened to its cells."""
        params = read_object(params)
        uri = read_object(params.get("notebookDocument")).get("uri")
        if not isinstance(uri, str):
            return []
        if method == NOTEBOOK_OPEN:
            self._cells[uri] = _cells(read_object(params.get("notebookDocument")).get("cells"))
            return list(self._tell(OPEN, params.get("cellTextDocuments")))
        if method == NOTEBOOK_CLOSE:
            self._cells.pop(uri, None)
            return list(self._tell(CLOSE, params.get("cellTextDocuments")))
        return self._change(uri, read_object(read_object(params.get("change")).get("cells")))

    def around(self, cursor: Cursor) -> Cursor:
        """A cursor in a cell with the text of the other cells around it (N2)."""
        cells = next((cells for cells in self._cells.values() if cursor.uri in dict(cells)), None)
        if cells is None:
            return cursor
        at = [uri for uri, _ in cells].index(cursor.uri)
        above = self._texts(cells[:at][::-1], cursor, MAX_BEFORE - len(cursor.prefix))
        below = self._texts(cells[at + 1 :], cursor, MAX_AFTER - len(cursor.suffix))
        prefix = "".join(f"{text}\n\n" for text in above[::-1]) + cursor.prefix
        suffix = cursor.suffix.rstrip("\r\n") if below else cursor.suffix
        return replace(cursor, prefix=prefix, suffix="\n\n".join([suffix, *below]))

    def _change(self, uri: str, cells: Mapping[str, Any]) -> list[Event]:
        structure = read_object(cells.get("structure"))
        if array := read_object(structure.get("array")):
            known = self._cells.setdefault(uri, [])
            start, n_deleted = (_uint(array.get(name)) for name in ("start", "deleteCount"))
            known[start : start + n_deleted] = _cells(array.get("cells"))
        events = [
            *self._tell(OPEN, structure.get("didOpen")),
            *self._tell(CLOSE, structure.get("didClose")),
        ]
        for one in map(read_object, _list(cells.get("textContent"))):
            params = {
                "textDocument": one.get("document"),
                "contentChanges": one.get("changes"),
            }
            if (changed := apply_event(self._documents, CHANGE, params)) is not None:
                events.append((CHANGE, changed))
        return events

    def _tell(self, method: str, documents: Any) -> Iterator[Event]:
        for document in _list(documents):
            uri = apply_event(self._documents, method, {"textDocument": document})
            if uri is not None:
                yield method, uri

    def _texts(self, cells: Iterable[tuple[str, bool]], cursor: Cursor, room: int) -> list[str]:
        """The texts of the first cells of the cursor's language that there is room for."""
        texts = []
        for uri, is_code in cells:
            document = self._documents.find(uri)
            if document is None or not is_code or document.language != cursor.language:
                continue
            text = document.text.strip("\r\n")
            room -= len(text)
            if room < 0:
                break
            texts.append(text)
        return texts


def _cells(raw: Any) -> list[tuple[str, bool]]:
    told = map(read_object, _list(raw))
    return [
        (cell["document"], cell.get("kind") == _CODE)
        for cell in told
        if isinstance(cell.get("document"), str)
    ]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _uint(value: Any) -> int:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
