"""One Neovim for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from editors.neovim import Neovim, editing
from editors.nvim.session import HAS_CLIENT, Session
from support.http_server import serving
from support.writing_completer import WritingCompleter


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A Neovim, and what writes in it."""
    completer = WritingCompleter()
    with (
        serving(completer) as url,
        editing(url, tmp_path_factory.mktemp("workspace")) as editor,
    ):
        session = Session(editor, completer)
        session.open("")
        # On a busy machine this takes far longer than what a test waits for.
        editor.until(lambda: bool(editor.lua(HAS_CLIENT)))
        yield session


@pytest.fixture
def opened(session: Session) -> Neovim:
    """An empty file, in which `ADD` is suggested."""
    return session.open("")
