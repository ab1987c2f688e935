"""What Neovim's client does as one types: keys, undo, popup, macros, modes, buffers."""

from __future__ import annotations

import time
from pathlib import Path

from editors.neovim import Neovim
from editors.nvim.session import ADD, IS_TAB_OURS, NEEDS_NEOVIM, Session

pytestmark = NEEDS_NEOVIM


def test_all_a_word_and_a_line_are_accepted_and_each_is_undone_alone(opened: Neovim) -> None:
    opened.type("def add")
    opened.shows(ADD)
    opened.accept("word")
    opened.becomes("def add(")
    opened.accept("word")
    opened.becomes("def add(a")
    opened.accept("line")
    opened.becomes("def add(a, b):")
    opened.accept("all")
    opened.becomes(ADD)
    for left in ("def add(a, b):", "def add(a", "def add(", "def add", ""):
        opened.undo()
        opened.becomes(left)
    assert opened.complaints == []


def test_who_types_through_sees_it_at_each_key_and_nothing_is_asked(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    n_requests = len(session.completer.requests)
    editor.lua("""
      _G.seen = {}
      vim.api.nvim_create_autocmd({ 'TextChangedI', 'CursorMovedI' }, { callback = function()
        table.insert(_G.seen, require('suture').is_visible())
      end, group = vim.api.nvim_create_augroup('seen', {}) })
    """)
    editor.type("(a, b):", ms_a_key=20)
    editor.press("Backspace")
    editor.press("Backspace")
    editor.becomes("def add(a, b")
    editor.shows(ADD)
    seen = editor.lua("vim.api.nvim_del_augroup_by_name('seen'); return _G.seen")
    assert len(seen) >= 9 and all(seen)
    assert len(session.completer.requests) == n_requests


def test_a_key_does_what_it_did_before_where_nothing_is_shown(session: Session) -> None:
    editor = session.open("", writes="")
    editor.nvim.command("setlocal expandtab shiftwidth=4 softtabstop=4")
    editor.press("Tab")
    editor.becomes("    ")
    editor.lua("_G.default = vim.fn.maparg('<Tab>', 'i', false, true)")
    mappings = {
        "imap <Tab> X": "X",
        "inoremap <expr> <Tab> col('.') . '-'": "9-",
        "inoremap <buffer> <Tab> B": "B",
        "lua vim.keymap.set('i', '<Tab>', function() return 'L' end, {expr = true})": "L",
        "lua vim.keymap.set('i', '<Tab>', function() vim.api.nvim_put({'P'}, 'c', 0, 1) end)": "P",
        "imap <Tab> <Tab>Y": "    Y",
    }
    kept = "return vim.fn.maparg('<Tab>', 'i', false, true).rhs or 'Lua'"
    for command, wanted in mappings.items():
        session.open("", writes="")
        editor.nvim.command("silent! iunmap <Tab>")
        editor.nvim.command(command)
        before = editor.lua(kept)
        session.completer.text = ADD
        editor.type("def add")
        editor.shows(ADD)
        assert editor.lua(kept) == "Lua"  # ours
        editor.type("x")
        editor.shows("def addx")
        assert editor.lua(kept) == before
        editor.press("Tab")
        editor.becomes("def addx" + wanted)
    editor.nvim.command("silent! iunmap <buffer> <Tab>")
    editor.nvim.command("iunmap <Tab>")
    editor.lua("vim.fn.mapset('i', false, _G.default)")
    assert editor.told == []


def test_a_key_pressed_on_the_heels_of_another_one_never_accepts_what_is_not_shown(
    session: Session,
) -> None:
    editor = session.open("")
    editor.nvim.command("inoremap <buffer> <Tab> T")
    editor.type("def add")
    editor.shows(ADD)
    editor.input("x<Tab>")  # the editor has not drawn anew when the second key comes
    editor.becomes("def addxT")


def test_the_jump_of_a_snippet_stays_where_nothing_is_shown(session: Session) -> None:
    editor = session.open("", writes="")
    editor.lua("vim.snippet.expand('f(${1:a}, ${2:b})$0')")
    editor.until(lambda: editor.mode == "s")
    editor.input("x")
    editor.becomes("f(x, b)")
    editor.input("<Tab>")
    editor.until(lambda: editor.mode == "s")
    editor.input("y<Tab>!")
    editor.becomes("f(x, y)!")


def test_keys_are_others_or_none_as_the_user_wants(session: Session) -> None:
    keys = {"accept": "<C-y>", "accept_word": False, "dismiss": "<C-e>"}
    editor = session.open("", keys=keys)
    editor.type("def add")
    editor.shows(ADD)
    assert editor.lua("return vim.fn.maparg('<M-w>', 'i') .. vim.fn.maparg('<Tab>', 'i')") == (
        editor.lua("return vim.fn.maparg('<Tab>', 'i')")
    )
    editor.input("<C-e>")
    editor.shows("def add")
    editor.type("(")
    editor.shows(ADD)
    editor.input("<C-y>")
    editor.becomes(ADD)


def test_what_was_dismissed_comes_again_only_by_hand_or_with_another_text(opened: Neovim) -> None:
    opened.type("def add")
    opened.shows(ADD)
    opened.dismiss()
    opened.shows("def add")
    opened.press("Left")
    opened.press("Right")
    time.sleep(0.3)
    assert opened.preview == "def add"
    opened.ask()
    opened.shows(ADD)
    opened.press("Escape")
    opened.until(lambda: opened.preview == "def add")


def test_ctrl_c_leaves_as_little_behind_as_escape(session: Session) -> None:
    editor, completer = session.open(""), session.completer
    editor.type("def add")
    editor.shows(ADD)
    assert editor.lua(IS_TAB_OURS)
    editor.input("<C-c>")
    editor.until(lambda: editor.mode == "n")
    editor.shows("def add")
    assert not editor.lua(IS_TAB_OURS)
    editor.nvim.command("startinsert!")
    editor.until(lambda: editor.mode == "i")
    completer.may_go_on.clear()
    n_cancelled = completer.cancelled
    try:
        editor.type("x")
        editor.until(lambda: completer.requests[-1].prefix == "def addx")
        editor.input("<C-c>")
        editor.until(lambda: completer.cancelled > n_cancelled)
    finally:
        completer.may_go_on.set()


def test_around_a_closed_bracket_nothing_is_doubled_by_any_part(session: Session) -> None:
    wanted = ADD
    for parts in (["all"], ["word"] * 12, ["line", "line"], ["word", "word", "all"]):
        editor = session.open("", closes=True)
        editor.type("def add(")
        editor.becomes("def add()")
        editor.shows(wanted)
        for part in parts:
            if editor.text != wanted:
                before = editor.text
                editor.accept(part)  # type: ignore[arg-type]
                editor.leaves(before)
                assert editor.text == wanted or editor.preview == wanted
        assert editor.text == wanted
    assert editor.complaints == []


def test_typed_over_closers_are_none_that_the_rest_replaces(session: Session) -> None:
    writes = "x = f([1, 2], 'a')\ny"
    editor = session.open("", writes=writes, closes=True)
    editor.type("x = f(")
    editor.shows(writes)
    for typed in ("[", "1, 2", "]", ", '", "a", "'"):
        editor.type(typed)
        editor.shows(writes)
    editor.accept("all")
    editor.becomes(writes)


def test_while_the_popup_is_open_nothing_is_shown_and_then_it_is_again(opened: Neovim) -> None:
    opened.type("def add")
    opened.shows(ADD)
    opened.show_popup(["address", "adder"])
    opened.shows("def add")
    opened.input("<C-e>")
    opened.shows(ADD)


def test_beside_the_popup_it_goes_on_from_the_selected_row(session: Session) -> None:
    writes = "x = print(1)"
    editor = session.open("", writes=writes, popup="beside")
    editor.type("x = pr")
    editor.shows("x = print(1)")
    editor.show_popup(["print", "property"])
    time.sleep(0.3)
    assert editor.preview == "x = print(1)"
    editor.input("<C-n>")  # the other row, which goes on in no way that is known
    editor.becomes("x = property")
    editor.shows("x = property")
    editor.input("<C-e>")
    editor.becomes("x = pr")
    editor.shows(writes)
    editor.accept("all")
    editor.becomes("x = print(1)")


def test_a_macro_asks_for_nothing_and_does_again_what_was_typed(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    n_requests = len(session.completer.requests)
    editor.input("<Esc>qqo")
    editor.type("def add", ms_a_key=20)
    editor.press("Tab")
    editor.input("<Esc>q")
    editor.until(lambda: editor.mode == "n")
    editor.input("20@q")
    editor.until(lambda: editor.text.count("\n") == 21)
    assert editor.text.split("\n")[1:] == ["def add "] * 21
    assert len(session.completer.requests) == n_requests
    assert editor.complaints == []


def test_a_paste_is_one_change_and_paste_mode_none(session: Session) -> None:
    editor = session.open("")
    editor.until(lambda: editor.lua("return require('suture').status()") != "suture: starting")
    time.sleep(0.3)
    n_requests = len(session.completer.requests)
    editor.paste("def add\n" * 500 + "def add")
    editor.until(lambda: editor.text.count("\n") == 500)
    time.sleep(0.3)
    assert len(session.completer.requests) <= n_requests + 2
    session.open("")
    editor.nvim.command("set paste")
    editor.type("def add", ms_a_key=20)
    time.sleep(0.2)
    assert editor.preview == "def add"
    editor.nvim.command("set nopaste")
    editor.type("(")
    editor.shows(ADD)


def test_in_other_modes_and_special_buffers_nothing_is_shown(session: Session) -> None:
    editor = session.open("def add\nxxxxxxxxx\n", writes="def add\ndef add(a)")
    editor.input("<Esc>2G0R")
    editor.type("def add", ms_a_key=10)
    time.sleep(0.2)
    assert editor.preview == editor.text == "def add\ndef addxx\n"
    editor.input("<Esc>v")
    time.sleep(0.1)
    assert editor.preview == editor.text
    editor.input("<Esc>")
    for command in ("new | set buftype=nofile", "new | set buftype=prompt", "terminal"):
        editor.nvim.command(command)
        editor.nvim.command("startinsert")
        time.sleep(0.1)
        assert editor.lua("return #vim.lsp.get_clients({ bufnr = 0 })") == 0
        assert editor.lua("return require('suture').status()") == ""
        editor.input("<C-Bslash><C-n>")
        editor.until(lambda: editor.mode in ("n", "nt"))
        editor.nvim.command("bwipeout!")
    assert editor.complaints == []


def test_of_two_windows_only_that_one_types_in_shows_it(session: Session) -> None:
    editor = session.open("x = 1\n", writes="def add(a)\nx = 1\n")
    editor.split()
    editor.go_to(0, 0)
    editor.input("<C-u>")
    editor.input("<C-o>D")
    editor.type("def add")
    editor.until(lambda: "def add(a)" in editor.preview)
    rows = editor.lua("""
      vim.cmd.redraw()
      local rows = {}
      for row = 1, vim.o.lines do
        local cells = {}
        for col = 1, 40 do cells[col] = vim.fn.screenstring(row, col) end
        rows[row] = vim.trim(table.concat(cells))
      end
      return rows
    """)
    assert sorted(row for row in rows if row.startswith("def add")) == ["def add", "def add(a)"]


def test_astral_characters_tabs_and_crlf_are_as_in_the_file(session: Session) -> None:
    writes = "s = '漢😀' + f(\n\tx)"
    editor = session.open("s = '漢😀' + ", writes=writes)
    editor.type("f")
    editor.until(lambda: "f(" in editor.preview)
    editor.accept("all")
    editor.becomes(writes)
    assert editor.cursor == (1, 3)
    editor = session.open("if x:\r\n\ty = 1\r\n\tz", writes="if x:\n\ty = 1\n\tz = 2\n\tw")
    editor.go_to(2, 2)
    editor.press("End")
    editor.shows("if x:\r\n\ty = 1\r\n\tz = 2\r\n\tw")
    assert "\\r" not in "".join(_drawn(editor))
    editor.accept("all")
    editor.becomes("if x:\r\n\ty = 1\r\n\tz = 2\r\n\tw")
    editor.nvim.command("silent write")
    assert b"\r\n\tz = 2\r\n" in Path(str(editor.nvim.current.buffer.name)).read_bytes()
    assert editor.complaints == []


def _drawn(editor: Neovim) -> list[str]:
    marks = editor.lua(
        "return vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('suture'), 0, -1, "
        "{ details = true })"
    )
    return [f"{mark[3].get('virt_text')}{mark[3].get('virt_lines')}" for mark in marks]


def test_buffers_without_a_file_are_completed_each_by_its_own_text(session: Session) -> None:
    editor = session.open("", name="")
    editor.type("def add")
    editor.shows(ADD)
    first = editor.nvim.current.buffer
    session.completer.text = "x = 12"
    editor.open("", "")
    editor.type("x =")
    editor.shows("x = 12")
    editor.input("<Esc>")
    editor.until(lambda: editor.mode == "n")
    session.completer.text = ADD
    editor.nvim.current.buffer = first
    editor.nvim.command("startinsert!")
    editor.type("(a")
    editor.shows(ADD)
    editor.accept("all")
    editor.becomes(ADD)
    assert editor.complaints == []


def test_a_language_that_is_set_later_is_told(session: Session) -> None:
    editor = session.open("", name="script")
    editor.type("def add")
    editor.shows(ADD)
    assert session.completer.requests[-1].language != "python"
    editor.nvim.command("setfiletype python")
    editor.type(" ")
    editor.press("Backspace")
    editor.press("Backspace")
    editor.until(lambda: session.completer.requests[-1].language == "python")


def test_filetypes_that_are_off_are_not_sent(session: Session) -> None:
    editor = session.open("", name="a.md", filetypes={"markdown": False})
    editor.type("def add", ms_a_key=5)
    time.sleep(0.2)
    # Others may come still, of what was typed before.
    asked = [one.path or "" for one in session.completer.requests]
    assert editor.preview == "def add" and not [path for path in asked if path.endswith(".md")]
    assert editor.lua("return #vim.lsp.get_clients({ bufnr = 0 })") == 0
    editor.nvim.command("let b:suture_enabled = v:false")


def test_functions_and_unnamed_keys_accept_too(session: Session) -> None:
    opened = session.open("", writes="")
    assert opened.lua("return require('suture').accept()") is False
    session.completer.text = ADD
    opened.type("def add")
    opened.shows(ADD)
    assert opened.lua("return require('suture').accept_word()") is True
    opened.becomes("def add(")
    opened.nvim.command("imap <buffer> <F2> <Plug>(suture-accept-line)")
    opened.input("<F2>")
    opened.becomes("def add(a, b):")
    opened.undo()
    opened.becomes("def add(")
