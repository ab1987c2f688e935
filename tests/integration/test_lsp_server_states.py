"""A server that is gone, loads, is slow, refuses a key or talks nonsense: one status, no storm."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.lsp_client import TIMEOUT_S, VSCODE, Editor, Json, editing, until
from suture.server.errors import EngineError, InfillUnsupported, QueueFull

ALONE: Json = {"prefetch": False, "debounceMs": 0}


def read_request(connection: socket.socket) -> None:
    """Read a whole request: what is left unread makes of the end of a connection a reset."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        if not (more := connection.recv(2**16)):
            return
        raw += more
    head, _, body = raw.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: *([0-9]+)", head, re.IGNORECASE)
    n_left = (int(found[1]) if found else 0) - len(body)
    while n_left > 0 and (more := connection.recv(2**16)):
        n_left -= len(more)


class Wire:
    """A server that says the same to everyone, or nothing; `n_asked` counts connections."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self.n_asked = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.n_asked += 1
            self._open.append(connection)
            if self._answer is not None:
                read_request(connection)
                connection.sendall(self._answer)
                connection.close()

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.close()


@contextmanager
def wire(answer: bytes | None) -> Iterator[Wire]:
    server = Wire(answer)
    try:
        yield server
    finally:
        server.close()


async def type_keys(editor: Editor, n_keys: int) -> None:
    """Type so many keys, each with a request that nothing comes of."""
    for n in range(n_keys):
        editor.type("x", 0, n)
        assert await editor.inline(0, n + 1) == []


def counted(editor: Editor, reason: str) -> int:
    return [one["reason"] for one in editor.statuses()].count(reason)


def no_popups(editor: Editor) -> bool:
    return not any(one["method"].startswith("window/show") for one in editor.told)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "ERROR"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"content":1}', "ERROR"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "ERROR"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "UNREACHABLE"),
        (b"", "UNREACHABLE"),
    ],
)
def test_what_is_no_suture_is_told_once_and_asked_seldom(answer: bytes, reason: str) -> None:
    async def edit(server: Wire) -> None:
        async with editing(server.url, VSCODE, ALONE) as editor:
            editor.open("")
            await type_keys(editor, 20)
            assert (await editor.status_with(reason))["kind"] == "Error"
            assert counted(editor, reason) == 1 and no_popups(editor)
        assert server.n_asked <= 8

    with wire(answer) as server:
        asyncio.run(edit(server))


def test_a_dead_server_is_told_once_and_found_again_when_it_is_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def edit() -> None:
        async with editing(f"http://127.0.0.1:{port}", VSCODE, ALONE) as editor:
            editor.open("")
            await type_keys(editor, 20)
            assert counted(editor, "UNREACHABLE") == 1 and no_popups(editor)
            with wire_of(port):
                # By hand it is asked at once, whatever was found before.
                assert len(await editor.inline(0, 20, kind=1)) == 1
            await editor.status_with(None)

    asyncio.run(edit())


@contextmanager
def wire_of(port: int) -> Iterator[None]:
    """A server at a port, which answers `/infill` with one text."""
    body = b'{"suture": {"edit": {"delete_after": 0, "text": "y"}, "reason": null}}'
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_server(("127.0.0.1", port)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            read_request(connection)
            connection.sendall(answer + body)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(10)


def test_a_model_that_loads_shows_progress_and_then_completes() -> None:
    completer = FakeCompleter(says("a"), loading="loading")

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            status = await editor.status_with("LOADING")
            assert status["busy"] and status["kind"] == "Normal"
            editor.open("")
            await type_keys(editor, 5)
            assert counted(editor, "LOADING") == 1
            completer.loading = "ready"
            await editor.status_with(None)
            progress = [one for one in editor.told if one["method"] == "$/progress"]
            kinds = [one["params"]["value"]["kind"] for one in progress]
            assert kinds == ["begin", "end"] and no_popups(editor)
            assert len(await editor.inline(0, 5)) == 1

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_a_server_that_answers_slowly_keeps_nobody_from_typing() -> None:
    async def edit(server: Wire) -> None:
        async with editing(server.url, VSCODE, ALONE) as editor:
            editor.open("")
            started = time.monotonic()
            replies = []
            for n in range(20):
                editor.type("x", 0, n)
                replies.append(editor.ask_inline(0, n + 1))
            msg_id, last = replies[-1]
            for _, reply in replies[:-1]:
                message = await asyncio.wait_for(reply, TIMEOUT_S)
                assert message["result"] == {"items": []}
            editor.notify("$/cancelRequest", {"id": msg_id})
            assert (await asyncio.wait_for(last, TIMEOUT_S))["error"]["code"] == -32800
            assert time.monotonic() - started < 30 and no_popups(editor)

    with wire(None) as server:
        asyncio.run(edit(server))


def test_a_refused_key_is_told_once_and_one_that_is_known_is_sent(tmp_path: Path) -> None:
    keys, wrong = tmp_path / "keys", tmp_path / "wrong"
    keys.write_text("right\n")
    wrong.write_text("wrong\n")
    completer = FakeCompleter(says("a"))

    async def edit(url: str) -> None:
        options = {**ALONE, "server": {"apiKeyFile": str(wrong)}}
        async with editing(url, VSCODE, options) as editor:
            editor.open("")
            await type_keys(editor, 10)
            assert "apiKeyFile" in (await editor.status_with("AUTH"))["message"]
            assert counted(editor, "AUTH") == 1 and no_popups(editor)
            section = {"server": {"apiKeyFile": str(keys)}}
            told = {"settings": {"suture": section}}
            editor.notify("workspace/didChangeConfiguration", told)
            editor.type("y", 0, 10)
            assert len(await editor.inline(0, 11)) == 1
            await editor.status_with(None)

    with serving(completer, api_key_file=keys) as url:
        asyncio.run(edit(url))


def test_a_key_file_that_is_missing_is_told_before_any_key_and_no_longer_once_it_is_not_set(
    tmp_path: Path,
) -> None:
    missing = {"server": {"apiKeyFile": str(tmp_path / "none")}}

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            await editor.status_with(None)
            for n_told in (1, 2):
                change = {"settings": {"suture": missing}}
                editor.notify("workspace/didChangeConfiguration", change)
                message = (await editor.status_with("ERROR"))["message"]
                assert message.startswith("suture.server.apiKeyFile: ") and "--" not in message
                editor.notify("workspace/didChangeConfiguration", {"settings": {"suture": {}}})
                await editor.status_with(None)
                assert counted(editor, "ERROR") == n_told and no_popups(editor)
            editor.open("x")
            assert len(await editor.inline(0, 1)) == 1
            assert editor.statuses()[-1]["reason"] is None

    with serving(FakeCompleter(says("a"))) as url:
        asyncio.run(edit(url))


def test_a_key_file_that_is_missing_at_the_start_is_told_before_any_key(tmp_path: Path) -> None:
    async def edit(url: str) -> None:
        options = {**ALONE, "server": {"apiKeyFile": str(tmp_path / "none")}}
        async with editing(url, VSCODE, options) as editor:
            await editor.status_with("ERROR")

    with serving(FakeCompleter()) as url:
        asyncio.run(edit(url))


@pytest.mark.parametrize(
    ("raised", "reason", "kind"),
    [
        (QueueFull("full"), "BUSY", "Warning"),
        (InfillUnsupported("no sentinels"), "NO_FIM", "Warning"),
        (EngineError("it broke"), "ERROR", "Error"),
    ],
)
def test_what_the_server_says_is_wrong_is_what_the_status_says(
    raised: Exception, reason: str, kind: str
) -> None:
    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("")
            await type_keys(editor, 5)
            assert (await editor.status_with(reason))["kind"] == kind
            assert counted(editor, reason) == 1 and no_popups(editor)
            assert (await editor.command("explainLast"))["reason"] == reason

    with serving(FakeCompleter([raised])) as url:
        asyncio.run(edit(url))


def test_an_option_that_does_not_fit_is_told_once_and_its_default_stays() -> None:
    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {**ALONE, "maxTokens": "many"}) as editor:
            editor.open("")
            assert len(await editor.inline(0, 0)) == 1
            told = editor.statuses()
            assert [one["kind"] for one in told] == ["Warning"] and no_popups(editor)
            assert told[0]["message"] == "suture.maxTokens: must be a whole number"

    completer = FakeCompleter(says("a"))
    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests[0].max_tokens == 64


WORKSPACE: Json = {
    "configuration": True,
    "didChangeConfiguration": {"dynamicRegistration": True},
}
ASKED: Json = {**VSCODE, "capabilities": {**VSCODE["capabilities"], "workspace": WORKSPACE}}


def test_nothing_is_sent_before_the_configuration_that_may_exclude_it_is_known() -> None:
    completer = FakeCompleter(says("a"))
    method = "workspace/configuration"

    async def edit(url: str) -> None:
        answers: dict[str, object] = {method: [{"exclude": ["*.py"]}]}
        async with editing(url, ASKED, ALONE, answers=answers, held={method}) as editor:
            editor.open("x")
            _, reply = editor.ask_inline(0, 1)
            await until(lambda: any(one["method"] == method for one in editor.told))
            await asyncio.sleep(0.3)
            assert not reply.done()
            editor.answer(next(one for one in editor.told if one["method"] == method))
            assert (await asyncio.wait_for(reply, TIMEOUT_S))["result"] == {"items": []}
            assert (await editor.command("explainLast"))["reason"] == "EXCLUDED"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests == []


def test_a_client_that_refuses_to_tell_its_configuration_is_served() -> None:
    completer = FakeCompleter(says("a"), loading="loading")
    refusals: dict[str, object] = {
        name: ValueError("no") for name in ("workspace/configuration", "client/registerCapability")
    }

    async def edit(url: str) -> None:
        async with editing(url, ASKED, ALONE, answers=refusals) as editor:
            # The server is found before the first key.
            await editor.status_with("LOADING")
            completer.loading = "ready"
            await editor.status_with(None)
            editor.open("x")
            assert len(await editor.inline(0, 1)) == 1

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_options_are_asked_for_and_asked_for_again_when_they_change() -> None:
    completer = FakeCompleter(says("a"))

    def methods(editor: Editor) -> list[str]:
        return [one["method"] for one in editor.told if "id" in one]

    async def edit(url: str) -> None:
        answers: dict[str, object] = {"workspace/configuration": [{"maxTokens": 7}]}
        async with editing(url, ASKED, {**ALONE, "maxTokens": 9}, answers=answers) as editor:
            editor.open("x")
            asked = {"workspace/configuration", "client/registerCapability"}
            await until(lambda: {*methods(editor)} == asked)
            await editor.inline(0, 1)
            editor.answers["workspace/configuration"] = [None]
            editor.notify("workspace/didChangeConfiguration", {"settings": None})
            await until(lambda: methods(editor).count("workspace/configuration") == 2)
            editor.type("y", 0, 1)
            await editor.inline(0, 2)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [one.max_tokens for one in completer.requests] == [7, 9]
