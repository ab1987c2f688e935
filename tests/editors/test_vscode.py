"""What is only VS Code's: the status item and its menu, settings, trust, the packed extension."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from editors.needed import missing
from editors.vscode import HAS_FOCUS, VSCode, editing
from editors.workbench import NODE, ROOT, VSIX, Workbench, why_not
from support.http_server import serving
from support.writing_completer import WritingCompleter
from suture.lsp.gates import _NOT_CODE
from suture.lsp.settings import Options, _Section
from suture.lsp.stats import stats_file
from suture.lsp.tally import Counts
from suture.server.errors import Loading

CLIENT = ROOT / "editor-clients" / "vscode"
BODY = "def add(a, b):\n    return a + b\n"
MAX_VSIX = 200_000
# Settings of the client alone.
OWN = {"suture.path"}


def manifest() -> Any:
    return json.loads((CLIENT / "package.json").read_text())


def properties() -> dict[str, Any]:
    described: dict[str, Any] = manifest()["contributes"]["configuration"]["properties"]
    return described


def options(section: type[_Section] = Options, over: str = "suture") -> dict[str, Any]:
    """Each option of the bridge by its full name, with its default."""
    found: dict[str, Any] = {}
    for field in section.model_fields.values():
        name = f"{over}.{field.alias}"
        if isinstance(field.default, _Section):
            found |= options(type(field.default), name)
        else:
            found[name] = field.get_default(call_default_factory=True)
    return found


def test_each_option_is_a_described_setting_with_its_default() -> None:
    settings = properties()
    assert set(settings) - OWN == set(options())
    for name, default in options().items():
        wanted = list(default) if isinstance(default, tuple) else default
        assert settings[name]["default"] == wanted, name
        assert settings[name]["markdownDescription"].endswith("."), name
        assert settings[name]["scope"] in ("window", "machine-overridable"), name
    for name, setting in settings.items():
        assert len(setting.get("enum", ())) == len(setting.get("enumDescriptions", ())), name


def test_settings_take_what_the_bridge_takes_and_no_more() -> None:
    settings = properties()
    for name, field in (("maxTokens", "max_tokens"), ("giveBack", "give_back")):
        setting = settings[f"suture.{name}"]
        number = next((one for one in setting.get("anyOf", ()) if "minimum" in one), setting)
        for at_edge, beyond in ((number["minimum"], -1), (number["maximum"], 1)):
            Options.model_validate({name: at_edge})
            with pytest.raises(ValueError):
                Options.model_validate({name: at_edge + beyond})
        assert field in Options.model_fields
    for name in ("healing", "layout"):
        for value in settings[f"suture.{name}"]["enum"]:
            Options.model_validate({name: value})


def test_what_names_programs_servers_and_keys_is_not_taken_from_who_is_not_trusted() -> None:
    trust = manifest()["capabilities"]["untrustedWorkspaces"]
    assert trust["supported"] == "limited"
    restricted = set(trust["restrictedConfigurations"])
    assert {"suture.path", "suture.server.url", "suture.server.apiKeyFile"} <= restricted
    assert "suture.exclude" in restricted  # or a workspace could take back what the user excludes
    assert restricted <= set(properties())


def test_keys_are_bound_only_while_something_is_shown_and_tab_never() -> None:
    bound = manifest()["contributes"]["keybindings"]
    assert "tab" not in {one["key"] for one in bound}
    for one in bound:
        # The one that asks is for when nothing is.
        asks = one["command"] == "editor.action.inlineSuggest.trigger"
        wanted = "!inlineSuggestionVisible" if asks else "inlineSuggestionVisible"
        assert wanted in one["when"].split(" && "), one


def test_commands_have_other_names_than_those_of_the_server() -> None:
    # The language client registers the server's, by their names.
    from suture.lsp.server import COMMANDS

    source = (CLIENT / "src" / "extension.ts").read_text()
    own = {one["command"] for one in manifest()["contributes"]["commands"]}
    assert not own & {f"suture.{name}" for name in COMMANDS}
    for command in own:
        name = command.removeprefix("suture.")
        assert re.search(rf"^      {name}[:,]", source, re.MULTILINE), command


def test_languages_that_are_off_are_those_of_the_bridge() -> None:
    source = (CLIENT / "src" / "settings.ts").read_text()
    listed = source[source.index("OFF_UNLESS_NAMED") :].partition("];")[0]
    assert set(re.findall(r'"([^"]+)"', listed)) == _NOT_CODE


@pytest.mark.skipif(not VSIX.exists(), reason=missing("the extension: make vscode"))
def test_the_package_is_small_and_has_nothing_but_what_it_needs() -> None:
    assert VSIX.stat().st_size <= MAX_VSIX
    with zipfile.ZipFile(VSIX) as packed:
        names = {name.casefold() for name in packed.namelist()}
        licences = packed.read("extension/dist/licences.txt").decode()
        script = packed.read("extension/dist/extension.js").decode()
    assert names == {
        "[content_types].xml",
        "extension.vsixmanifest",
        "extension/changelog.md",
        "extension/dist/extension.js",
        "extension/dist/licences.txt",
        "extension/icon.png",
        "extension/license.txt",
        "extension/package.json",
        "extension/readme.md",
    }
    assert "vscode-languageclient" in licences and "Microsoft" in licences
    assert "sourceMappingURL" not in script


@pytest.mark.skipif(
    not (CLIENT / "node_modules").exists(), reason=missing("the extension: make vscode")
)
def test_what_needs_no_workbench_does_as_its_own_tests_say() -> None:
    node = f"{NODE.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["npm", "test", "--silent"],
        cwd=CLIENT,
        env={**os.environ, "PATH": node},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VSCode, WritingCompleter]]:
    """A workbench for all tests that can share one, and the model that it asks."""
    if reason := why_not():
        pytest.skip(reason)
    completer = WritingCompleter(text=BODY)
    workspace = tmp_path_factory.mktemp("workspace")
    with serving(completer) as url, editing(url, workspace) as editor:
        yield editor, completer


@pytest.fixture
def vscode(scene: tuple[VSCode, WritingCompleter]) -> VSCode:
    """The workbench with a file in it, and nothing set."""
    editor, completer = scene
    completer.requests.clear()
    menus = dict.fromkeys(("suture.enable", "suture.languages"))
    editor.bench.configure({**menus, "suture.path": str(editor.program)})
    editor.configure({"debounceMs": 0, "prefetch": False}, closes_brackets=False)
    open_fresh(editor, "")
    return editor


def open_fresh(editor: VSCode, text: str) -> None:
    """A file of its own: the bridge remembers what it suggested in one."""
    editor.open(f"{len(os.listdir(editor.bench.workspace))}.py", text)


def shows(editor: VSCode, preview: str) -> None:
    with suppress(AssertionError):
        editor.bench.until(lambda: editor.preview == preview, 30)
    assert (editor.preview, editor.status.get("reason")) == (preview, None)


def choose(editor: VSCode, label: str) -> None:
    """Take a row of the menu, after which one goes on in the text."""
    page = editor.bench.page
    page.click('[id="suture.suture.status"]')
    page.locator(".quick-input-widget .monaco-list-row").filter(has_text=label).first.click()
    page.wait_for_function(HAS_FOCUS)


def menu(editor: VSCode) -> tuple[str, list[str]]:
    """The title of the menu, and its rows."""
    page = editor.bench.page
    page.click('[id="suture.suture.status"]')
    page.wait_for_selector(".quick-input-widget .monaco-list-row")
    title = page.inner_text(".quick-input-widget .quick-input-title")
    rows = page.locator(".quick-input-widget .monaco-list-row").all_inner_texts()
    page.keyboard.press("Escape")
    page.wait_for_selector(".quick-input-widget", state="hidden")
    editor.bench.run("workbench.action.focusActiveEditorGroup")
    return title, [row.strip() for row in rows if row.strip()]


def restart(editor: VSCode) -> None:
    """Start the bridge anew, until it is asked behind the next key."""
    editor.bench.run("suture.restart")
    editor.bench.until(lambda: (editor.bridge_status() or {}).get("counts") == {})


def counts(bench: Workbench) -> dict[str, int]:
    told: dict[str, int] = bench.run("suture.status")["counts"]
    return told


def test_the_status_item_says_how_it_does_and_why_nothing_comes(vscode: VSCode) -> None:
    vscode.type("def add")
    shows(vscode, BODY)
    vscode.bench.until(lambda: vscode.bench.item() == ("Suture", "Suture: Ready."))
    vscode.configure({"maxTokens": 9999}, closes_brackets=False)
    vscode.bench.until(lambda: "maxTokens" in vscode.bench.item()[1])
    assert vscode.bench.item()[0] == "Suture: settings"
    vscode.open("words.py", "xy = 1\n")
    vscode.go_to(0, 1)
    vscode.type("a")
    wanted = "Suture: The cursor is inside a word, or in front of one."
    vscode.bench.until(lambda: vscode.bench.item() == ("Suture", wanted))
    assert vscode.complaints == []


def test_the_menu_turns_everything_and_a_language_off_and_on(vscode: VSCode) -> None:
    bench = vscode.bench
    title, rows = menu(vscode)
    assert title.startswith("Suture: ")
    for row in ("Turn suggestions off", "Turn suggestions off for python", "Snooze for 5 minutes",
                "Snooze for 60 minutes", "Restart", "Show log", "Settings"):  # fmt: skip
        assert any(row in one for one in rows), (row, rows)
    choose(vscode, "Turn suggestions off for python")
    bench.until(
        lambda: bench.item() == ("Suture: off", "Suture: Suggestions are turned off for python.")
    )
    vscode.type("def add")
    bench.until(lambda: vscode.status["reason"] == "DISABLED")
    choose(vscode, "Turn suggestions on for python")
    bench.until(lambda: bench.item()[0] == "Suture")
    choose(vscode, "Turn suggestions off")
    bench.until(lambda: bench.item() == ("Suture: off", "Suture: Suggestions are turned off."))
    choose(vscode, "Turn suggestions on")
    bench.until(lambda: bench.item()[0] == "Suture")
    vscode.type("(")
    shows(vscode, BODY)


def test_a_snooze_is_shown_and_ended(vscode: VSCode) -> None:
    bench = vscode.bench
    choose(vscode, "Snooze for 15 minutes")
    said = "Suture: Suggestions are snoozed for 15 min more."
    bench.until(lambda: bench.item() == ("Suture: snoozed", said))
    vscode.type("def add")
    bench.until(lambda: "snoozed" in vscode.status["message"])
    # Also of the next process.
    restart(vscode)
    vscode.type("(")
    bench.until(lambda: "snoozed" in vscode.status["message"])
    choose(vscode, "End the snooze")
    vscode.type("a")
    shows(vscode, BODY)


@contextmanager
def loading(completer: WritingCompleter) -> Iterator[None]:
    """The model is being loaded, and is there behind the block."""
    completer.loading, completer.raised = "loading", {0: Loading("the model is being loaded")}
    try:
        yield
    finally:
        completer.loading, completer.raised = "ready", {}


def test_whoever_waits_for_the_model_is_answered_once_it_is_there(
    scene: tuple[VSCode, WritingCompleter], vscode: VSCode
) -> None:
    with loading(scene[1]):
        vscode.type("def add")
        vscode.bench.until(lambda: vscode.status["reason"] == "LOADING")
        assert vscode.preview == "def add"
    shows(vscode, BODY)


def test_nobody_is_answered_who_has_left_when_the_model_is_there(
    scene: tuple[VSCode, WritingCompleter], vscode: VSCode
) -> None:
    completer = scene[1]
    with loading(completer):
        vscode.type("def add")
        vscode.bench.until(lambda: vscode.status["reason"] == "LOADING")
        open_fresh(vscode, "def add")
        vscode.go_to(0, 7)
        n_before = len(completer.requests)
    vscode.bench.until(lambda: vscode.status["reason"] is None)
    vscode.bench.page.wait_for_timeout(300)
    assert vscode.preview == "def add" and len(completer.requests) == n_before


def test_what_is_shown_partly_accepted_and_hidden_is_told(vscode: VSCode) -> None:
    bench = vscode.bench
    restart(vscode)
    vscode.type("def add")
    shows(vscode, BODY)
    bench.until(lambda: counts(bench).get("shown", 0) >= 1)
    n_shown = counts(bench)["shown"]
    vscode.accept("word")
    bench.until(lambda: counts(bench).get("partly_accepted") == 1)
    shows(vscode, BODY)
    vscode.accept("line")
    bench.until(lambda: counts(bench).get("partly_accepted") == 2)
    shows(vscode, BODY)
    bench.page.wait_for_timeout(200)
    assert counts(bench)["shown"] == n_shown, "it is the same one, of which less is left"
    vscode.dismiss()
    bench.until(lambda: counts(bench).get("rejected") == 1)
    bench.until(lambda: vscode.preview == vscode.text)
    vscode.type("    r")
    shows(vscode, BODY)
    vscode.accept("all")
    bench.until(lambda: counts(bench).get("accepted") == 1)
    assert vscode.text == BODY


def test_who_hides_what_is_none_of_ours_rejects_nothing_of_ours(vscode: VSCode) -> None:
    bench = vscode.bench
    restart(vscode)
    vscode.type("def add")
    shows(vscode, BODY)
    vscode.type("x")
    bench.until(lambda: vscode.preview == vscode.text == "def addx")
    # As Escape does, where another extension's text is shown.
    bench.run("suture.hide")
    bench.page.wait_for_timeout(200)
    assert "rejected" not in counts(bench)


def test_what_is_accepted_in_part_is_counted_in_characters(
    scene: tuple[VSCode, WritingCompleter], vscode: VSCode
) -> None:
    completer = scene[1]
    completer.text = "say('😀😀')\nquit()\n"
    cache = vscode.program.parent
    restart(vscode)
    try:
        vscode.open("counted.lua", "")
        vscode.type("say(")
        shows(vscode, completer.text)
        vscode.bench.until(lambda: counts(vscode.bench).get("shown"))
        vscode.accept("line")
        vscode.bench.until(lambda: kept(cache, "lua").characters)
    finally:
        completer.text = BODY
    assert vscode.text == "say('😀😀')\n"
    assert kept(cache, "lua") == Counts(shown=1, partly_accepted=1, characters=6)


def kept(cache: Path, language: str) -> Counts:
    """What the bridge has kept of today."""
    days = stats_file(cache).read()
    return next(iter(days.values()), {}).get(language, Counts())


def test_what_is_accepted_is_what_is_saved(vscode: VSCode) -> None:
    vscode.open("saved.py", "")
    vscode.type("def add")
    shows(vscode, BODY)
    vscode.accept("all")
    vscode.bench.until(lambda: vscode.text == BODY)
    vscode.bench.page.keyboard.press("Control+s")
    saved = vscode.bench.workspace / "saved.py"
    vscode.bench.until(lambda: saved.read_text() == BODY)


def test_a_suggestion_is_explained_on_a_page_that_cannot_be_changed(vscode: VSCode) -> None:
    bench = vscode.bench
    open_fresh(vscode, "def add")
    vscode.go_to(0, 7)
    vscode.ask()
    shows(vscode, BODY)
    choose(vscode, "Explain this suggestion")
    page = bench.page.locator('.monaco-editor[data-uri^="suture-explanation:"] .view-lines')

    def said() -> str:
        return " ".join(page.inner_text().replace("\xa0", " ").split())

    bench.until(lambda: "What was suggested" in said())
    for words in ("It was asked of the server.", "Healing", "Prompt", "from the cache"):
        assert words in said()
    vscode.open("explained.py", "xy")
    vscode.go_to(0, 1)
    vscode.type("a")
    bench.until(lambda: vscode.status["reason"] == "MIDWORD")
    choose(vscode, "Why nothing came")
    bench.until(lambda: "MIDWORD" in said())


def test_a_bridge_that_is_killed_comes_back_and_is_told_of_once(vscode: VSCode) -> None:
    bench = vscode.bench
    pid_file = vscode.program.with_name("pid")
    vscode.type("def add")
    shows(vscode, BODY)
    killed = {0}
    for n in range(1, 5):
        pid = int(pid_file.read_text())
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
        # The next one is killed at once: only what lived short ends "again and again".
        bench.until(lambda: int(pid_file.read_text() or 0) not in killed)
        if n < 3:
            assert vscode.complaints == []
        else:
            bench.until(lambda: len(vscode.complaints) == 1)
    bench.until(lambda: bool(vscode.status))
    assert len(vscode.complaints) == 1 and "ends again and again" in vscode.complaints[0]
    vscode.type("(")
    shows(vscode, BODY)
    bench.run("notifications.clearAll")
    restart(vscode)


def test_a_program_that_cannot_be_started_is_tried_until_it_can(vscode: VSCode) -> None:
    bench = vscode.bench
    program = vscode.program.with_name("of-another-python")
    program.write_text("#!/nowhere/python\n")
    program.chmod(0o755)
    bench.configure({"suture.path": str(program)})
    bench.until(lambda: "could not be started" in bench.item()[1])
    assert str(program) in bench.item()[1]
    program.write_text(vscode.program.read_text())
    bench.until(lambda: bool(vscode.status))
    vscode.type("def add")
    shows(vscode, BODY)
    bench.run("notifications.clearAll")


def test_a_missing_program_is_told_once_and_the_item_goes_on_saying_it(vscode: VSCode) -> None:
    bench = vscode.bench
    bench.configure({"suture.path": "/nowhere/suture"})
    said = "Suture: `suture.path` names /nowhere/suture, where no program is."
    bench.until(lambda: bench.item() == ("Suture: not found", said))
    bench.until(lambda: len(vscode.complaints) == 1)
    assert "pipx install" in vscode.complaints[0] and "Choose the Program" in vscode.complaints[0]
    # Nor is there one anywhere else here.
    bench.configure({"suture.path": None})
    bench.until(lambda: "There is no program" in bench.item()[1])
    assert len(vscode.complaints) == 1
    rows = menu(vscode)[1]
    assert "Copy the command" in rows[0] and "Choose the program" in rows[1]
    vscode.type("def add")
    assert vscode.text == vscode.preview == "def add"
    bench.run("notifications.clearAll")
    bench.configure({"suture.path": str(vscode.program)})
    bench.until(lambda: bool(vscode.status))
    vscode.type("(")
    shows(vscode, BODY)
