"""An editor in a few lines: raw JSON-RPC with a bridge, in this process or one of its own.

A *profile* is what an editor says of itself when it starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from suture.lsp.server import create_bridge

Json = dict[str, Any]

# Far more than it takes: these machines are shared.
TIMEOUT_S = 60.0
URI = "file:///work space/a.py"
_WORKSPACE: Json = {
    "configuration": False,
    "didChangeConfiguration": {"dynamicRegistration": False},
}
VSCODE: Json = {
    "clientInfo": {"name": "Visual Studio Code", "version": "1.104.0"},
    "capabilities": {
        "general": {"positionEncodings": ["utf-16"]},
        "textDocument": {"inlineCompletion": {"dynamicRegistration": True}},
        "window": {"workDoneProgress": True},
        "workspace": _WORKSPACE,
    },
}
# As our own clients do.
GROWS: Json = {"initializationOptions": {"knows": ["suture/didGrow"]}}
NEOVIM: Json = {
    "clientInfo": {"name": "Neovim", "version": "0.12.0"},
    "capabilities": {
        "general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"]},
        "textDocument": {"inlineCompletion": {"dynamicRegistration": False}},
        "window": {"workDoneProgress": True},
        "workspace": _WORKSPACE,
    },
}
COPILOT_STYLE: Json = {
    "clientInfo": {"name": "some-editor", "version": "1"},
    "capabilities": {"workspace": _WORKSPACE},
    "initializationOptions": {
        "editorInfo": {"name": "some-editor", "version": "1"},
        "editorPluginInfo": {"name": "some-plugin", "version": "1"},
    },
}


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it is so."""
    for _ in range(int(TIMEOUT_S / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come true")


class Editor:
    """An editor. `told` is what the server told and asked; `answers` are ours, by the method.

    What it asks with a method in `held` is not answered by itself. `stray` are replies to nothing
    that was asked.
    """

    def __init__(
        self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, ended: asyncio.Task[int]
    ) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._ended = ended
        self._ids = itertools.count(1)
        self._waiting: dict[Any, asyncio.Future[Json]] = {}
        self.told: list[Json] = []
        self.stray: list[Json] = []
        self.answers: dict[str, object] = {}
        self.held: set[str] = set()
        self.version = 0
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while line := await self._stdout.readline():
            n_bytes = int(line.split(b":")[1])
            while (await self._stdout.readline()).strip():
                pass
            self._take(json.loads(await self._stdout.readexactly(n_bytes)))

    def _take(self, message: Json) -> None:
        if "method" in message:
            self.told.append(message)
            if "id" in message:  # a request to us
                if message["method"] not in self.held:
                    self.answer(message)
        elif waiting := self._waiting.pop(message["id"], None):
            waiting.set_result(message)
        else:
            self.stray.append(message)

    def answer(self, request: Json) -> None:
        """Answer a request of the server as `answers` say; an exception refuses it."""
        result = self.answers.get(request["method"])
        told: Json = {"result": result}
        if isinstance(result, Exception):
            told = {"error": {"code": -32601, "message": str(result)}}
        self.send({"jsonrpc": "2.0", "id": request["id"], **told})

    def send(self, message: object) -> None:
        self.send_raw(json.dumps(message).encode())

    def send_raw(self, body: bytes) -> None:
        self._stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def notify(self, method: str, params: object) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method: str, params: object) -> tuple[int, asyncio.Future[Json]]:
        """The id of a request, and its reply to come."""
        msg_id = next(self._ids)
        reply = self._waiting[msg_id] = asyncio.get_running_loop().create_future()
        self.send({"jsonrpc": "2.0", "id": msg_id, "method": method, "params": params})
        return msg_id, reply

    async def request(self, method: str, params: object) -> Any:
        """The result of a request, which must have one."""
        message = await asyncio.wait_for(self.ask(method, params)[1], TIMEOUT_S)
        assert "error" not in message, message
        return message["result"]

    async def command(self, name: str, *arguments: object) -> Any:
        params = {"command": f"suture.{name}", "arguments": list(arguments)}
        return await self.request("workspace/executeCommand", params)

    async def initialize(self, profile: Json, options: Json) -> Json:
        given = {**profile.get("initializationOptions", {}), "suture": options}
        params = {"processId": os.getpid(), **profile, "initializationOptions": given}
        result: Json = await self.request("initialize", params)
        self.notify("initialized", {})
        return result

    def open(self, text: str, uri: str = URI, language: str = "python") -> None:
        document = {"uri": uri, "languageId": language, "version": 0, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def type(self, text: str, line: int, character: int, behind: str = "", uri: str = URI) -> None:
        """Insert text at a place; `behind` is what the editor adds behind the cursor."""
        place = {"line": line, "character": character}
        change = {"range": {"start": place, "end": place}, "text": text + behind}
        self.version += 1
        document = {"uri": uri, "version": self.version}
        params = {"textDocument": document, "contentChanges": [change]}
        self.notify("textDocument/didChange", params)

    def delete(self, line: int, start: int, end: int, uri: str = URI) -> None:
        """Delete what stands between two places of a line."""
        span = {
            "start": {"line": line, "character": start},
            "end": {"line": line, "character": end},
        }
        self.version += 1
        params = {
            "textDocument": {"uri": uri, "version": self.version},
            "contentChanges": [{"range": span, "text": ""}],
        }
        self.notify("textDocument/didChange", params)

    def ask_inline(
        self, line: int, character: int, kind: int = 2, uri: str = URI, **context: object
    ) -> tuple[int, asyncio.Future[Json]]:
        params = {
            "textDocument": {"uri": uri, "version": self.version},
            "position": {"line": line, "character": character},
            "context": {"triggerKind": kind, **context},
            "formattingOptions": {"tabSize": 4, "insertSpaces": True},
        }
        return self.ask("textDocument/inlineCompletion", params)

    async def inline(
        self, line: int, character: int, kind: int = 2, uri: str = URI, **context: object
    ) -> list[Json]:
        """The items at a place."""
        _, reply = self.ask_inline(line, character, kind, uri, **context)
        message = await asyncio.wait_for(reply, TIMEOUT_S)
        items: list[Json] = message["result"]["items"]
        return items

    def statuses(self) -> list[Json]:
        return [one["params"] for one in self.told if one["method"] == "suture/status"]

    async def status_with(self, reason: str | None) -> Json:
        """The latest status, once it has this reason."""
        for _ in range(int(TIMEOUT_S / 0.02)):
            if (told := self.statuses()) and told[-1]["reason"] == reason:
                return told[-1]
            await asyncio.sleep(0.02)
        raise AssertionError(f"no status {reason}: {self.statuses()}")

    async def close(self) -> int:
        """Leave as editors do; the exit status of the process."""
        if not self._ended.done():
            await self.request("shutdown", None)
            self.notify("exit", None)
        status = await self.ended()
        self._reading.cancel()
        self._stdin.close()
        return status

    async def ended(self) -> int:
        """The exit status of the server, once it has ended."""
        return await asyncio.wait_for(asyncio.shield(self._ended), TIMEOUT_S)


@asynccontextmanager
async def editing(
    url: str,
    profile: Json = VSCODE,
    options: Json | None = None,
    answers: dict[str, object] | None = None,
    held: Iterable[str] = (),
) -> AsyncIterator[Editor]:
    """An editor that has started, with a bridge in this process: that of its own takes seconds.

    The bridge must end with the block, and well.
    """
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        for name in ("SUTURE_CACHE", "XDG_CONFIG_HOME"):
            patch.setenv(name, home)
        patch.delenv("SUTURE_SERVER", raising=False)
        reader, writer = await asyncio.open_connection(sock=theirs)
        ended = asyncio.ensure_future(create_bridge(url).serve(reader, writer))
        stdout, stdin = await asyncio.open_connection(sock=ours, limit=2**26)
        editor = Editor(stdin, stdout, ended)
        editor.answers = answers or {}
        editor.held = set(held)
        try:
            await editor.initialize(profile, options or {})
            yield editor
            assert await editor.close() == 0
            assert editor.stray == []
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
            await asyncio.sleep(0.05)  # what was cancelled lets go of its connection
            for end in (stdin, writer):
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()


@asynccontextmanager
async def editing_with_process(
    url: str | None,
    profile: Json = VSCODE,
    options: Json | None = None,
    environ: dict[str, str] | None = None,
    status: int = 0,
) -> AsyncIterator[Editor]:
    """The same with a process of `suture lsp`, which must end with the block and with `status`."""
    server = [] if url is None else ["--server", url]
    with tempfile.TemporaryDirectory() as home:
        own = {"SUTURE_CACHE": home, "XDG_CONFIG_HOME": home}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "suture.server", "lsp", *server),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **own, **(environ or {})},
            limit=2**26,
        )
        assert process.stdin is not None and process.stdout is not None
        editor = Editor(process.stdin, process.stdout, asyncio.ensure_future(process.wait()))
        try:
            await editor.initialize(profile, options or {})
            yield editor
            assert await editor.close() == status
            assert editor.stray == []
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
