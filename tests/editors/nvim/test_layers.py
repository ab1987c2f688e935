"""Where Neovim's client works with others: 0.12's own inline completion, menus, a statusline.

Stand-ins play the others, as their documentation describes them. The real nvim-cmp and lualine are
driven where NVIM_CMP_DIR and LUALINE_DIR name checkouts of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editors.neovim import Neovim, editing
from editors.nvim.session import ADD, IS_TAB_OURS, NEEDS_NEOVIM, QUIET, Session
from support.http_server import serving
from support.writing_completer import WritingCompleter

pytestmark = NEEDS_NEOVIM

STAND_IN = Path(__file__).with_name("inline_completion.lua")
# What it takes of the real plugins to have their parts.
CMP, LUALINE = os.environ.get("NVIM_CMP_DIR", ""), os.environ.get("LUALINE_DIR", "")


@pytest.fixture(params=["rows", "positions"])
def built_in(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    """An editor that has the stand-in of 0.12's own."""
    completer = WritingCompleter(text=ADD)
    with serving(completer) as url, editing(url, tmp_path) as editor:
        editor.lua("vim.lsp.inline_completion = dofile(...)", str(STAND_IN))
        editor.lua("vim.lsp.inline_completion.range_form = ...", request.param)
        editor.configure(QUIET, closes_brackets=True)
        editor.open("a.py", "")
        yield Session(editor, completer)


def _is_visible(editor: Neovim) -> bool:
    return bool(editor.lua("return require('suture').is_visible()"))


def test_neovims_own_asks_and_the_layer_accepts_parts(built_in: Session) -> None:
    editor = built_in.editor
    editor.type("def add")
    editor.until(lambda: _is_visible(editor))
    editor.type("(")
    editor.shows("def add()")  # Neovim draws, and we nothing
    assert _is_visible(editor)
    editor.accept("word")
    editor.becomes("def add(a)")
    # What is left is there at once, and not after the 200 ms of Neovim.
    assert _is_visible(editor)
    editor.accept("word")
    editor.becomes("def add(a,)")
    editor.accept("line")
    editor.becomes("def add(a, b):")
    editor.accept("all")
    editor.becomes(ADD)
    for left in ("def add(a, b):", "def add(a,)", "def add(a)", "def add()"):
        editor.undo()
        editor.becomes(left)
    counts = editor.lua("""
      local answer
      require('suture.server').command(
        require('suture.server').clients()[1], 'status', {}, function(told) answer = told end)
      vim.wait(20000, function() return answer end, 5)
      return answer.counts
    """)
    assert counts["partly_accepted"] == 3 and counts["accepted"] == 1
    assert editor.complaints == []


def test_over_neovims_own_the_plugin_watches_nothing_itself(built_in: Session) -> None:
    # It did in this editor, before that had the stand-in.
    watches = "return (pcall(vim.api.nvim_get_autocmds, { group = ... }))"
    assert built_in.editor.lua(watches, "suture.builtin") is True
    assert built_in.editor.lua(watches, "suture.inline") is False


def test_over_neovims_own_it_is_asked_again_once_the_model_is_there(built_in: Session) -> None:
    editor = built_in.editor
    built_in.completer.loading = "loading"
    editor.until(lambda: editor.status["reason"] == "LOADING")
    editor.type("def add")
    editor.until(lambda: editor.lua("return vim.lsp.inline_completion.n_asked") > 0)
    time.sleep(0.5)  # Neovim's own has asked behind the last key, and was refused
    built_in.completer.loading = "ready"
    editor.until(lambda: _is_visible(editor))
    editor.accept("all")
    editor.becomes(ADD)


def test_over_neovims_own_keys_give_way_and_typed_characters_are_not_doubled(
    built_in: Session,
) -> None:
    editor = built_in.editor
    editor.type("def add(")
    editor.until(lambda: _is_visible(editor))
    editor.type("a")
    editor.press("Tab")  # on the heels of it, before Neovim has asked anew
    editor.becomes(ADD)
    built_in.completer.text = ""
    editor.press("Enter")
    editor.until(lambda: not _is_visible(editor))
    editor.press("Tab")
    editor.becomes(ADD + "\n    ")
    assert editor.complaints == []


def test_over_neovims_own_it_is_asked_by_hand_dismissed_and_left(built_in: Session) -> None:
    editor = built_in.editor
    editor.type("def add")
    editor.until(lambda: _is_visible(editor))
    editor.dismiss()
    editor.until(lambda: not _is_visible(editor))
    editor.ask()
    editor.shows(ADD)
    editor.accept("all")
    editor.becomes(ADD)
    bufnr = editor.nvim.current.buffer.number
    is_enabled = "return vim.lsp.inline_completion.is_enabled({ bufnr = ... })"
    assert editor.lua(is_enabled, bufnr) is True
    editor.configure(QUIET | {"builtin": False}, closes_brackets=False)
    assert editor.lua(is_enabled, bufnr) is False
    editor.open("b.py", "")
    editor.type("def add")
    editor.shows(ADD)


def test_over_neovims_own_a_dismissal_names_its_document_and_ctrl_c_leaves_nothing(
    built_in: Session,
) -> None:
    editor = built_in.editor
    editor.lua("""
      vim.api.nvim_create_autocmd('LspNotify', { callback = function(event)
        if event.data.method == 'suture/didReject' then _G.rejected = event.data.params end
      end })
    """)
    editor.type("def add")
    editor.until(lambda: _is_visible(editor))
    editor.dismiss()
    editor.until(lambda: bool(editor.lua("return _G.rejected ~= nil")))
    uri = editor.lua("return vim.uri_from_bufnr(0)")
    assert editor.lua("return _G.rejected") == {"textDocument": {"uri": uri}}
    editor.ask()
    editor.shows(ADD)
    assert editor.lua(IS_TAB_OURS)
    editor.input("<C-c>")
    editor.shows("def add")
    editor.until(lambda: not editor.lua(IS_TAB_OURS))


ENTRIES: dict[str, str] = {
    "cmp": """
      local source = require('suture.cmp').new()
      assert(source:is_available() and source:get_position_encoding_kind() == 'utf-8')
      source:complete({
        offset = 5,
        context = { cursor_before_line = 'def add', option = { reason = 'auto' } },
        completion_context = { triggerKind = 1 },
      }, function(answer) _G.answer = answer end)
    """,
    "blink": """
      local source = require('suture.blink').new({}, {})
      assert(source:enabled())
      source:get_completions({
        line = vim.api.nvim_get_current_line(),
        bounds = { start_col = 5, length = 3 },
        trigger = { initial_kind = 'keyword' },
      }, function(answer) _G.answer = answer end)
    """,
}


OPEN_MENU = """
  package.loaded['blink.cmp'] = { is_menu_visible = function() return _G.is_open end }
  _G.is_open = true
  vim.api.nvim_exec_autocmds('User', { pattern = 'BlinkCmpMenuOpen' })
"""
CLOSE_MENU = """
  _G.is_open = false
  vim.api.nvim_exec_autocmds('User', { pattern = 'BlinkCmpMenuClose' })
"""


@pytest.mark.parametrize("menu", ENTRIES)
def test_a_source_offers_what_is_suggested_without_asking_twice(
    session: Session, menu: str
) -> None:
    editor = session.open("", closes=True)
    editor.type("def add(")
    editor.shows(ADD)
    n_requests = len(session.completer.requests)
    editor.lua("_G.answer = nil")
    editor.lua(ENTRIES[menu])
    editor.until(lambda: bool(editor.lua("return _G.answer ~= nil")))
    answer = editor.lua("return _G.answer")
    (entry,) = answer["items"]
    assert entry["label"] == "a, b):" and entry["kind"] == 15
    assert entry["filterText"] == "adda, b):\n    return a + b"
    assert "```python\na, b):" in entry["documentation"]["value"]
    assert len(session.completer.requests) == n_requests
    editor.lua(
        "vim.lsp.util.apply_text_edits({ _G.answer.items[1].textEdit }, vim.fn.bufnr(), 'utf-8')"
    )
    assert editor.text == ADD
    done = {
        "cmp": "require('suture.cmp').new():execute(_G.answer.items[1], function() _G.d = 1 end)",
        "blink": "require('suture.blink').new():execute(nil, _G.answer.items[1], function() "
        "_G.d = 1 end, function() end)",
    }[menu]
    editor.lua("_G.d = nil; " + done)
    assert editor.lua("return _G.d") == 1


@pytest.mark.parametrize("menu", ENTRIES)
def test_a_source_is_answered_though_its_menu_has_opened_or_one_typed_on(
    session: Session, menu: str
) -> None:
    editor, completer = session.editor, session.completer
    is_answered = "return _G.answer ~= nil"
    # From the beginning: what is answered before a key holds for what is typed then.
    completer.may_go_on.clear()
    n_before = len(completer.requests)

    def is_asked(prefix: str) -> bool:
        return prefix in [one.prefix for one in completer.requests[n_before:]]

    try:
        session.open("")
        editor.type("def add")
        # The last key: another one would end what the menu asks.
        editor.until(lambda: is_asked("def add"))
        editor.lua("_G.answer = nil;" + ENTRIES[menu])
        # Another source has rows already.
        editor.lua(OPEN_MENU)
        editor.lua("vim.wait(100)")
        assert editor.lua(is_answered) is False
        completer.may_go_on.set()
        editor.until(lambda: bool(editor.lua(is_answered)))
        assert [entry["label"] for entry in editor.lua("return _G.answer.items")] == ["(a, b):"]
        editor.lua(CLOSE_MENU)
        editor.shows(ADD)
        completer.may_go_on.clear()
        editor.type("x")
        editor.until(lambda: is_asked("def addx"))
        editor.lua("_G.answer = nil;" + ENTRIES[menu])
        editor.type("y")
        editor.until(lambda: bool(editor.lua(is_answered)))
        assert editor.lua("return #_G.answer.items") == 0
    finally:
        completer.may_go_on.set()
        editor.lua("package.loaded['blink.cmp'] = nil")


def test_ghost_text_hides_while_another_plugins_menu_is_open(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    editor.lua(OPEN_MENU)
    editor.shows("def add")
    editor.lua(CLOSE_MENU)
    editor.shows(ADD)
    editor.lua("package.loaded['blink.cmp'] = nil")


# What lualine's own base class offers to components.
LUALINE_CLASS = """
  local Class = {}
  Class.__index = Class
  function Class.init() end
  function Class:extend()
    local class = {}
    for name, value in pairs(self) do
      if name:find('^__') then class[name] = value end
    end
    class.__index, class.super = class, self
    return setmetatable(class, self)
  end
  function Class:__call(...)
    local one = setmetatable({}, self)
    one:init(...)
    return one
  end
  package.loaded['lualine.component'] = Class
  package.loaded['lualine'] = { refresh = function(how) _G.refreshed = how.place end }
"""


def test_a_status_is_a_component_of_lualine(session: Session) -> None:
    editor = session.open("")
    editor.lua(LUALINE_CLASS)
    editor.lua("_G.component = require('lualine.components.suture')({ component_name = 'suture' })")
    editor.type("def add")
    editor.shows(ADD)
    assert editor.lua("return _G.component:update_status()") == "suture"
    session.editor.configure(QUIET | {"enable": False}, closes_brackets=False)
    editor.type("(")
    editor.until(lambda: bool(editor.lua("return _G.component:update_status()") == "suture: off"))
    editor.until(lambda: bool(editor.lua("return _G.refreshed") == ["statusline"]))
    editor.nvim.command("set statusline=%{v:lua.require'suture'.status()}")
    shown = editor.lua("return vim.api.nvim_eval_statusline(vim.o.statusline, {}).str")
    assert shown == "suture: off"
    editor.nvim.command("set statusline&")
    editor.lua("package.loaded['lualine.component'], package.loaded['lualine'] = nil, nil")


@pytest.mark.skipif(not LUALINE, reason="LUALINE_DIR is not set")
def test_the_real_lualine_shows_it(tmp_path: Path) -> None:
    completer = WritingCompleter(text=ADD)
    commands = [f"set rtp+={LUALINE}"]
    with serving(completer) as url, editing(url, tmp_path, commands) as editor:
        editor.lua("require('lualine').setup({ sections = { lualine_x = { 'suture' } } })")
        editor.configure(QUIET | {"languages": {"python": False}}, closes_brackets=False)
        editor.open("a.py", "")
        editor.type("def add")
        shown = "return vim.api.nvim_eval_statusline(vim.o.statusline, {}).str"
        editor.until(lambda: "suture: off" in editor.lua(shown))


@pytest.mark.skipif(not CMP, reason="NVIM_CMP_DIR is not set")
def test_the_real_nvim_cmp_offers_it_and_takes_it(tmp_path: Path) -> None:
    completer = WritingCompleter(text=ADD)
    commands = [f"set rtp+={CMP}"]
    with serving(completer) as url, editing(url, tmp_path, commands) as editor:
        editor.lua("""
          require('suture.cmp').register()
          require('cmp').setup({ sources = { { name = 'suture' } } })
        """)
        editor.configure(QUIET, closes_brackets=False)
        editor.open("a.py", "")
        editor.type("def add")
        editor.shows(ADD)
        editor.type("(")
        editor.until(lambda: bool(editor.lua("return require('cmp').visible()")))
        editor.shows("def add(")  # no ghost beside the menu
        entry: Any = editor.lua("return require('cmp').get_entries()[1].completion_item")
        assert entry["label"] == "a, b):"
        editor.lua("require('cmp').confirm({ select = true })")
        editor.becomes(ADD)
        assert editor.complaints == []


@pytest.mark.skipif(not CMP, reason="NVIM_CMP_DIR is not set")
def test_the_real_nvim_cmp_gets_it_behind_a_faster_source(tmp_path: Path) -> None:
    completer = WritingCompleter(text=ADD)
    completer.may_go_on.clear()
    commands = [f"set rtp+={CMP}"]
    labels = """
      return vim.tbl_map(function(entry) return entry.completion_item.label end,
        require('cmp').get_entries())
    """
    with serving(completer) as url, editing(url, tmp_path, commands) as editor:
        editor.lua("""
          require('suture.cmp').register()
          require('cmp').register_source('fast', { complete = function(_, _, callback)
            callback({ { label = 'address' } })
          end })
          require('cmp').setup({ sources = { { name = 'suture' }, { name = 'fast' } } })
        """)
        editor.configure(QUIET, closes_brackets=False)
        editor.open("a.py", "")
        editor.enter()
        editor.until(lambda: bool(editor.lua("return require('suture.entries').is_available()")))
        editor.type("def add")
        try:
            editor.until(lambda: editor.lua(labels) == ["address"])
        finally:
            completer.may_go_on.set()
        editor.until(lambda: "(a, b):" in editor.lua(labels))
        assert editor.complaints == []
