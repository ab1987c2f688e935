"""Three editors in a few lines: a JSON-RPC client of a real `suture lsp` that behaves as they do.

What an editor shows it shows until another answer comes, or a key that the text does not have; an
empty answer removes it at once. How editors differ is their *manner*.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editors.buffer import Buffer, Edit
from editors.front_end import Key, Name, Part
from support.lsp_client import COPILOT_STYLE, GROWS, NEOVIM, VSCODE, Json
from suture.lsp.positions import Encoding, index_of, length

TIMEOUT_S = 60.0
_CANCELLED = -32800
_LANGUAGES = {".py": "python", ".env": "dotenv", ".md": "markdown", ".js": "javascript"}
_PARTS = {"all": r".*", "word": r"\s*\w+|\s*[^\w\s]+|\s+", "line": r"[^\n]*\n?"}
_CLOSERS = re.compile(r"[)\]}\"' ]*")


@dataclass(frozen=True, slots=True)
class Manner:
    """How an editor asks: whether a key cancels what was asked before it, how long it waits for the
    next one, whether it asks where the cursor was moved, and by which names it tells what became
    of an item; none where it does not.
    """

    hello: Json
    cancels: bool = True
    wait_s: float = 0.0
    asks_when_moved: bool = False
    shown: str | None = "suture/didShow"
    partly_accepted: str | None = "suture/didPartiallyAccept"
    rejected: str | None = "suture/didReject"


MANNERS: dict[Name, Manner] = {
    "raw-vscode": Manner({**VSCODE, **GROWS}),
    # What 0.12 has built in, with a plugin's keys for parts and to dismiss.
    "raw-neovim": Manner(NEOVIM, cancels=False, wait_s=0.2, asks_when_moved=True, shown=None),
    "raw-copilot": Manner(
        COPILOT_STYLE,
        shown="textDocument/didShowCompletion",
        partly_accepted="textDocument/didPartiallyAcceptCompletion",
        rejected=None,
    ),
}


@dataclass(frozen=True, slots=True)
class _Ghost:
    """What is shown: an item, and the document that it makes, with the cursor behind it."""

    item: Json
    whole: str
    end: int

    def rest(self, text: str, cursor: int) -> Edit | None:
        """What accepting it now does; None where one has typed something else."""
        if not self.whole.startswith(text[:cursor]) or cursor >= self.end:
            return None
        behind = text[cursor:]
        closers = _CLOSERS.match(behind)
        n_closers = len(closers[0]) if closers else 0
        for n_over in range(n_closers + 1):
            if self.whole[self.end :] == behind[n_over:]:
                return Edit(cursor, cursor + n_over, self.whole[cursor : self.end], self.end)
        return None


class RawEditor:
    """One editor. All of it happens under one lock: keys here, answers on a thread that reads."""

    def __init__(self, process: subprocess.Popen[bytes], name: Name) -> None:
        self.name: Name = name
        self._manner = MANNERS[name]
        self._process = process
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._names = itertools.count(1)
        self._replies: dict[int, Json] = {}
        self._replied = threading.Condition(self._lock)
        # Whose answers are shown: without those that were cancelled.
        self._asked: set[int] = set()
        self._timer: threading.Timer | None = None
        self._ghost: _Ghost | None = None
        self._is_dismissed = False
        self._row: Json | None = None
        self._status: Json = {"kind": "Normal", "busy": False, "message": "", "reason": None}
        self._complaints: list[str] = []
        self._encoding: Encoding = "utf-16"
        self._closes_brackets = False
        self._uri = ""
        self._version = 0
        self._buffer = Buffer("", False)
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, workspace: Path) -> None:
        """Say hello."""
        result = self._request(
            "initialize",
            {"processId": os.getpid(), "rootUri": workspace.as_uri(), **self._manner.hello},
        )
        self._encoding = result["capabilities"].get("positionEncoding", "utf-16")
        self._notify("initialized", {})
        self._workspace = workspace

    def leave(self) -> None:
        """Say goodbye as editors do."""
        with self._lock:
            self._is_dismissed = True  # what is to be asked soon is not asked any more
        if self._timer is not None:
            self._timer.cancel()
        self._request("shutdown", None)
        self._notify("exit", None)
        assert self._process.wait(TIMEOUT_S) == 0

    def configure(self, options: Mapping[str, Any], closes_brackets: bool) -> None:
        with self._lock:
            self._closes_brackets = closes_brackets
            settings = {"settings": {"suture": dict(options)}}
            self._notify("workspace/didChangeConfiguration", settings)

    def open(self, name: str, text: str) -> None:
        with self._lock:
            self._hide()
            self._row = None
            if self._uri:
                self._notify("textDocument/didClose", {"textDocument": {"uri": self._uri}})
            path = self._workspace / name
            n = next(self._names)
            self._uri = path.as_uri() if name else f"untitled:Untitled-{n}"
            language = _LANGUAGES.get(path.suffix or path.name, "plaintext") if name else "python"
            self._buffer = Buffer(text, self._closes_brackets)
            self._version = 1
            document = {"uri": self._uri, "languageId": language, "version": 1, "text": text}
            self._notify("textDocument/didOpen", {"textDocument": document})
            self._complaints.clear()

    def go_to(self, line: int, index: int) -> None:
        with self._lock:
            self._move(self._buffer.index(line, index))

    def type(self, text: str, ms_a_key: int = 0) -> None:
        for char in text:
            with self._lock:
                self._edit(self._buffer.typed(char))
            time.sleep(ms_a_key / 1000)

    def press(self, key: Key) -> None:
        with self._lock:
            self._press(key)

    def paste(self, text: str) -> None:
        with self._lock:
            self._edit(self._buffer.inserted(text))

    def accept(self, part: Part) -> None:
        with self._lock:
            ghost = self._ghost
            if ghost is None:
                return
            rest = ghost.rest(self._buffer.text, self._buffer.cursor)
            if rest is None:
                return
            found = re.match(_PARTS[part], rest.text, re.DOTALL if part == "all" else 0)
            taken = rest.text if found is None else found[0]
            if taken != rest.text:
                edit = Edit(rest.start, rest.start, taken, rest.start + len(taken))
                self._tell_of_part(ghost, rest.start + len(taken))
                self._edit(edit)
                return
            self._ghost = None
            self._edit(rest)
            command = ghost.item["command"]
            params = {"command": command["command"], "arguments": command["arguments"]}
            self._send_request("workspace/executeCommand", params)

    def ask(self) -> None:
        with self._lock:
            self._is_dismissed = False
            self._ask(kind=1)

    def dismiss(self) -> None:
        with self._lock:
            ghost = self._ghost
            self._hide()
            self._is_dismissed = True
            if ghost is not None and self._manner.rejected:
                self._notify(self._manner.rejected, {"item": ghost.item})

    def show_popup(self, rows: Sequence[str]) -> None:
        with self._lock:
            self._row = None
            if rows:
                start = self._buffer.word_start()
                span = {"start": self._position(start), "end": self._position(self._buffer.cursor)}
                self._row = {"range": span, "text": rows[0]}
            self._ghost = None
            self._ask_soon()

    def split(self) -> None:
        """A server of languages hears nothing of windows."""

    def undo(self) -> None:
        with self._lock:
            if (edit := self._buffer.undone()) is not None:
                self._send_change(edit)
                self._buffer.text = _applied(self._buffer.text, edit)
                self._buffer.move(edit.cursor)
                self._after_change()

    @property
    def text(self) -> str:
        return self._buffer.text

    @property
    def cursor(self) -> tuple[int, int]:
        with self._lock:
            line, before = self._buffer.place(self._buffer.cursor)
            return line, len(before)

    @property
    def preview(self) -> str:
        with self._lock:
            rest = self._ghost and self._ghost.rest(self._buffer.text, self._buffer.cursor)
            return _applied(self._buffer.text, rest) if rest else self._buffer.text

    @property
    def status(self) -> dict[str, Any]:
        return self._status

    @property
    def complaints(self) -> list[str]:
        return list(self._complaints)

    def _press(self, key: Key) -> None:
        buffer = self._buffer
        line, before = buffer.place(buffer.cursor)
        if key == "Backspace":
            self._edit(buffer.deleted(1, 0))
        elif key == "Delete":
            self._edit(buffer.deleted(0, 1))
        elif key == "Enter":
            self._edit(buffer.typed("\n"))
        elif key == "Tab":
            self.accept("all") if self._ghost else self._edit(buffer.inserted("    "))
        elif key == "Escape":
            self._hide()
        elif key in ("Left", "Right"):
            self._move(buffer.cursor + (1 if key == "Right" else -1))
        elif key in ("Up", "Down"):
            self._move(buffer.index(max(0, line + (1 if key == "Down" else -1)), len(before)))
        else:
            self._move(buffer.index(line, 0 if key == "Home" else len(buffer.text)))

    def _edit(self, edit: Edit) -> None:
        self._send_change(edit)
        self._buffer.apply(edit)
        self._after_change()

    def _move(self, index: int) -> None:
        self._buffer.move(index)
        self._drop_what_disagrees()
        if self._manner.asks_when_moved:
            self._ask_soon()

    def _after_change(self) -> None:
        self._is_dismissed = False
        self._drop_what_disagrees()
        self._ask_soon()

    def _drop_what_disagrees(self) -> None:
        ghost = self._ghost
        if ghost is not None and ghost.rest(self._buffer.text, self._buffer.cursor) is None:
            self._ghost = None

    def _ask_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._manner.cancels:
            self._cancel()
        if not self._manner.wait_s:
            self._ask(kind=2)
            return
        self._timer = threading.Timer(self._manner.wait_s, self._ask, (2,))
        self._timer.daemon = True
        self._timer.start()

    def _ask(self, kind: int) -> None:
        with self._lock:
            if self._is_dismissed:
                return
            if self._manner.cancels:
                self._cancel()
            context: Json = {"triggerKind": kind}
            if self._row is not None:
                context |= {"selectedCompletionInfo": self._row}
            params = {
                "textDocument": {"uri": self._uri, "version": self._version},
                "position": self._position(self._buffer.cursor),
                "context": context,
                "formattingOptions": {"tabSize": 4, "insertSpaces": True},
            }
            self._asked.add(self._send_request("textDocument/inlineCompletion", params))

    def _cancel(self) -> None:
        for asked in self._asked:
            self._notify("$/cancelRequest", {"id": asked})
        self._asked.clear()

    def _hide(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._cancel()
        self._ghost = None

    def _show(self, items: list[Json]) -> None:
        self._ghost = None
        if not items:
            return
        item = items[0]
        text = self._buffer.text
        start, end = (self._index(item["range"][side]) for side in ("start", "end"))
        before = text[start : self._buffer.cursor]
        if self._row is not None:
            before = ""  # the row, which the item begins with, takes its place
        inserted = item["insertText"].replace("\r\n", "\n").replace("\n", self._buffer.line_end)
        # An editor shows nothing that does not go on from what it replaces.
        if not inserted.startswith(before):
            return
        self._ghost = _Ghost(item, text[:start] + inserted + text[end:], start + len(inserted))
        if self._manner.shown:
            self._notify(self._manner.shown, {"item": item})

    def _tell_of_part(self, ghost: _Ghost, end: int) -> None:
        """How much of the text of an item is accepted, from its own beginning."""
        if self._manner.partly_accepted is None:
            return
        n_left = length(ghost.whole[end : ghost.end], "utf-16")
        accepted = length(ghost.item["insertText"], "utf-16") - n_left
        self._notify(self._manner.partly_accepted, {"item": ghost.item, "acceptedLength": accepted})

    def _send_change(self, edit: Edit) -> None:
        self._version += 1
        span = {"start": self._position(edit.start), "end": self._position(edit.end)}
        params = {
            "textDocument": {"uri": self._uri, "version": self._version},
            "contentChanges": [{"range": span, "text": edit.text}],
        }
        self._notify("textDocument/didChange", params)

    def _position(self, index: int) -> Json:
        line, before = self._buffer.place(index)
        return {"line": line, "character": length(before, self._encoding)}

    def _index(self, position: Json) -> int:
        line = self._buffer.text.split("\n")[position["line"]].removesuffix("\r")
        at = index_of(line, position["character"], self._encoding)
        return self._buffer.index(position["line"], at)

    def _request(self, method: str, params: object) -> Any:
        with self._replied:
            msg_id = self._send_request(method, params)
            assert self._replied.wait_for(lambda: msg_id in self._replies, TIMEOUT_S), method
            return self._replies.pop(msg_id)["result"]

    def _send_request(self, method: str, params: object) -> int:
        msg_id = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params})
        return msg_id

    def _notify(self, method: str, params: object) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: Json) -> None:
        body = json.dumps(message).encode()
        stdin = self._process.stdin
        assert stdin is not None
        with self._lock:
            stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            stdin.flush()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        while line := stdout.readline():
            n_bytes = int(line.split(b":")[1])
            while stdout.readline().strip():
                pass
            message = json.loads(stdout.read(n_bytes))
            with self._replied:
                self._take(message)

    def _take(self, message: Json) -> None:
        method = message.get("method")
        if method is None:
            self._take_reply(message)
        elif "id" in message:
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": None})
        elif method == "suture/status":
            self._status = message["params"]
        elif method == "suture/didGrow":
            if self._ghost is not None and message["params"]["textDocument"]["uri"] == self._uri:
                self._ask(kind=2)
        elif method.startswith("window/show"):
            self._complaints.append(message["params"]["message"])

    def _take_reply(self, message: Json) -> None:
        error = message.get("error")
        if error is not None and error["code"] != _CANCELLED:
            self._complaints.append(str(error))
        if message["id"] in self._asked:
            self._asked.remove(message["id"])
            self._show((message.get("result") or {}).get("items", []))
            return
        self._replies[message["id"]] = message
        self._replied.notify_all()


def _applied(text: str, edit: Edit) -> str:
    return text[: edit.start] + edit.text + text[edit.end :]


@contextmanager
def editing(url: str, workspace: Path, name: Name = "raw-vscode") -> Iterator[RawEditor]:
    """An editor that behaves as one of that name, with a `suture lsp` that asks `url`."""
    with tempfile.TemporaryDirectory() as home:
        own = {"SUTURE_CACHE": home, "XDG_CONFIG_HOME": home}
        with subprocess.Popen(
            [sys.executable, "-m", "suture.server", "lsp", "--server", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | own,
        ) as process:
            editor = RawEditor(process, name)
            try:
                editor.start(workspace)
                yield editor
                editor.leave()
            finally:
                process.kill()
