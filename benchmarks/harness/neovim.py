"""A real Neovim with one plugin, in which ghost text is timed when it is drawn.

The time of a key is when it is sent, that of a ghost when the screen with it has been drawn, both
on the monotonic clock, which Neovim and Python read alike.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.front_ends import Ghost, Key, is_rest
from harness.texts import ROOT

PATIENCE_S = 60.0
# After a key the plugin has asked by then, or will not.
ASKED_S = 0.3
READY_S = 60.0
POLL_S = 0.004

_WATCH = """
local namespace = ...
local api, log, last = vim.api, {}, ""
local function shown()
  local space, text = api.nvim_get_namespaces()[namespace], {}
  if not space then return "" end
  for _, mark in ipairs(api.nvim_buf_get_extmarks(0, space, 0, -1, { details = true })) do
    for _, part in ipairs(mark[4].virt_text or {}) do table.insert(text, part[1]) end
    for _, line in ipairs(mark[4].virt_lines or {}) do
      table.insert(text, "\\n")
      for _, part in ipairs(line) do table.insert(text, part[1]) end
    end
  end
  return table.concat(text)
end
-- With syntax highlighting Neovim draws a first time before plugins hear of a key. Only the last
-- drawing before it waits for events is shown.
local drawn
api.nvim_set_decoration_provider(api.nvim_create_namespace("ghost_watch"), {
  on_end = function()
    if not drawn then
      vim.schedule(function()
        if drawn[2] .. drawn[3] ~= last then
          last = drawn[2] .. drawn[3]
          table.insert(log, drawn)
        end
        drawn = nil
      end)
    end
    drawn = { vim.uv.hrtime() / 1e6, api.nvim_buf_get_changedtick(0), shown() }
  end,
})
_G.shown_ghost = shown
function _G.drawn_ghosts()
  local taken = log
  log = {}
  return taken
end
"""


@dataclass(frozen=True, slots=True)
class Plugin:
    """What an editor is started with: a folder, and Vim script to run before and after it.

    `ghosts` is the namespace of its ghost text. `is_ready` and `is_asking` are Lua expressions.
    """

    name: str
    folder: Path
    before: str
    after: str
    ghosts: str
    is_ready: str = "true"
    is_asking: str = "true"


def llama_vim(folder: Path, url: str) -> Plugin:
    """llama.vim as it is by itself, but that it says no times behind its text."""
    config = json.dumps({"endpoint_fim": f"{url}/infill", "show_info": 0})
    before = f"let g:llama_config = json_decode('{config}')"
    return Plugin("llama.vim", folder, before, "", "vt_fim")


def suture_nvim(url: str) -> Plugin:
    """Our plugin as it is by itself, with a bridge of this checkout that asks at `url`."""
    command = [sys.executable, "-m", "suture.server", "lsp", "--server", url]
    after = (
        f"lua require('suture').setup({{ cmd = vim.json.decode([==[{json.dumps(command)}]==]) }})"
    )
    folder = ROOT / "editor-clients" / "nvim"
    return Plugin("suture's plugin", folder, "", after, "suture", _IS_READY, _IS_ASKING)


_IS_READY = "(vim.lsp.get_clients({ name = 'suture' })[1] or {}).initialized == true"
_IS_ASKING = """
vim.iter(pairs(vim.lsp.get_clients({ name = 'suture' })[1].requests)):any(function(_, one)
  return one.type == 'pending' and one.method == 'textDocument/inlineCompletion'
end)
"""


class Neovim:
    """One editor, with documents in `folder`."""

    def __init__(self, nvim: Any, plugin: Plugin, folder: Path) -> None:
        self.name = f"Neovim, {plugin.name}"
        self._nvim = nvim
        self._plugin = plugin
        self._folder = folder
        self._n_documents = 0
        self._is_inserting = False
        nvim.command("filetype indent off | set noautoindent nofixendofline")
        nvim.exec_lua(_WATCH, plugin.ghosts)

    def open(self, before: str, after: str) -> None:
        if after and not after.startswith("\n"):
            raise ValueError("the cursor must be at the end of its line")
        self._n_documents += 1
        path = self._folder / f"{self._n_documents}.py"
        path.write_text(before + after)
        self._nvim.input("<Esc>")
        self._nvim.command(f"edit! {path}")
        self._nvim.current.window.cursor = (before.count("\n") + 1, 0)
        give_up = time.monotonic() + READY_S
        while not self._is(self._plugin.is_ready):
            if time.monotonic() > give_up:
                raise SystemExit(f"{self.name} is not ready: {self.messages}")
            time.sleep(0.05)
        self._is_inserting = False
        self._drawn()

    def press(self, key: Key) -> Ghost | None:
        before = self._shown()
        tick, started = self._tick(), time.monotonic()
        self._input(key)
        while (now := time.monotonic()) < started + PATIENCE_S:
            is_asking = now < started + ASKED_S or self._is(self._plugin.is_asking)
            for ms, at, text in self._drawn():
                if at > tick and text:
                    return Ghost(text, ms - started * 1e3, is_rest(before, key, text))
            if not is_asking:
                return None
            time.sleep(POLL_S)
        return None

    def type(self, keys: Sequence[Key], ms_a_key: float, pause_s: float) -> list[Ghost | None]:
        """Type with so much time for each key and a pause after each line; what each has shown.

        A ghost that came after the next key is of none.
        """
        self._drawn()
        started: list[float] = []
        due = time.monotonic()
        for key in keys:
            time.sleep(max(due - time.monotonic(), 0.0))
            started.append(time.monotonic() * 1e3)
            self._input(key)
            due += ms_a_key / 1e3 + (pause_s if key.startswith("\n") else 0.0)
        time.sleep(pause_s)
        ends = [*started[1:], float("inf")]
        drawn = [(ms, text) for ms, _, text in self._drawn() if text]
        return [
            next((Ghost(text, ms - begin) for ms, text in drawn if begin < ms < end), None)
            for begin, end in zip(started, ends, strict=True)
        ]

    @property
    def text(self) -> str:
        """The document, without a line end at its end."""
        return "\n".join(self._nvim.current.buffer[:])

    @property
    def messages(self) -> str:
        return str(self._nvim.command_output("messages"))

    def _input(self, key: Key) -> None:
        """Type a key; the first one of a document begins inserting, where plugins ask as well."""
        typed = key.replace("<", "<LT>").replace("\n", "<CR>")
        self._nvim.input(typed if self._is_inserting else f"A{typed}")
        self._is_inserting = True

    def _tick(self) -> int:
        return int(self._nvim.current.buffer.vars["changedtick"])

    def _is(self, expression: str) -> bool:
        return bool(self._nvim.exec_lua(f"return {expression}"))

    def _shown(self) -> str:
        """What is shown now."""
        self._drawn()
        return str(self._nvim.exec_lua("return shown_ghost()"))

    def _drawn(self) -> list[tuple[float, int, str]]:
        return [(ms, tick, text) for ms, tick, text in self._nvim.exec_lua("return drawn_ghosts()")]


@contextlib.contextmanager
def neovim(program: str, plugin: Plugin) -> Iterator[Neovim]:
    """An editor with nobody's settings, whose files are gone with it."""
    pynvim: Any = importlib.import_module("pynvim")
    with tempfile.TemporaryDirectory() as folder, _environment(_homes(folder)):
        scripts = [f"set rtp^={plugin.folder}", plugin.before]
        commands = [part for script in scripts if script for part in ("--cmd", script)]
        after = ["-c", plugin.after] if plugin.after else []
        argv = [program, "--headless", "--embed", "--clean", "-n", *commands, *after]
        nvim = pynvim.attach("child", argv=argv)
        try:
            nvim.ui_attach(120, 40)
            yield Neovim(nvim, plugin, Path(folder))
        finally:
            with contextlib.suppress(EOFError, OSError):
                nvim.command("qall!")
            nvim.close()


def _homes(folder: str) -> Mapping[str, str]:
    names = [f"XDG_{name}_HOME" for name in ("CACHE", "CONFIG", "DATA", "STATE")]
    return dict.fromkeys((*names, "SUTURE_CACHE"), folder) | {"no_proxy": "127.0.0.1"}


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes started in the block have."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
