"""VS Code as a front end of the scenarios: keys go through the page, and so does what is shown.

What is shown is read from the page where a suggestion stands; all other lines are those of the
document, for of a long one the page has no more than what is seen.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from editors.front_end import Key, Part
from editors.workbench import Workbench, bridge_script, workbench

_KEYS = {"Left": "ArrowLeft", "Right": "ArrowRight", "Up": "ArrowUp", "Down": "ArrowDown"}
_PARTS: dict[Part, str] = {
    "all": "Tab",
    "word": "Control+ArrowRight",
    "line": "Control+Alt+ArrowRight",
}
_TAB_SIZE = 4
# A tab is drawn as so many spaces: a width that no indentation of spaces in a test is.
_TAB_WIDTH = 7
_LANGUAGE = "python"

# The lines of the suggestion, the first of which stands in line `number` of the document.
_SHOWN = r"""() => {
  const editor = document.querySelector(
    ".editor-group-container.active .editor-instance .monaco-editor");
  if (!editor) return null;
  const top = (element) => Math.round(element.getBoundingClientRect().top);
  const written = (line) => {
    const copy = line.cloneNode(true);
    copy.querySelectorAll(".ghost-text-hidden").forEach((hidden) => hidden.remove());
    return copy.textContent.replace(/\u00a0/g, " ").replace(/[\u200b\u200c]/g, "");
  };
  const marks = ".ghost-text-decoration, .ghost-text-decoration-preview, .ghost-text-hidden";
  const below = [...editor.querySelectorAll(".view-zones .view-line")].map(written);
  let line = [...editor.querySelectorAll(".view-lines .view-line")].find((one) =>
    one.querySelector(marks));
  const zone = editor.querySelector(".view-zones .view-line");
  if (!line && zone) {
    // All of it stands below: the line that ends where the zone begins.
    line = [...editor.querySelectorAll(".view-lines .view-line")]
      .filter((one) => top(one) < top(zone)).sort((a, b) => top(b) - top(a))[0];
  }
  if (!line) return null;
  const number = [...editor.querySelectorAll(".margin-view-overlays .line-numbers")]
    .find((one) => top(one) === top(line));
  return number ? {number: Number(number.textContent), lines: [written(line), ...below]} : null;
}"""
# Whether keys go into a text.
HAS_FOCUS = """() => document.activeElement?.closest(".editor-instance") != null"""
_PASTE = """(text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  const paste = new ClipboardEvent("paste", {clipboardData, bubbles: true, cancelable: true});
  document.activeElement.dispatchEvent(paste);
}"""


class VSCode:
    """One workbench, whose extension runs `program`, which asks the server at `url`."""

    name: Literal["vscode"] = "vscode"

    def __init__(self, bench: Workbench, program: Path, url: str) -> None:
        self.bench = bench
        self.program = program
        self._url = url
        self._set: set[str] = set()
        self._document: dict[str, Any] = {"name": None, "text": ""}
        self._has_tabs = False
        self._n_boxes = 0

    def configure(self, options: Mapping[str, Any], closes_brackets: bool) -> None:
        """What was set before and is not named any more is its default again."""
        closing = "languageDefined" if closes_brackets else "never"
        editor = {f"editor.autoClosing{kind}": closing for kind in ("Brackets", "Quotes")}
        wanted = {"suture.server.url": self._url, **_settings(options)}
        unset = dict.fromkeys(self._set - wanted.keys())
        self._set = set(wanted)
        self.bench.configure({**editor, **unset, **wanted})
        # Behind all that the bridge was told.
        self.bench.until(lambda: self.bridge_status() is not None)

    def open(self, name: str, text: str) -> None:
        self._has_tabs = "\t" in text
        path = self.bench.workspace / name if name else None
        if path is not None:
            path.write_bytes(text.encode())
        is_open = self.bench.ask(
            "open",
            path=str(path) if path else None,
            text=text,
            language=_LANGUAGE,
            tabSize=_TAB_WIDTH if self._has_tabs else _TAB_SIZE,
        )
        assert is_open, f"{name} was not opened with its text"
        self.bench.page.wait_for_function(HAS_FOCUS)
        self._n_boxes = len(self.bench.boxes())

    def go_to(self, line: int, index: int) -> None:
        self.bench.ask("goTo", line=line, index=index)

    def type(self, text: str, ms_a_key: int = 0) -> None:
        for n, line in enumerate(text.split("\n")):
            if n:
                self._key("Enter", ms_a_key)
            if line:
                self.bench.page.keyboard.type(line, delay=ms_a_key)

    def press(self, key: Key) -> None:
        self._key(_KEYS.get(key, key))

    def paste(self, text: str) -> None:
        self.bench.page.evaluate(_PASTE, text)

    def accept(self, part: Part) -> None:
        if part == "all" and self._indents_first():
            self._key("Tab")
            self.bench.until(lambda: not self._indents_first() and self.preview != self.text)
        self._key(_PARTS[part])

    def ask(self) -> None:
        self._key("Alt+Backslash")

    def dismiss(self) -> None:
        self._key("Escape")

    def show_popup(self, rows: Sequence[str]) -> None:
        self.bench.ask("popup", rows=list(rows))
        if not rows:
            self._key("Escape")
            return
        self._key("Control+Space")
        row = self.bench.page.locator(".suggest-widget.visible .monaco-list-row.focused")
        row.filter(has_text=rows[0]).wait_for()

    def split(self) -> None:
        self.bench.run("workbench.action.splitEditor")
        self.bench.run("workbench.action.focusPreviousGroup")

    def undo(self) -> None:
        self._key("Control+z")

    @property
    def text(self) -> str:
        return self._read()["text"]  # type: ignore[no-any-return]

    @property
    def cursor(self) -> tuple[int, int]:
        document = self._read()
        return document["line"], len(document["before"])

    @property
    def preview(self) -> str:
        """Looked at until nothing changed meanwhile: the page and the document are two sources."""
        shown, text = None, ""

        def is_still() -> bool:
            nonlocal shown, text
            shown = self.bench.page.evaluate(_SHOWN)
            text = self.text
            return bool(shown == self.bench.page.evaluate(_SHOWN))

        self.bench.until(is_still)
        return text if shown is None else self._with(text, shown)

    @property
    def status(self) -> dict[str, Any]:
        return self.bench.ask("status") or {}

    def bridge_status(self) -> dict[str, Any] | None:
        """What `suture.status` answers; None before the bridge is up."""
        if not self.status:
            return None
        with suppress(AssertionError):  # its commands are not there yet
            return self.bench.run("suture.status")  # type: ignore[no-any-return]
        return None

    @property
    def complaints(self) -> list[str]:
        return self.bench.boxes()[self._n_boxes :]

    def _indents_first(self) -> bool:
        """Whether Tab is taken for the indentation with which what is shown begins."""
        document = self._read()
        line = self.preview.split("\n")[document["line"]]
        n_spaces = len(line) - len(line.lstrip(" "))
        is_blank = not document["before"].strip()
        return is_blank and n_spaces - len(document["before"]) >= _TAB_SIZE

    def _key(self, key: str, ms: int = 0) -> None:
        self.bench.page.keyboard.press(key)
        time.sleep(ms / 1000)

    def _read(self) -> dict[str, Any]:
        """The document; its text is fetched where it is another than the last time."""
        told = self.bench.ask("document", known=self._document["name"])
        if told["text"] is None:
            told["text"] = self._document["text"]
        self._document = told
        return self._document

    def _with(self, text: str, shown: Mapping[str, Any]) -> str:
        line_end = "\r\n" if "\r\n" in text else "\n"
        lines = text.split(line_end)
        at = shown["number"] - 1
        lines[at : at + 1] = map(self._undrawn, shown["lines"])
        return line_end.join(lines)

    def _undrawn(self, line: str) -> str:
        """A line as it was before its tabs were drawn."""
        if not self._has_tabs:
            return line
        n_tabs = (len(line) - len(line.lstrip(" "))) // _TAB_WIDTH
        return "\t" * n_tabs + line[n_tabs * _TAB_WIDTH :]


@contextmanager
def editing(url: str, workspace: Path) -> Iterator[VSCode]:
    """A workbench in which one edits files of `workspace`; the server is at `url`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        program = bridge_script(Path(folder))
        settings = {
            "suture.path": str(program),
            "suture.server.url": url,
            "editor.detectIndentation": True,
            "editor.tabSize": _TAB_SIZE,
        }
        with workbench(workspace, settings) as bench:
            editor = VSCode(bench, program, url)
            bench.until(lambda: editor.status)
            yield editor


def _settings(options: Mapping[str, Any], over: str = "suture") -> dict[str, Any]:
    """Options by the names of their settings: `server` and `context` alone are sections."""
    named: dict[str, Any] = {}
    for name, value in options.items():
        if name in ("server", "context"):
            named |= _settings(value, f"{over}.{name}")
        else:
            named[f"{over}.{name}"] = value
    return named
