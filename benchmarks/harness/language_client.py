"""A client of `suture lsp` that draws nothing: it types, asks and takes the time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.front_ends import Ghost, Key, is_rest

Json = dict[str, Any]

TIMEOUT_S = 120.0
# As VS Code tells of itself, as far as the bridge looks at it.
VSCODE: Json = {
    "clientInfo": {"name": "Visual Studio Code", "version": "1.139.0"},
    "capabilities": {
        "general": {"positionEncodings": ["utf-16"]},
        "textDocument": {"inlineCompletion": {"dynamicRegistration": True}},
        "workspace": {"configuration": False},
    },
}


class LanguageClient:
    """One editor with one bridge, a process of its own. `started_ms` is what its start took.

    That is from the beginning of the process to its reply to `initialize`. `knows` are what the
    bridge may tell it beyond the protocol.
    """

    def __init__(self, url: str, workspace: Path, knows: Sequence[str] = ()) -> None:
        self.name = f"raw client, VS Code's profile{'' if knows else ', all at once'}"
        started = time.perf_counter()
        environ = os.environ | {"SUTURE_CACHE": str(workspace), "XDG_CONFIG_HOME": str(workspace)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "suture.server", "lsp", "--server", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
        )
        self.pid = self._process.pid
        self._workspace = workspace
        self._ids = itertools.count(1)
        self._replies: queue.Queue[Json] = queue.Queue()
        self._writing = threading.Lock()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        folders = [{"uri": workspace.as_uri(), "name": workspace.name}]
        hello = {"processId": os.getpid(), "workspaceFolders": folders} | VSCODE
        self.request("initialize", hello | {"initializationOptions": {"knows": list(knows)}})
        self.started_ms = (time.perf_counter() - started) * 1e3
        self.notify("initialized", {})
        self._n_documents = 0
        self._uri, self._line, self._row, self._version = "", "", 0, 0
        self._shown = ""

    def request(self, method: str, params: object) -> Any:
        msg_id = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params})
        while (reply := self._replies.get(timeout=TIMEOUT_S))["id"] != msg_id:
            pass
        if "error" in reply:
            raise SystemExit(f"{method}: {reply['error']}")
        return reply["result"]

    def notify(self, method: str, params: object) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def open(self, before: str, after: str) -> None:
        self._n_documents += 1
        self._uri = (self._workspace / f"{self._n_documents}.py").as_uri()
        self._row, self._version, self._shown = before.count("\n"), 0, ""
        self._line = before.rpartition("\n")[2]
        text = before + after
        document = {"uri": self._uri, "languageId": "python", "version": 0, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def press(self, key: Key) -> Ghost | None:
        started = time.perf_counter()
        self._insert(key)
        items = self.complete()
        ms = (time.perf_counter() - started) * 1e3
        before, self._shown = self._shown, ""
        if not items:
            return None
        # The item begins where the line does.
        self._shown = items[0]["insertText"][len(self._line) :]
        return Ghost(self._shown, ms, is_rest(before, key, self._shown))

    def complete(self) -> list[Json]:
        """The items at the cursor."""
        params = {
            "textDocument": {"uri": self._uri},
            "position": self._cursor(),
            "context": {"triggerKind": 2},
        }
        items: list[Json] = self.request("textDocument/inlineCompletion", params)["items"]
        return items

    def _insert(self, key: Key) -> None:
        change = {"range": {"start": self._cursor(), "end": self._cursor()}, "text": key}
        self._version += 1
        document = {"uri": self._uri, "version": self._version}
        self._row += key.count("\n")
        self._line = (self._line + key).rpartition("\n")[2]
        params = {"textDocument": document, "contentChanges": [change]}
        self.notify("textDocument/didChange", params)

    def _cursor(self) -> Json:
        # All that is typed here is ASCII, where characters are UTF-16 units.
        return {"line": self._row, "character": len(self._line)}

    def close(self) -> None:
        with contextlib.suppress(OSError, queue.Empty):
            self.request("shutdown", None)
            self.notify("exit", None)
        self._process.terminate()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._reading.join()

    def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        body = json.dumps(message).encode()
        with self._writing:
            self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self._process.stdin.flush()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while line := stream.readline():
            n_bytes = int(line.split(b":")[1])
            while stream.readline().strip():
                pass
            message = json.loads(stream.read(n_bytes))
            if "method" not in message:
                self._replies.put(message)
            elif "id" in message:
                self._send({"jsonrpc": "2.0", "id": message["id"], "result": None})


@contextlib.contextmanager
def language_client(url: str, knows: Sequence[str] = ()) -> Iterator[LanguageClient]:
    """A client whose bridge asks at `url`, with nobody's settings."""
    with tempfile.TemporaryDirectory() as workspace:
        client = LanguageClient(url, Path(workspace), knows)
        try:
            yield client
        finally:
            client.close()
