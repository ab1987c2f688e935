"""A workspace that is not trusted, in VS Code: a module of its own, for two browsers need two."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from editors.workbench import bridge_script, workbench


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
        bench.run("workbench.trust.manage")
        bench.page.locator(".workspace-trust-editor .monaco-button").filter(
            has_text="Trust"
        ).first.click()
        bench.until(witness.exists)
        bench.until(lambda: "There is no program" not in bench.item()[1])
