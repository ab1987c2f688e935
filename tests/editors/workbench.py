"""A real VS Code: code-server with our packed extension, in a real Chromium.

`make test-editors` sets both up. A small extension of the tests' own, the *probe*, tells what the
page does not: the text of a document, settings. Keys go through the page.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as PageTimeout

from editors.needed import missing
from support.chromium import ARGUMENTS, CHROMIUM

ROOT = Path(__file__).parents[2]
# These machines are shared.
TIMEOUT_S = 120.0
_FOLDER = Path(os.environ.get("CODE_SERVER_DIR") or ROOT / ".venv" / "editors" / "code-server")
ENTRY = _FOLDER / "node_modules" / "code-server" / "out" / "node" / "entry.js"
NODE = _FOLDER / "bin" / "node"
VSIX = ROOT / "editor-clients" / "vscode" / "suture.vsix"
_PROBE = Path(__file__).with_name("probe")

# What would open by itself, ask others, or draw over the text.
QUIET: Mapping[str, Any] = {
    "chat.disableAIFeatures": True,
    "editor.lightbulb.enabled": "off",
    "editor.minimap.enabled": False,
    "editor.quickSuggestions": {"comments": "off", "other": "off", "strings": "off"},
    "editor.stickyScroll.enabled": False,
    "editor.suggestOnTriggerCharacters": False,
    "editor.unicodeHighlight.ambiguousCharacters": False,
    "editor.wordBasedSuggestions": "off",
    "extensions.autoCheckUpdates": False,
    "extensions.autoUpdate": False,
    "extensions.ignoreRecommendations": True,
    "files.autoSave": "off",
    "git.enabled": False,
    # It would tell of any port on this machine that somebody begins to listen at.
    "remote.autoForwardPorts": False,
    "security.workspace.trust.banner": "never",
    "security.workspace.trust.startupPrompt": "never",
    "telemetry.telemetryLevel": "off",
    "window.commandCenter": False,
    "workbench.editor.languageDetection": False,
    "workbench.enableExperiments": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
}
_WATCH = """() => {
  window.sutureSeen = [];
  const boxes = ".notification-toast, .monaco-dialog-box";
  new MutationObserver((changes) => {
    for (const {addedNodes} of changes) {
      for (const node of addedNodes) {
        if (!(node instanceof Element)) continue;
        const found = [...node.querySelectorAll(boxes), ...(node.matches(boxes) ? [node] : [])];
        window.sutureSeen.push(...found.filter((box) => !window.sutureSeen.includes(box)));
      }
    }
  }).observe(document.body, {childList: true, subtree: true});
}"""


def why_not() -> str | None:
    """What is missing here of all that it takes; None where nothing is."""
    if CHROMIUM is None:
        return missing("Chromium: apt-get install chromium")
    if not (ENTRY.exists() and NODE.exists()):
        return missing("code-server: make test-editors")
    return None if VSIX.exists() else missing("the extension: make vscode")


@dataclass
class Workbench:
    """A workbench in which a folder is open. `folder` is for what the tests leave beside it."""

    page: Page
    folder: Path
    workspace: Path
    _http: httpx2.Client = field(repr=False)

    def ask(self, action: str, **given: object) -> Any:
        """What the probe answers."""
        port = (self.folder / "probe").read_text()
        told = self._http.post(f"http://127.0.0.1:{port}", json={"action": action, **given}).json()
        assert "error" not in told, told["error"]
        return told["result"]

    def configure(self, settings: Mapping[str, Any]) -> None:
        """User settings; None is the default."""
        self.ask("configure", settings=dict(settings))

    def run(self, command: str, *given: object) -> Any:
        """The result of one of the workbench's commands."""
        return self.ask("run", command=command, given=given)

    def item(self) -> tuple[str, str]:
        """What the status item shows, and what it says to who cannot see it."""
        item = self.page.query_selector('[id="suture.suture.status"]')
        if item is None:
            return "", ""
        link = item.query_selector("[aria-label]") or item
        return item.inner_text().strip(), link.get_attribute("aria-label") or ""

    def boxes(self) -> list[str]:
        """The texts of all notifications and dialogs that were opened since the page is there."""
        texts: list[str] = self.page.evaluate("() => window.sutureSeen.map((b) => b.textContent)")
        return texts

    def until(self, holds: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Wait until it does."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, (self.item(), self.boxes(), self.said())
            self.page.wait_for_timeout(30)

    def said(self) -> str:
        """The end of what the server of the workbench said."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def load(self, url: str) -> None:
        """Open the workspace, until its extensions run."""
        (self.folder / "probe").unlink(missing_ok=True)
        self.page.goto(f"{url}/?folder={self.workspace}", timeout=1000 * TIMEOUT_S)
        self.page.wait_for_selector(".monaco-workbench", timeout=1000 * TIMEOUT_S)
        self.page.evaluate(_WATCH)
        self.until((self.folder / "probe").exists, TIMEOUT_S)
        self.until(lambda: self.item()[0])


@contextmanager
def workbench(
    workspace: Path,
    settings: Mapping[str, Any],
    is_trusted: bool = True,
    viewport: tuple[int, int] = (1280, 800),
) -> Iterator[Workbench]:
    """A workbench with these user settings. Without what it takes the test is skipped."""
    if reason := why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        _set_up(folder, {**QUIET, **settings})
        with (
            _serving(folder, is_trusted) as url,
            _browser() as browser,
            httpx2.Client(trust_env=False, timeout=TIMEOUT_S) as http,
        ):
            width, height = viewport
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(1000 * TIMEOUT_S)
            bench = Workbench(page, folder, workspace, http)
            try:
                bench.load(url)
            except (PageTimeout, AssertionError):  # under load a page may come up dead
                bench.load(url)
            yield bench
            page.close()


def bridge_script(folder: Path, *arguments: str) -> Path:
    """A program `suture` that is this checkout's; who runs is in the file `pid` beside it."""
    script = folder / "suture"
    command = " ".join([f"'{sys.executable}' -m suture.server \"$@\"", *arguments])
    script.write_text(
        "#!/bin/sh\n"
        f"export PYTHONPATH='{ROOT / '.dev'}' SUTURE_CACHE='{folder}' XDG_CONFIG_HOME='{folder}'\n"
        f"echo $$ > '{folder}/pid'\n"
        f"exec {command}\n"
    )
    script.chmod(0o755)
    return script


def _set_up(folder: Path, settings: Mapping[str, Any]) -> None:
    """User settings, and both extensions installed."""
    # The user has settings in two places: here the program runs on another machine than the page.
    ours = {name: value for name, value in settings.items() if name.startswith("suture.")}
    for place, of_place in (("User", settings.keys() - ours.keys()), ("Machine", ours.keys())):
        path = folder / "data" / place / "settings.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({name: settings[name] for name in of_place}))
    (folder / "config.yaml").write_text("")
    (folder / "home").mkdir()
    probe = folder / "probe.vsix"
    with zipfile.ZipFile(probe, "w") as packed:
        for path in _PROBE.iterdir():
            packed.write(path, f"extension/{path.name}")
    installing = [f"--install-extension={path}" for path in (VSIX, probe)]
    done = subprocess.run(
        [*_command(folder), *installing], env=_environ(folder), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _command(folder: Path) -> list[str]:
    return [
        str(NODE), str(ENTRY),
        f"--config={folder / 'config.yaml'}",
        f"--user-data-dir={folder / 'data'}",
        f"--extensions-dir={folder / 'extensions'}",
    ]  # fmt: skip


def _environ(folder: Path) -> dict[str, str]:
    """Nothing of who runs the tests: no `suture` of theirs is found, no setting read."""
    homes = {f"XDG_{name}_HOME": str(folder / "home") for name in ("CONFIG", "DATA", "STATE")}
    own = {"HOME": str(folder / "home"), "PROBE_PORT_FILE": str(folder / "probe"), **homes}
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    return {"PATH": "/usr/bin:/bin", **kept, **own}


@contextmanager
def _serving(folder: Path, is_trusted: bool) -> Iterator[str]:
    """The URL of a code-server, which is gone at the end with all that it started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    options = [
        f"--bind-addr=127.0.0.1:{port}", "--auth=none", "--disable-telemetry",
        "--disable-update-check", *(["--disable-workspace-trust"] if is_trusted else []),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*_command(folder), *options],
            env=_environ(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/healthz", process)
        yield url
    finally:
        # The parent alone would leave its extension hosts, and their language servers, behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    with httpx2.Client(trust_env=False, timeout=5) as http:
        while True:
            with suppress(httpx2.HTTPError):
                if http.get(url).status_code == 200:
                    return
            assert process.poll() is None and time.monotonic() < deadline, "no code-server"
            time.sleep(0.1)


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
