"""A real Neovim in which one types, driven over its standard streams."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(sys.executable).with_name("nvim")
NVIM = str(_BESIDE) if _BESIDE.exists() else shutil.which("nvim")
# The plugins ask with curl.
HAS_NEOVIM = bool(NVIM and shutil.which("curl") and importlib.util.find_spec("pynvim"))

_GHOST = """
local space = vim.api.nvim_get_namespaces()[...]
local marks = space and vim.api.nvim_buf_get_extmarks(0, space, 0, -1, {details = true}) or {}
local ghost = {shown = "", info = "", below = {}}
for _, mark in ipairs(marks) do
  local details = mark[4]
  for i, part in ipairs(details.virt_text or {}) do
    if i == 1 then ghost.shown = part[1] else ghost.info = part[1] end
  end
  for _, line in ipairs(details.virt_lines or {}) do table.insert(ghost.below, line[1][1]) end
end
return ghost
"""


class Editor:
    """A Neovim whose ghost text is in the namespace `ghosts`."""

    def __init__(self, nvim: Any, ghosts: str) -> None:
        self.nvim = nvim
        self._ghosts = ghosts

    @property
    def lines(self) -> list[str]:
        return list(self.nvim.current.buffer[:])

    @property
    def ghost(self) -> Any:
        """What is shown: `shown` in the line, `info` behind it, the lines `below`."""
        return self.nvim.exec_lua(_GHOST, self._ghosts)

    @property
    def messages(self) -> str:
        return str(self.nvim.command_output("messages"))

    def type(self, keys: str) -> None:
        self.nvim.input(keys)

    def until(self, holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
        """Wait until it does, a while."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, (self.ghost, self.lines, self.messages)
            time.sleep(0.02)


@contextmanager
def editing(folder: Path, plugin: str, ghosts: str, commands: Sequence[str]) -> Iterator[Editor]:
    """An editor in `folder`, with nobody's settings and one plugin, that ran `commands` first."""
    pynvim: Any = importlib.import_module("pynvim")
    homes = [f"XDG_{name}_HOME" for name in ("CACHE", "CONFIG", "DATA", "STATE")]
    before = [f"set rtp+={plugin}", f"cd {folder}", *commands]
    given = [argument for command in before for argument in ("--cmd", command)]
    with pytest.MonkeyPatch.context() as patch:  # for the child, which takes no other way
        for name in homes:
            patch.setenv(name, str(folder))
        patch.setenv("no_proxy", "127.0.0.1")
        nvim = pynvim.attach(
            "child", argv=[str(NVIM), "--headless", "--embed", "--clean", "-n", *given]
        )
    try:
        nvim.ui_attach(160, 40)
        yield Editor(nvim, ghosts)
    finally:
        try:
            nvim.command("qall!")
        except (EOFError, OSError):
            pass
        finally:
            nvim.close()
