"""Two editors that start at once share one real server, which outlives them for a while."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from support.lsp_client import NEOVIM, VSCODE, Editor, Json, editing_with_process
from suture.lsp.launch import COMMAND, Presence, find_or_start, is_held, run_folder
from suture.server.settings import load_settings

pytestmark = [pytest.mark.e2e, pytest.mark.model]
OPTIONS: Json = {"prefetch": False, "maxTokens": 8, "server": {"idleMinutes": 1}}


def record(cache: Path) -> Json:
    (path,) = (cache / "run").glob("server-*.json")
    found: Json = json.loads(path.read_text())
    return found


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        # One that nobody has waited for yet has no command.
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True  # somebody has waited for it just now


async def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while not is_gone(pid):
        assert time.monotonic() < deadline, "it goes on"
        await asyncio.sleep(0.05)


async def completed(editor: Editor, line: int, character: int) -> None:
    """Ask until something comes: the server may be starting."""
    for _ in range(300):
        if await editor.inline(line, character, kind=1):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"nothing comes: {editor.statuses()}")


def test_two_editors_share_one_server_and_find_it_again_when_it_was_killed(
    tmp_path: Path, small_model: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = str(listener.getsockname()[1])
    environ = {
        "SUTURE_CACHE": str(tmp_path),
        "SUTURE_MODEL": str(small_model),
        "SUTURE_PORT": nobody,
        "SUTURE_THREADS": "1",
        "SUTURE_CTX": "1024",
    }

    async def edit() -> None:
        async with (
            editing_with_process(None, VSCODE, OPTIONS, environ) as first,
            editing_with_process(None, NEOVIM, OPTIONS, environ) as second,
        ):
            for editor in (first, second):
                editor.open("for i in range(10):\n    print(")
                await completed(editor, 1, 10)
            server = record(tmp_path)
            os.kill(server["pid"], signal.SIGKILL)
            await wait_until_gone(server["pid"])
            # Keys that no answer at hand begins with; the dying worker may still answer some.
            for n in range(300):
                first.type("q", 1, 10 + n)
                await first.inline(1, 11 + n, kind=1)
                if record(tmp_path).get("pid", server["pid"]) != server["pid"]:
                    break
                await asyncio.sleep(0.2)
            first.type("i", 1, 11 + n)
            await completed(first, 1, 12 + n)
            assert record(tmp_path)["pid"] != server["pid"]

    try:
        asyncio.run(edit())
        assert not is_gone(record(tmp_path)["pid"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record(tmp_path)["pid"], signal.SIGTERM)
        asyncio.run(wait_until_gone(record(tmp_path)["pid"]))


def test_a_shared_server_ends_a_while_after_the_last_editor(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path))
    monkeypatch.setenv("SUTURE_MODEL", str(small_model))
    monkeypatch.setenv("SUTURE_THREADS", "1")
    monkeypatch.setenv("SUTURE_CTX", "1024")
    folder = run_folder(load_settings())
    presence = Presence()
    presence.announce(folder)
    idle_s = 3.0
    find_or_start(folder, (*COMMAND, "--idle-minutes", str(idle_s / 60)))
    server = record(tmp_path)["pid"]
    try:
        # It has its editor for longer than it would live without.
        deadline = time.monotonic() + 3 * idle_s
        while time.monotonic() < deadline:
            assert not is_gone(server) and is_held(folder.record)
            time.sleep(0.1)
        presence.end()
        asyncio.run(wait_until_gone(server))
        # Its worker has the lock, too, and ends behind it.
        deadline = time.monotonic() + 30
        while is_held(folder.record):
            assert time.monotonic() < deadline, "its worker goes on"
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGTERM)
