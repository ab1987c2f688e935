"""A workspace that is not trusted, in VS Code: a module of its own, for two browsers need two."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from editors.vscode import VSCode
from editors.workbench import Workbench, bridge_script, workbench
from support.http_server import serving
from support.writing_completer import WritingCompleter

NEAR = "def near():\n    return 1\n"
TEXT = "from beside import near\n\n"


def trust(bench: Workbench) -> None:
    """Press the button that says so."""
    bench.run("workbench.trust.manage")
    button = bench.page.locator(".workspace-trust-editor .monaco-button")
    button.filter(has_text="Trust").first.click()


def test_nothing_of_a_workspace_is_run_before_it_is_trusted(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    own = workspace / ".venv" / "bin"
    own.mkdir(parents=True)
    witness = tmp_path / "witness"
    script = bridge_script(own)
    script.write_text(script.read_text().replace("\n", f"\ntouch '{witness}'\n", 1))
    (workspace / ".vscode").mkdir()
    told = {"suture.path": str(script), "suture.server.url": "http://127.0.0.1:1"}
    (workspace / ".vscode" / "settings.json").write_text(json.dumps(told))
    assert script.stat().st_mode & stat.S_IXUSR
    with workbench(workspace, {"suture.server.autostart": False}, is_trusted=False) as bench:
        bench.until(lambda: "There is no program" in bench.item()[1])
        bench.run("suture.restart")
        bench.until(lambda: "There is no program" in bench.item()[1])
        assert not witness.exists()
        trust(bench)
        bench.until(witness.exists)
        bench.until(lambda: "There is no program" not in bench.item()[1])


def test_files_that_are_not_open_are_read_once_the_workspace_is_trusted(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "beside.py").write_text(NEAR)
    completer = WritingCompleter()

    def has_read() -> bool:
        return any("def near" in one.text for it in completer.requests for one in it.extra)

    program = bridge_script(tmp_path)
    with serving(completer) as url:
        settings = {"suture.path": str(program), "suture.server.url": url}
        with workbench(workspace, settings, is_trusted=False) as bench:
            editor = VSCode(bench, program, url)
            bench.until(lambda: editor.status)
            editor.open("at_hand.py", TEXT)
            editor.go_to(2, 0)
            editor.type("n")
            bench.until(lambda: completer.requests)
            # Other files are looked at in a pause of a second.
            bench.page.wait_for_timeout(4000)
            editor.type("e")
            bench.until(lambda: any(one.prefix == TEXT + "ne" for one in completer.requests))
            assert not has_read()
            trust(bench)
            editor.open("at_hand.py", TEXT)
            editor.go_to(2, 0)
            editor.type("n")
            bench.until(has_read)
