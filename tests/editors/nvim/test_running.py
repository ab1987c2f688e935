"""Neovim's client beside the typing: commands, options, health, help, and how its server dies."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from editors.neovim import COMMAND, PLUGIN, Neovim, editing
from editors.nvim.session import ADD, NEEDS_NEOVIM, QUIET, Session
from support.http_server import serving
from support.writing_completer import WritingCompleter
from suture.lsp.settings import ContextOptions, Options, ServerOptions
from suture.server.errors import InfillUnsupported, Loading

pytestmark = NEEDS_NEOVIM


def test_commands_say_what_they_did(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)

    def run(command: str, told: str) -> None:
        editor.lua("_G.told = {}")
        editor.nvim.command(f"Suture {command}")
        editor.until(lambda: any(told in one for one in editor.told))

    run("why", "suggested in")
    run("disable python", "suggestions in python are off")
    run("disable python", "suggestions in python are off")
    editor.type("(")
    editor.until(lambda: editor.status["reason"] == "DISABLED")
    assert editor.preview == "def add("
    assert editor.lua("return require('suture').status()") == "suture: off"
    run("why", "DISABLED: suggestions are turned off for python")
    run("enable python", "suggestions in python are on")
    run("snooze 5", "quiet for 5 min")
    run("snooze 0", "no longer quiet")
    run("snooze x", "no number of minutes")
    run("toggle", "suggestions are off")
    run("toggle", "suggestions are on")
    run("status", "suture")
    run("nonsense", "no command `nonsense`")
    editor.nvim.command("stopinsert")
    editor.nvim.command("Suture explain")
    editor.until(lambda: "took_ms" in editor.text)
    editor.nvim.command("bwipeout")
    complete = "return require('suture.commands').complete(...)"
    assert editor.lua(complete, "Suture acc") == ["accept", "accept-line", "accept-word"]
    assert "python" in editor.lua(complete, "Suture toggle pyth")
    assert editor.lua(complete, "Suture why x") == []


def test_what_is_no_number_of_minutes_and_no_word_of_a_command_is_told(session: Session) -> None:
    editor = session.open("")
    told = {
        "snooze nan": "`nan` is no number of minutes",
        "snooze inf": "`inf` is no number of minutes",
        "snooze -5": "`-5` is no number of minutes",
        "snooze 5 min": "usage: `:Suture snooze [minutes]`",
        "disable python lua": "usage: `:Suture disable [language]`",
        "why not": "usage: `:Suture why`",
        "snooze 0.1": "quiet for 0.1 min",
        "snooze 1e9": "quiet for 1440 min",
        "snooze 0": "no longer quiet",
        "disable pyhton": "suggestions in pyhton are off; Neovim knows no such filetype",
        "enable pyhton": "suggestions in pyhton are on; Neovim knows no such filetype",
    }
    for command, said in told.items():
        editor.lua("_G.told = {}; vim.v.errmsg = ''")
        editor.nvim.command(f"Suture {command}")
        editor.until(lambda: bool(editor.told))
        assert editor.told == [f"suture: {said}"]
        is_complaint = not said.startswith(("quiet", "no longer"))
        assert editor.complaints == editor.told * is_complaint
    editor.nvim.command("setfiletype pyhton")
    editor.lua("_G.told = {}")
    editor.nvim.command("Suture enable pyhton")
    editor.until(lambda: editor.told == ["suture: suggestions in pyhton are on"])


CANNOT_FILL_IN = (
    "Infill is not supported by this model: prefix token is missing. suffix token is missing. "
    "Serve one that was trained to fill in the middle: the default of `suture serve` is one."
)


def test_a_long_status_is_one_line_and_health_warns_of_it(session: Session) -> None:
    session.completer.raised = {0: InfillUnsupported(CANNOT_FILL_IN)}
    editor = session.open("")
    try:
        editor.type("def add")
        editor.until(lambda: editor.status["reason"] == "NO_FIM")
        editor.lua("_G.told = {}")
        editor.nvim.command("Suture")
        (told,) = editor.told
        assert told.startswith("suture: cannot fill in; `:Suture why` (Infill is not supported")
        assert told.endswith("…") and len(told) <= editor.nvim.vvars["echospace"]
        editor.nvim.command("stopinsert | checkhealth suture")
        (line,) = [line for line in editor.text.split("\n") if "status: " in line]
        assert "WARNING status: Warning NO_FIM Infill" in line
        assert "`suture models` lists some" in editor.text
    finally:
        session.completer.raised = {}
        editor.nvim.command("silent! tabonly!")


def test_health_warns_where_suggestions_are_off(session: Session) -> None:
    def health(after: str, told: str) -> str:
        """What it says behind a command, before a key is typed."""
        editor.lua("_G.told = {}")
        editor.nvim.command(f"stopinsert | Suture {after}")
        editor.until(lambda: f"suture: {told}" in editor.told)
        editor.nvim.command("checkhealth suture")
        report = editor.text
        editor.nvim.command("tabclose")
        return report

    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    report = health("snooze 5", "quiet for 5 min")
    assert "WARNING status: Inactive DISABLED suggestions are snoozed" in report
    assert "`:Suture snooze 0`" in report
    session.open("").type("def add")
    editor.until(lambda: editor.status["reason"] == "DISABLED")
    assert "OK status: Normal\n" in health("snooze 0", "no longer quiet")
    assert "DISABLED suggestions are turned off" in health("disable", "suggestions are off")
    assert "OK status: Normal\n" in health("enable", "suggestions are on")
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    editor.lua("_G.told = {}")
    editor.nvim.command("Suture")
    assert editor.told == ["suture: ready"]


@contextmanager
def _loading(completer: WritingCompleter) -> Iterator[None]:
    """The model is being loaded, and is there behind the block."""
    completer.loading, completer.raised = "loading", {0: Loading("the model is being loaded")}
    try:
        yield
    finally:
        completer.loading, completer.raised = "ready", {}


def test_whoever_waits_for_the_model_is_answered_once_it_is_there(session: Session) -> None:
    with _loading(session.completer):
        editor = session.open("")
        editor.type("def add")
        editor.until(lambda: editor.status["reason"] == "LOADING")
        n_before = len(session.completer.requests)
    editor.shows(ADD)
    assert len(session.completer.requests) == n_before + 1
    editor.lua("_G.told = {}")
    editor.nvim.command("Suture why")
    editor.until(lambda: bool(editor.told))
    assert "suggested in" in editor.told[0]


def test_nobody_is_answered_who_has_left_when_the_model_is_there(session: Session) -> None:
    with _loading(session.completer):
        editor = session.open("")
        editor.type("def add")
        editor.until(lambda: editor.status["reason"] == "LOADING")
        editor.press("Escape")
        n_before = len(session.completer.requests)
    editor.until(lambda: editor.status["reason"] is None)
    time.sleep(0.3)
    assert editor.preview == "def add" and len(session.completer.requests) == n_before


def test_the_server_is_told_what_was_shown_and_accepted(session: Session) -> None:
    editor = session.open("")
    before = _counts(editor)
    editor.type("def add")
    editor.shows(ADD)
    editor.accept("word")
    editor.becomes("def add(")
    editor.accept("all")
    editor.becomes(ADD)
    editor.undo()
    editor.becomes("def add(")
    editor.press("End")
    editor.shows(ADD)
    editor.dismiss()
    after = _counts(editor)
    gained = {name: n - before.get(name, 0) for name, n in after.items()}
    assert gained["partly_accepted"] == 1 and gained["accepted"] == 1 and gained["rejected"] == 1
    assert 1 <= gained["shown"] <= 3


def _counts(editor: Neovim) -> dict[str, int]:
    counts: dict[str, int] = editor.lua("""
      local server = require('suture.server')
      vim.wait(20000, function() return server.client(0) or server.client(vim.fn.bufnr()) end)
      local answer
      server.command(server.clients()[1], 'status', {}, function(told) answer = told end)
      vim.wait(20000, function() return answer end, 5)
      return answer.counts
    """)
    return counts or {}


def test_health_says_what_there_is(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    editor.nvim.command("stopinsert")
    editor.nvim.command("checkhealth suture")
    report = editor.text
    for said in (
        "Neovim 0.",
        "this plugin draws",
        "suture 0",
        "the language server runs",
        "status: Normal",
        "model: toy",
        "no other plugin",
    ):
        assert said in report, report
    assert "ERROR" not in report and "WARNING" not in report, report
    editor.nvim.command("let g:loaded_llama = 1")
    editor.lua("require('suture').setup({ cmd = { 'nothing-of-this-name' }, popup = 'x' })")
    editor.nvim.command("checkhealth suture")
    report = editor.text
    assert "llama.vim" in report and "`nothing-of-this-name` is not to be found" in report
    assert '`popup`: expected one of "hide", "beside"' in report
    editor.nvim.command("unlet g:loaded_llama")
    editor.nvim.command("silent! tabonly!")


def test_what_is_wrong_with_options_is_told_and_the_default_is_in_force(session: Session) -> None:
    editor = session.open("")
    editor.lua("_G.told = {}")
    wrong = {
        "maxTokens": "many",
        "server": {"url": "127.0.0.1:80", "port": 1},
        "keys": {"accept": 3, "accept_word": "<Nope", "accept_line": "", "undo": "<C-z>"},
        "languages": ["python"],
        "colour": "red",
        "debounceMs": -1,
    }
    editor.lua("require('suture').setup(...)", wrong | {"cmd": COMMAND})
    told = "\n".join(editor.told)
    for said in (
        "`maxTokens`: expected a whole number from 1 to 2048",
        "`server.url`: expected a URL that begins with http:// or https://",
        "`server.port` is no option; there are apiKeyFile, autostart, idleMinutes, url",
        "`keys.accept`: expected a key",
        "`keys.accept_word`: expected a key",
        "`keys.accept_line`: expected a key",
        "`keys.undo` is no option; there are accept, accept_line,",
        "`languages`: expected a table of names",
        "`colour` is no option; there are builtin, cmd,",
        '`debounceMs`: expected one of "auto", or expected a whole number',
        ":help suture-options",
    ):
        assert said in told, told
    assert editor.lua("return (require('suture').options()).keys.accept") == "<Tab>"
    for key in ("<C-y>", "jk", "<", "<lt>a", "<Leader>a", "<M-]>", "<Plug>(mine)", "<c-CR>"):
        read = "return select(2, require('suture.options').read({ keys = { accept = ... } }))"
        assert editor.lua(read, key) == [], key


def test_options_are_in_force_at_once_in_a_server_that_runs(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    session.editor.configure(QUIET | {"exclude": ["*.py"]}, closes_brackets=False)
    editor.type("(")
    editor.until(lambda: editor.status["reason"] == "EXCLUDED")
    assert editor.preview == "def add("


def test_a_program_that_is_not_there_is_told_of_once(session: Session) -> None:
    editor = session.open("")
    editor.lua("_G.told = {}; require('suture').setup({ cmd = { 'nothing-of-this-name', 'lsp' } })")
    for name in ("b.py", "c.py"):
        editor.nvim.command(f"stopinsert | edit {name}")
        editor.nvim.command("startinsert")
        editor.type("def add", ms_a_key=5)
    time.sleep(0.1)
    told = [one for one in editor.told if "nothing-of-this-name" in one]
    assert told == ["suture: `nothing-of-this-name` is not to be found; `:help suture-install`"]
    assert editor.lua("return require('suture').status()") == "suture: not installed"
    editor.nvim.command("Suture restart")
    assert len([one for one in editor.told if "nothing-of-this-name" in one]) == 2
    editor.nvim.command("stopinsert | silent! bwipeout! b.py c.py")


def test_a_server_that_is_killed_is_started_again_and_told_of_once(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    for _ in range(2):
        old = _client_of(editor)
        os.kill(_process_of(editor), signal.SIGKILL)
        _has_another(editor, old)
        editor.press("Backspace")
        editor.shows(ADD)
        editor.type("d")
        editor.becomes("def add")
        editor.shows(ADD)
    told = [one for one in editor.told if "ended" in one]
    assert len(told) == 1 and "by signal 9 and is started again" in told[0]
    editor.nvim.command("Suture restart")


def _client_of(editor: Neovim) -> int:
    """The id of the client that may be asked here; 0 if none may."""
    asked = "local client = require('suture.server').client(vim.fn.bufnr()); return client and "
    return int(editor.lua(asked + "client.id or 0"))


def _has_another(editor: Neovim, old: int) -> None:
    editor.until(lambda: _client_of(editor) not in (0, old))


# What was to run later, which the test runs when it likes.
LATER = """
  _G.told, _G.later, _G.defer = {}, nil, vim.defer_fn
  vim.defer_fn = function(run) _G.later = run end
"""


def test_a_restart_does_not_wait_for_the_next_start_behind_a_death(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    editor.lua(LATER)
    old = _client_of(editor)
    os.kill(_process_of(editor), signal.SIGKILL)
    editor.until(lambda: bool(editor.lua("return _G.later ~= nil")))
    editor.lua("vim.defer_fn = _G.defer")
    assert editor.lua("return require('suture').status()") == "suture: stopped"
    editor.nvim.command("Suture restart")
    _has_another(editor, old)
    new = _client_of(editor)
    editor.lua("_G.later()")
    editor.press("Backspace")
    editor.shows(ADD)
    assert _client_of(editor) == new and _process_of(editor)


def test_a_server_that_the_user_stops_stays_so_until_it_is_restarted(session: Session) -> None:
    editor = session.open("")
    editor.type("def add")
    editor.shows(ADD)
    editor.lua("_G.told = {}")
    old = _client_of(editor)
    editor.lua("vim.lsp.stop_client(...)", old)
    editor.until(lambda: editor.lua("return require('suture').status()") == "suture: stopped")
    editor.nvim.command("stopinsert | doautocmd BufEnter")
    time.sleep(0.3)
    assert editor.lua("return #vim.lsp.get_clients({ name = 'suture' })") == 0
    assert editor.told == []
    editor.nvim.command("Suture restart")
    _has_another(editor, old)


def test_a_program_that_is_there_and_cannot_be_started_is_told_of_as_that(
    session: Session, tmp_path: Path
) -> None:
    editor = session.open("")
    program = tmp_path / "suture"
    program.write_text("#!/of/a/python/that/is/gone\n")
    program.chmod(0o755)
    editor.lua("_G.told = {}")
    editor.lua("require('suture').setup({ cmd = { ... } })", str(program))
    told = f"suture: `{program}` could not be started: what its first line names is not there"
    assert editor.told == [told]
    assert editor.lua("return require('suture').status()") == "suture: stopped"


def _process_of(editor: Neovim) -> int:
    """The language server, the editor's only child."""
    children: list[int] = []

    def is_alone() -> bool:
        # One that was stopped may still end.
        asked = "return vim.api.nvim_get_proc_children(vim.uv.os_getpid())"
        children[:] = editor.lua(asked)
        return len(children) == 1

    editor.until(is_alone)
    return children[0]


def test_a_server_that_dies_at_once_is_given_up_after_a_while(session: Session) -> None:
    editor = session.open("")
    editor.lua("""
      _G.told, _G.waits, _G.defer = {}, {}, vim.defer_fn
      vim.defer_fn = function(run, wait)
        table.insert(_G.waits, wait)
        return _G.defer(run, 0)
      end
      require('suture').setup({ cmd = { 'false' } })
    """)
    editor.until(lambda: len(editor.told) >= 2)
    time.sleep(0.3)
    editor.lua("vim.defer_fn = _G.defer")
    assert editor.lua("return _G.waits") == [1000, 2000, 4000, 8000, 16000]
    first, last = editor.told
    assert "is started again" in first and ":Suture restart" in last
    assert editor.lua("return require('suture').status()") == "suture: stopped"


def test_servers_of_several_roots_that_die_together_are_counted_each_by_itself(
    session: Session, tmp_path: Path
) -> None:
    editor = session.open("")
    for root in ("one", "two", "three"):
        (tmp_path / root / ".git").mkdir(parents=True)
        editor.nvim.command(f"stopinsert | split {tmp_path / root / 'a.py'}")
    editor.nvim.command("4close")
    editor.lua("""
      _G.told, _G.waits, _G.defer = {}, {}, vim.defer_fn
      vim.defer_fn = function(run, wait)
        table.insert(_G.waits, wait)
        return _G.defer(run, 0)
      end
      require('suture').setup({ cmd = { 'false' } })
    """)
    editor.until(lambda: sum(":Suture restart" in one for one in editor.told) == 3)
    editor.lua("vim.defer_fn = _G.defer")
    waits = [wait for wait in (1000, 2000, 4000, 8000, 16000) for _ in range(3)]
    assert sorted(editor.lua("return _G.waits")) == waits
    assert sum("is started again" in one for one in editor.told) == 1
    editor.nvim.command("silent only!")


def test_what_was_switched_off_stays_off_in_servers_that_start_later(tmp_path: Path) -> None:
    completer = WritingCompleter(text=ADD)

    def is_off(name: str, why: str) -> None:
        editor.open(str(tmp_path / name), "")
        editor.until(lambda: _client_of(editor) > 0)
        editor.type("def add")
        editor.until(lambda: editor.status["reason"] == "DISABLED")
        assert why in editor.status["message"] and editor.preview == "def add"

    def run(command: str, told: str) -> None:
        editor.lua("_G.told = {}")
        editor.nvim.command(f"Suture {command}")
        editor.until(lambda: any(told in one for one in editor.told))

    for root in ("one", "two"):
        (tmp_path / root / ".git").mkdir(parents=True)
    with serving(completer) as url, editing(url, tmp_path) as editor:
        editor.configure(QUIET, closes_brackets=False)
        editor.open(str(tmp_path / "one/a.py"), "")
        editor.type("def add")
        editor.shows(ADD)
        run("disable python", "python are off")
        old = _client_of(editor)
        editor.nvim.command("Suture restart")
        _has_another(editor, old)
        is_off("one/b.py", "turned off for python")
        is_off("two/a.py", "turned off for python")
        run("enable python", "python are on")
        run("snooze 5", "quiet for 5 min")
        old = _client_of(editor)
        editor.nvim.command("Suture restart")
        _has_another(editor, old)
        is_off("two/b.py", "snoozed for 5 min")
        is_off("one/c.py", "snoozed for 5 min")
        run("snooze 0", "no longer quiet")
        editor.lua("""
          local server, is_done = require('suture.server'), false
          for _, client in ipairs(server.clients()) do
            if client.id ~= server.client(vim.fn.bufnr()).id then
              server.command(client, 'toggle', {}, function() is_done = true end)
            end
          end
          vim.wait(20000, function() return is_done end, 5)
        """)  # the two differ now
        run("toggle", "suggestions are off")
        assert len(editor.told) == 1
        is_off("two/c.py", "suggestions are turned off")
        is_off("one/d.py", "suggestions are turned off")
        run("toggle", "suggestions are on")
        for name in ("one/e.py", "two/e.py"):
            editor.open(str(tmp_path / name), "")
            editor.type("def add")
            editor.shows(ADD)


def test_help_has_tags_and_all_lua_is_sound(session: Session, tmp_path: Path) -> None:
    doc = tmp_path / "doc"
    shutil.copytree(PLUGIN / "doc", doc)
    session.editor.nvim.command(f"helptags {doc}")
    tags = (doc / "tags").read_text()
    for tag in ("suture-install", "suture-keys", "suture-options", ":Suture", "hl-SutureGhost"):
        assert f"{tag}\t" in tags
    text = (PLUGIN / "doc" / "suture.txt").read_text()
    assert max(len(line) for line in text.splitlines()) <= 80
    for path in sorted(PLUGIN.rglob("*.lua")):
        failed = session.editor.lua("return select(2, loadfile(...))", str(path))
        assert failed is None, failed
        assert max(len(line) for line in path.read_text().splitlines()) <= 100, path


def test_options_in_the_help_are_those_of_the_server(session: Session) -> None:
    ours = session.editor.lua(
        """
      local known = {}
      for _, name in ipairs({ ... }) do
        local _, problems = require('suture.options').read({ [name] = false })
        known[name] = not (problems[1] or ''):find('no option')
      end
      return known
    """,
        *[field.alias or name for name, field in Options.model_fields.items()],
    )
    assert all(ours.values()), ours
    text = (PLUGIN / "doc" / "suture.txt").read_text()
    for name, field in Options.model_fields.items():
        assert f"`{field.alias or name}`" in text
    for model, section in ((ServerOptions, "server"), (ContextOptions, "context")):
        for name, field in model.model_fields.items():
            _, problems = session.editor.lua(
                "return { {}, select(2, require('suture.options').read(...)) }",
                {section: {field.alias or name: []}},
            )
            assert "no option" not in "".join(problems)


# This Neovim without what 0.11 added, and with its new names for what there was.
NEOVIM_010 = """
  local has = vim.fn.has
  vim.fn.has = function(name) return name == 'nvim-0.11' and 0 or has(name) end
  vim.lsp.config, vim.lsp.enable = nil, nil
  vim.api.nvim__ns_set = nil
  -- It tells that a client ended, not that it was stopped.
  require('vim.lsp.client').is_stopped = function(self) return self.rpc.is_closing() end
  for name in pairs(package.loaded) do
    if name:find('^suture') then package.loaded[name] = nil end
  end
"""


def test_on_neovim_010_it_does_without_what_came_later(tmp_path: Path) -> None:
    completer = WritingCompleter(text=ADD)
    with serving(completer) as url, editing(url, tmp_path) as editor:
        editor.lua(NEOVIM_010)
        editor.configure(QUIET, closes_brackets=True)
        editor.open("a.py", "")
        editor.type("def add(")
        editor.shows(ADD)
        editor.accept("word")
        editor.becomes("def add(a)")
        editor.accept("all")
        editor.becomes(ADD)
        editor.nvim.command("Suture why")
        old = _client_of(editor)
        editor.nvim.command("Suture restart")
        _has_another(editor, old)
        assert editor.complaints == []
