"""Neovim as a front end of scenarios: the plugin of `editor-clients/nvim` in a real editor.

It is driven over RPC. What is shown is read from what the plugin has drawn; `nvim/test_screen.py`
compares that with the screen of a terminal.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from editors.front_end import Key, Name, Part
from support.neovim import NVIM, Editor
from support.neovim import editing as editing_neovim

PLUGIN = Path(__file__).parents[2] / "editor-clients" / "nvim"
HAS_PLUGIN_HOST = bool(NVIM and importlib.util.find_spec("pynvim"))
COMMAND = [sys.executable, "-m", "suture.server", "lsp"]
# Far more than it takes: these machines are shared.
TIMEOUT_S = 60.0

# Behind the last line end of a file there is a line to go to, as in other editors: the same text.
_LAST_LINE = (
    "lua vim.api.nvim_create_autocmd('BufReadPost', { callback = function() "
    "if vim.bo.endofline and vim.fn.getfsize(vim.fn.expand('%:p')) > 0 then "
    "vim.bo.undolevels = -1; vim.fn.append('$', ''); vim.bo.undolevels = -123456 end "
    "vim.bo.endofline, vim.bo.modified = false, false end })"
)
_BEFORE = (
    "set nofixendofline noswapfile shortmess+=FcI completeopt=menu,menuone,noinsert",
    # A place behind the last character is one in Insert mode only, otherwise.
    "set virtualedit=onemore",
    _LAST_LINE,
    # Nothing before the tests begin.
    "let g:suture = #{filetypes: {'*': v:false}}",
)
_KEYS: Mapping[str, str] = {
    "Backspace": "<BS>",
    "Delete": "<Del>",
    "Enter": "<CR>",
    "Escape": "<Esc>",
    **{name: f"<{name}>" for name in ("Tab", "Left", "Right", "Up", "Down", "Home", "End")},
}
_ACCEPT: Mapping[Part, str] = {"all": "<Tab>", "word": "<M-w>", "line": "<M-l>"}
_SPECIAL = {"<": "<lt>", "\n": "<CR>", "\t": "<C-v><Tab>", "\\": "<Bslash>", "|": "<Bar>"}

_LISTEN = """
_G.told = {}
vim.notify = function(text, level) table.insert(_G.told, { text, level or vim.log.levels.INFO }) end
"""
_CLOSE_BRACKETS = """
local closes = ...
for open, close in pairs({ ['('] = ')', ['['] = ']', ['{'] = '}' }) do
  if closes then
    vim.keymap.set('i', open, open .. close .. '<C-g>U<Left>')
    vim.keymap.set('i', close, function()
      local col = vim.fn.col('.')
      return vim.fn.getline('.'):sub(col, col) == close and '<C-g>U<Right>' or close
    end, { expr = true })
  else
    pcall(vim.keymap.del, 'i', open)
    pcall(vim.keymap.del, 'i', close)
  end
end
for _, quote in ipairs({ '"', "'" }) do
  if closes then
    vim.keymap.set('i', quote, function()
      local col = vim.fn.col('.')
      local is_there = vim.fn.getline('.'):sub(col, col) == quote
      return is_there and '<C-g>U<Right>' or quote .. quote .. '<C-g>U<Left>'
    end, { expr = true })
  else
    pcall(vim.keymap.del, 'i', quote)
  end
end
"""
_POPUP = """
local rows = ...
local before = vim.api.nvim_get_current_line():sub(1, vim.api.nvim_win_get_cursor(0)[2])
vim.fn.complete(vim.fn.match(before, [[\\k*$]]) + 1, rows)
"""
_UNNAMED = """
local lines, format = ...
local bufnr = vim.api.nvim_create_buf(true, false)
vim.bo[bufnr].endofline, vim.bo[bufnr].fileformat = false, format
vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, lines)
vim.api.nvim_set_current_buf(bufnr)
"""
_DRAWN = """
local space = vim.api.nvim_create_namespace('suture')
local drawn = {}
for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, space, 0, -1, { details = true })) do
  local details, below = mark[4], {}
  for _, line in ipairs(details.virt_lines or {}) do table.insert(below, line[1][1]) end
  table.insert(drawn, {
    row = mark[2],
    col = mark[3],
    text = details.virt_text and details.virt_text[1][1] or '',
    over = details.virt_text_pos == 'overlay',
    below = below,
  })
end
return { lines = vim.api.nvim_buf_get_lines(0, 0, -1, false), drawn = drawn,
  tabstop = vim.bo.tabstop }
"""


class Neovim:
    """A `FrontEnd`. `nvim` is the editor itself, for what is Neovim's own."""

    name: Name = "neovim"

    def __init__(self, editor: Editor, url: str, workspace: Path) -> None:
        self.nvim = editor.nvim
        self._url = url
        self._workspace = workspace
        self._is_configured = False
        self._inserts = False
        self.lua(_LISTEN)

    def lua(self, code: str, *arguments: object) -> Any:
        return self.nvim.exec_lua(code, *arguments)

    def configure(self, options: Mapping[str, Any], closes_brackets: bool) -> None:
        given = {"cmd": COMMAND, **options}
        given["server"] = {"url": self._url, **given.get("server", {})}
        self.lua("vim.g.suture = nil; require('suture').setup(...)", given)
        self.lua(_CLOSE_BRACKETS, closes_brackets)
        self._is_configured = True

    def open(self, name: str, text: str) -> None:
        if not self._is_configured:
            self.configure({}, closes_brackets=False)
        self.nvim.command("stopinsert | silent only!")
        if name:
            path = self._workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            self.nvim.command(f"silent! bwipeout! {name}")
            self.nvim.command(f"silent edit! {path}")
        else:
            line_end = "\r\n" if "\r\n" in text else "\n"
            file_format = "dos" if "\r" in line_end else "unix"
            self.lua(_UNNAMED, text.split(line_end), file_format)
        self.nvim.current.window.cursor = (1, 0)
        self.lua("_G.told = {}; vim.v.errmsg = ''")
        self._inserts = False

    def enter(self) -> None:
        """Go into Insert mode, as whoever opened a file does before the first key.

        Not sooner: it is asked for a suggestion then, and the cursor may be elsewhere still.
        """
        if not self._inserts:
            self._inserts = True
            self.nvim.command("startinsert")
            self.until(lambda: self.mode == "i")

    def go_to(self, line: int, index: int) -> None:
        before = self.nvim.current.buffer[line][:index]
        self.nvim.current.window.cursor = (line + 1, len(before.encode()))

    def type(self, text: str, ms_a_key: int = 0) -> None:
        self.enter()
        for char in text:
            self.input(_SPECIAL.get(char, char))
            time.sleep(ms_a_key / 1000)

    def press(self, key: Key) -> None:
        self.enter()
        self.input(_KEYS[key])

    def paste(self, text: str) -> None:
        self.enter()
        self.nvim.api.paste(text, True, -1)

    def accept(self, part: Part) -> None:
        self.input(_ACCEPT[part])

    def ask(self) -> None:
        self.enter()
        self.input("<M-]>")

    def dismiss(self) -> None:
        self.input("<C-]>")

    def show_popup(self, rows: Sequence[str]) -> None:
        self.enter()
        if rows:
            self.lua(_POPUP, list(rows))
        else:
            self.input("<C-e>")

    def split(self) -> None:
        self.lua("vim.api.nvim_open_win(0, false, { split = 'below' })")

    def undo(self) -> None:
        self.input("<C-o>u")

    @property
    def text(self) -> str:
        return self._as_saved(list(self.nvim.current.buffer[:]))

    @property
    def cursor(self) -> tuple[int, int]:
        row, col = self.nvim.current.window.cursor
        line = self.nvim.current.buffer[row - 1].encode()
        return row - 1, len(line[:col].decode())

    @property
    def preview(self) -> str:
        known = self.lua(_DRAWN)
        indents_with_tabs = any("\t" in line for line in known["lines"])
        shown: list[str] = []
        for row, line in enumerate(known["lines"]):
            marks = [mark for mark in known["drawn"] if mark["row"] == row]
            shown.append(_with_marks(line, marks))
            below = [text for mark in marks for text in mark["below"]]
            if indents_with_tabs:
                below = [_with_tabs(text, known["tabstop"]) for text in below]
            shown += below
        return self._as_saved(shown)

    @property
    def status(self) -> dict[str, Any]:
        report: dict[str, Any] = self.lua("return require('suture').report() or vim.empty_dict()")
        return {"kind": None, "busy": None, "message": "", "reason": None} | report

    @property
    def complaints(self) -> list[str]:
        """What was notified from a warning on, and the last error message."""
        told = [text for text, level in self.lua("return _G.told") if level >= 3]
        error = str(self.nvim.vvars["errmsg"])
        return told + ([error] if error else [])

    # What tests of this editor alone use.

    def input(self, keys: str) -> None:
        self.nvim.input(keys)

    def until(self, holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        """Wait until it does, a while."""
        deadline = time.monotonic() + timeout_s
        self._must_not_ask()
        while not holds():
            self._must_not_ask()
            assert time.monotonic() < deadline, (self.preview, self.text, self.status)
            time.sleep(0.01)

    def shows(self, preview: str) -> None:
        """Wait until this is shown."""
        self.until(lambda: self.preview == preview)

    def becomes(self, text: str) -> None:
        """Wait until this is the text."""
        self.until(lambda: self.text == text)

    def leaves(self, text: str) -> None:
        """Wait until the text is another one."""
        self.until(lambda: self.text != text)

    def _must_not_ask(self) -> None:
        """Nothing else is answered while it waits for Enter behind a long message."""
        if self.nvim.api.get_mode()["blocking"]:
            self.input("<CR>")
            raise AssertionError(self.nvim.command_output("messages"))

    @property
    def mode(self) -> str:
        return str(self.nvim.api.get_mode()["mode"])

    @property
    def told(self) -> list[str]:
        """All that was notified."""
        return [text for text, _ in self.lua("return _G.told")]

    def _as_saved(self, lines: list[str]) -> str:
        options = self.nvim.current.buffer.options
        line_end = "\r\n" if options["fileformat"] == "dos" else "\n"
        return line_end.join(lines) + (line_end if options["endofline"] else "")


def _with_marks(line: str, marks: Sequence[Mapping[str, Any]]) -> str:
    """A line with what is drawn in it."""
    raw = line.encode()
    for mark in sorted(marks, key=lambda mark: -int(mark["col"])):
        before, behind = raw[: mark["col"]], raw[mark["col"] :]
        text = str(mark["text"])
        if mark["over"]:
            hidden = behind.decode()
            assert _n_cells(text) >= _n_cells(hidden), "it does not cover what it is drawn over"
            text, behind = text.rstrip(" "), b""
        raw = before + text.encode() + behind
    return raw.decode()


def _n_cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _with_tabs(line: str, tabstop: int) -> str:
    """A line whose indentation is of tabs, as is all in its file: they are drawn as blanks."""
    n_blanks = len(line) - len(line.lstrip(" "))
    n_tabs, n_left = divmod(n_blanks, tabstop)
    return "\t" * n_tabs + " " * n_left + line[n_blanks:]


@contextmanager
def editing(url: str, workspace: Path, commands: Sequence[str] = ()) -> Iterator[Neovim]:
    """A Neovim that works in `workspace` and asks the server at `url`."""
    with editing_neovim(workspace, str(PLUGIN), "suture", [*_BEFORE, *commands]) as editor:
        yield Neovim(editor, url, workspace)
