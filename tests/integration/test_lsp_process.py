"""The process of `suture lsp`: how it is spoken with, and how it ends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.lsp_client import TIMEOUT_S, URI, VSCODE, Json, editing_with_process
from suture.lsp.transport import read_messages


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and settings of the test's own."""
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SUTURE_SERVER", raising=False)


COMMAND = (sys.executable, "-m", "suture.server", "lsp")


def framed(message: Json) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


async def replies(reader: asyncio.StreamReader, n: int) -> dict[int, Json]:
    """The first so many replies, by their ids."""
    found: dict[int, Json] = {}
    async for body in read_messages(reader):
        message: Json = json.loads(body)
        if "method" not in message:
            found[message["id"]] = message
        if len(found) == n:
            break
    return found


def test_p3_over_tcp_of_a_text_that_changes_in_the_same_packet_nothing_is_asked() -> None:
    completer = FakeCompleter(says("a"))

    async def edit(url: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "--server", url, "--tcp", "0"), stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        told = await asyncio.wait_for(process.stderr.readline(), TIMEOUT_S)
        port = int(told.rpartition(b":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        start: Json = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 1}}
        place = start["position"]
        change = {"range": {"start": place, "end": place}, "text": "never"}
        options = {"suture": {"prefetch": False, "debounceMs": 0}}
        params: Json = {"capabilities": {}, "initializationOptions": options}
        document: Json = {"uri": URI, "languageId": "python", "version": 0, "text": "x"}
        packet: list[Json] = [
            {"id": 1, "method": "initialize", "params": params},
            {"method": "textDocument/didOpen", "params": {"textDocument": document}},
            {"id": 2, "method": "textDocument/inlineCompletion", "params": start},
            {
                "method": "textDocument/didChange",
                "params": {"textDocument": {"uri": URI}, "contentChanges": [change]},
            },
            {"id": 3, "method": "shutdown"},
        ]
        writer.write(b"".join(map(framed, packet[:4])))
        answered = await asyncio.wait_for(replies(reader, 2), TIMEOUT_S)
        # The text was another one before anything could be asked.
        assert answered[2]["result"] == {"items": []}
        writer.write(framed(packet[4]) + framed({"method": "exit"}))
        assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == 0
        writer.close()

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests == []


def test_it_ends_with_its_input_and_with_exit() -> None:
    assert run(b"") == (0, b"")
    initialize: Json = {"id": 1, "method": "initialize", "params": {"capabilities": {}}}
    status, output = run(framed(initialize) + framed({"method": "exit"}))
    assert status == 1 and b'"inlineCompletionProvider": {}' in output
    assert run(b"Content-Length: 999999999\r\n\r\n")[0] == 1


@pytest.mark.parametrize("length", ["268435457", "99999999999", "9" * 5000])
def test_a_message_that_says_it_is_too_long_is_refused_and_not_waited_for(length: str) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(f"Content-Length: {length}\r\n\r\n{{".encode())  # and it stays open
        with pytest.raises(ValueError):
            await asyncio.wait_for(anext(read_messages(reader)), TIMEOUT_S)

    asyncio.run(read())
    assert run(f"Content-Length: {length}\r\n\r\n".encode())[0] == 1


def run(messages: bytes) -> tuple[int, bytes]:
    done = subprocess.run(
        [*COMMAND, "--server", "http://127.0.0.1:9"],
        input=messages,
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout


def test_what_is_no_pipe_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with open(tmp_path / "file", "rb") as file:
        done = subprocess.run(COMMAND, stdin=file, capture_output=True, timeout=60)
    assert done.returncode == 2 and b"both ends must be pipes" in done.stderr


def test_it_ends_with_the_editor_also_where_its_input_stays_open() -> None:
    async def edit(url: str) -> None:
        with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1) as parent:
            profile = {**VSCODE, "processId": parent.pid}
            async with editing_with_process(url, profile, status=1) as editor:
                parent.kill()
                parent.wait()
                await editor.ended()

    with serving(FakeCompleter()) as url:
        asyncio.run(edit(url))


def test_the_bridge_has_no_vocabulary_and_none_of_what_one_needs_in_its_memory() -> None:
    code = "import sys, suture.lsp.server; print(*{'numpy', 'tiktoken'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert told.stdout.split() == []
