"""A notebook in an editor: the model is shown the cells around the cursor."""

from __future__ import annotations

import asyncio

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.lsp_client import VSCODE, Json, editing

CELLS = {"vscode-notebook-cell:/w/n.ipynb#a": "import os", "vscode-notebook-cell:/w/n.ipynb#b": "x"}


def test_a_cell_is_completed_with_those_above_it() -> None:
    completer = FakeCompleter(says(" = os.getcwd()"))
    above, own = CELLS
    book: Json = {
        "notebookDocument": {
            "uri": "file:///w/n.ipynb",
            "notebookType": "jupyter-notebook",
            "version": 1,
            "cells": [{"kind": 2, "document": uri} for uri in CELLS],
        },
        "cellTextDocuments": [
            {"uri": uri, "languageId": "python", "version": 1, "text": text}
            for uri, text in CELLS.items()
        ],
    }

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"prefetch": False}) as editor:
            editor.notify("notebookDocument/didOpen", book)
            (item,) = await editor.inline(0, 1, uri=own)
            # What is accepted is in the cell alone.
            assert item["insertText"] == "x = os.getcwd()"
            assert item["range"]["start"] == {"line": 0, "character": 0}
            closed = {
                "notebookDocument": {"uri": "file:///w/n.ipynb"},
                "cellTextDocuments": [{"uri": uri} for uri in CELLS],
            }
            editor.notify("notebookDocument/didClose", closed)
            assert await editor.inline(0, 1, uri=above) == []

    with serving(completer) as url:
        asyncio.run(edit(url))
    (request,) = completer.requests
    assert (request.prefix, request.suffix) == ("import os\n\nx", "")
    assert (request.path, request.language) == ("/w/n.ipynb", "python")
