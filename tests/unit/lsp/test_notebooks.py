"""Cells of a notebook are documents, and one text to the model."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from support.json_values import JSON
from suture.lsp.documents import MAX_BEFORE, Cursor, Documents, Position
from suture.lsp.notebooks import (
    NOTEBOOK_CHANGE,
    NOTEBOOK_CLOSE,
    NOTEBOOK_EVENTS,
    NOTEBOOK_OPEN,
    Notebooks,
)

Json = dict[str, Any]
BOOK = "file:///n.ipynb"


def cell(uri: str, kind: int = 2) -> Json:
    return {"kind": kind, "document": uri}


def document(uri: str, text: str, language: str = "python") -> Json:
    return {"uri": uri, "languageId": language, "version": 1, "text": text}


def opened(*texts: str) -> tuple[Documents, Notebooks]:
    """A notebook with a cell of code for each text, whose URIs are `c:0` and so on."""
    documents = Documents()
    notebooks = Notebooks(documents)
    uris = [f"c:{n}" for n in range(len(texts))]
    told = {
        "notebookDocument": {"uri": BOOK, "version": 0, "cells": [cell(uri) for uri in uris]},
        "cellTextDocuments": [document(*both) for both in zip(uris, texts, strict=True)],
    }
    notebooks.apply(NOTEBOOK_OPEN, told)
    return documents, notebooks


def changed(cells: Json) -> Json:
    return {"notebookDocument": {"uri": BOOK, "version": 1}, "change": {"cells": cells}}


def cursor_in(documents: Documents, notebooks: Notebooks, uri: str, at: Position) -> Cursor:
    cursor = documents.cursor(uri, at)
    assert cursor is not None
    return notebooks.around(cursor)


def test_the_cells_above_and_below_stand_around_the_cursor() -> None:
    documents, notebooks = opened("import os\n", "os.\nx = 1", "print(x)")
    cursor = cursor_in(documents, notebooks, "c:1", Position(0, 3))
    assert cursor.prefix == "import os\n\nos."
    assert cursor.suffix == "\nx = 1\n\nprint(x)"
    assert (cursor.line, cursor.before, cursor.after, cursor.uri) == (0, "os.", "", "c:1")
    last = cursor_in(documents, notebooks, "c:2", Position(0, 8))
    assert (last.prefix, last.suffix) == ("import os\n\nos.\nx = 1\n\nprint(x)", "")


def test_cells_of_text_and_of_other_languages_are_left_out() -> None:
    documents, notebooks = opened("a", "b", "c")
    notebooks.apply(
        NOTEBOOK_CHANGE,
        changed(
            {
                "structure": {
                    "array": {"start": 1, "deleteCount": 1, "cells": [cell("m", 1), cell("s")]},
                    "didOpen": [document("m", "# title", "markdown"), document("s", "ls", "bash")],
                    "didClose": [{"uri": "c:1"}],
                }
            }
        ),
    )
    assert cursor_in(documents, notebooks, "c:2", Position(0, 1)).prefix == "a\n\nc"
    assert cursor_in(documents, notebooks, "s", Position(0, 2)).prefix == "ls"
    assert documents.find("c:1") is None


def test_n1_a_cell_changes_as_a_document_does() -> None:
    documents, notebooks = opened("x", "y")
    start = {"line": 0, "character": 1}
    edit = {"range": {"start": start, "end": start}, "text": " = 1\n"}
    text = {"document": {"uri": "c:0", "version": 2}, "changes": [edit]}
    told = notebooks.apply(NOTEBOOK_CHANGE, changed({"textContent": [text]}))
    assert told == [("textDocument/didChange", "c:0")]
    assert cursor_in(documents, notebooks, "c:1", Position(0, 1)).prefix == "x = 1\n\ny"
    changed_cell = documents.find("c:0")
    assert changed_cell is not None and changed_cell.version == 2


def test_of_a_long_notebook_the_nearest_cells_are_shown() -> None:
    documents, notebooks = opened("far", "x" * (MAX_BEFORE - 10), "near", "y")
    cursor = cursor_in(documents, notebooks, "c:3", Position(0, 1))
    assert cursor.prefix.endswith("x\n\nnear\n\ny") and len(cursor.prefix) <= MAX_BEFORE + 10
    documents, notebooks = opened("far", "x" * MAX_BEFORE, "near", "y")
    assert cursor_in(documents, notebooks, "c:3", Position(0, 1)).prefix == "near\n\ny"


def test_a_notebook_that_was_closed_has_no_cells_and_other_documents_stand_alone() -> None:
    documents, notebooks = opened("a", "b")
    documents.open("file:///a.py", "python", 1, "alone")
    assert cursor_in(documents, notebooks, "file:///a.py", Position(0, 5)).prefix == "alone"
    closed = {
        "notebookDocument": {"uri": BOOK},
        "cellTextDocuments": [{"uri": "c:0"}, {"uri": "c:1"}],
    }
    told = notebooks.apply(NOTEBOOK_CLOSE, closed)
    assert told == [("textDocument/didClose", "c:0"), ("textDocument/didClose", "c:1")]
    assert documents.find("c:0") is None


@given(JSON)
def test_nothing_that_is_sent_raises(value: Any) -> None:
    for method in NOTEBOOK_EVENTS:
        documents, notebooks = opened("a", "b")
        about = {"uri": BOOK, "cells": value}
        structure = {"array": value, "didOpen": value, "didClose": value}
        array = {"array": {"start": value, "deleteCount": value, "cells": value}}
        for cells in (value, {"structure": value, "textContent": value}, {"structure": structure},
                      {"structure": array}):  # fmt: skip
            params = {"notebookDocument": about, "cellTextDocuments": value}
            notebooks.apply(method, {**params, "change": {"cells": cells}})
        notebooks.apply(method, value)
        if (cursor := documents.cursor("c:1", Position(0, 0))) is not None:
            notebooks.around(cursor)
