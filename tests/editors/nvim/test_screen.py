"""What Neovim's client shows on the screen of a terminal, which nothing but that shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from editors.needed import missing
from editors.neovim import COMMAND, PLUGIN, TIMEOUT_S
from editors.nvim.session import ADD, NEEDS_NEOVIM
from support.http_server import serving
from support.neovim import NVIM
from support.writing_completer import WritingCompleter

pytestmark = NEEDS_NEOVIM

needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason=missing("tmux"))


class Terminal:
    """A Neovim in a terminal of its own, whose screen is read."""

    def __init__(self, name: str, folder: Path) -> None:
        self._tmux = ["tmux", "-L", name, "-f", "/dev/null"]
        self._folder = folder

    def run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.run("send-keys", *(["-l", key] if len(key) == 1 or " " in key else [key]))

    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.run("capture-pane", "-p").split("\n")]

    def until(self, wanted: list[str]) -> None:
        """Wait until the screen begins with these rows."""
        deadline = time.monotonic() + TIMEOUT_S
        while (rows := self.rows)[: len(wanted)] != wanted:
            assert time.monotonic() < deadline, rows
            time.sleep(0.05)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[tuple[Terminal, WritingCompleter]]:
    completer = WritingCompleter(text=ADD)
    # A name of its own: the tmux of the test before may still be on its way out.
    terminal = Terminal(f"suture-{os.getpid()}-{tmp_path.name}", tmp_path)
    with serving(completer) as url:
        command = ", ".join(f"'{word}'" for word in COMMAND)
        (tmp_path / "init.lua").write_text(f"""
          vim.opt.rtp:append('{PLUGIN}')
          vim.opt.swapfile, vim.opt.shortmess = false, 'FIcltToOC'
          vim.opt.laststatus, vim.opt.ruler, vim.opt.showmode = 0, false, false
          vim.opt.expandtab = true
          vim.keymap.set('i', '(', '()<C-g>U<Left>')
          vim.g.suture = {{ cmd = {{ {command} }}, prefetch = false, server = {{ url = '{url}' }} }}
        """)
        homes = {f"XDG_{name}_HOME": str(tmp_path) for name in ("CACHE", "CONFIG", "DATA", "STATE")}
        environment = [f"{name}={value}" for name, value in homes.items()]
        editor = [str(NVIM), "--clean", "-n", "-u", str(tmp_path / "init.lua"), "a.py"]
        terminal.run(
            *("new-session", "-d", "-x", "60", "-y", "12", "-c", str(tmp_path)),
            *("env", *environment, *editor),
        )
        try:
            yield terminal, completer
        finally:
            terminal.run("kill-server")


@needs_tmux
def test_the_screen_shows_it_around_a_closed_bracket_and_takes_it(
    terminal: tuple[Terminal, WritingCompleter], tmp_path: Path
) -> None:
    screen, _ = terminal
    screen.until(["", "~"])
    screen.keys("i", *"def", "Space", *"add(")
    screen.until(["def add(a, b):", "    return a + b", "~"])
    colours = screen.run("capture-pane", "-p", "-e").split("\n")[0]
    assert colours.startswith("def add(") or "\x1b" in colours
    # The bracket that is there is not grey, what is around it is.
    assert colours.count("\x1b[") >= 4
    screen.keys("M-w")
    screen.until(["def add(a, b):", "    return a + b"])
    screen.keys("Tab")
    screen.until(["def add(a, b):", "    return a + b", "~"])
    # No Escape: with the key behind it, it would be one with Alt.
    screen.keys("C-o", ":", "w", "Enter")
    deadline = time.monotonic() + TIMEOUT_S
    path = tmp_path / "a.py"
    while not path.exists() or path.read_text() != ADD + "\n":
        assert time.monotonic() < deadline, path.exists() and path.read_text()
        time.sleep(0.05)


@needs_tmux
def test_the_screen_shows_a_bracket_that_is_there_where_it_will_be(
    terminal: tuple[Terminal, WritingCompleter],
) -> None:
    screen, completer = terminal
    completer.text = "f(\n  a,\n)"
    screen.until(["", "~"])
    screen.keys("i", "f", "(")
    # The line has the bracket; the screen has it two lines below.
    screen.until(["f(", "  a,", ")", "~"])
    screen.keys("M-l")
    screen.until(["f(", "  a,", ")", "~"])
    screen.keys("Tab")
    screen.until(["f(", "  a,", ")", "~"])
