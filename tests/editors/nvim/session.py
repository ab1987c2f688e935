"""An editor for many tests: starting one, and its language server, takes seconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from editors.needed import missing
from editors.neovim import HAS_PLUGIN_HOST, Neovim
from support.writing_completer import WritingCompleter

NEEDS_NEOVIM = [
    pytest.mark.e2e,
    pytest.mark.skipif(not HAS_PLUGIN_HOST, reason=missing("nvim or pynvim")),
]

ADD = "def add(a, b):\n    return a + b"
IS_TAB_OURS = "return vim.fn.maparg('<Tab>', 'i', false, true).desc == 'Suture: accept'"
HAS_CLIENT = "return require('suture.server').client(vim.fn.bufnr()) ~= nil"
# One request for each text, and none ahead.
QUIET: dict[str, Any] = {"prefetch": False, "debounceMs": 0}


@dataclass(frozen=True)
class Session:
    """An editor, and what writes in it."""

    editor: Neovim
    completer: WritingCompleter
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def open(
        self,
        text: str,
        name: str | None = None,
        writes: str = ADD,
        closes: bool = False,
        **options: Any,
    ) -> Neovim:
        """The editor with a file, the cursor at its end; `writes` is what will be suggested.

        It is another file each time: the bridge remembers what it suggested in one.
        """
        self.completer.text = writes
        self.editor.configure(QUIET | options, closes_brackets=closes)
        self.editor.open(f"a{next(self.numbers)}.py" if name is None else name, text)
        before = text.split("\n")
        self.editor.go_to(len(before) - 1, len(before[-1]))
        self.editor.enter()
        return self.editor
