"""P1, P2: whatever comes, each request gets one reply, and the user is shown nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.json_values import JSON
from support.lsp_client import (
    NEOVIM,
    TIMEOUT_S,
    URI,
    VSCODE,
    Editor,
    Json,
    editing,
    editing_with_process,
)
from suture.lsp.protocol import BridgeProtocol
from suture.lsp.server import create_bridge

INLINE = "textDocument/inlineCompletion"
PLACE: Json = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 1}}
NOTHING: Json = {"items": []}


async def reply_to(editor: Editor, method: str, params: object) -> Json:
    return await asyncio.wait_for(editor.ask(method, params)[1], TIMEOUT_S)


async def is_well(editor: Editor) -> None:
    """It still answers, and has shown nothing to the user."""
    assert len(await editor.inline(0, 1)) == 1
    shown = [one for one in editor.told if one["method"].startswith("window/")]
    assert shown == []


def test_p1_p2_a_completion_is_never_an_error_and_nothing_pops_up() -> None:
    async def edit(url: str) -> None:
        async with editing(url, NEOVIM, {"prefetch": False}) as editor:
            editor.open("x")
            wrong: tuple[Any, ...] = (
                None,
                [],
                {},
                {"textDocument": {"uri": URI}, "context": {"triggerKind": 2}},
                {"textDocument": {"uri": 7}, "position": {"line": 0, "character": 0}},
                {"textDocument": None, "position": {}},
                {**PLACE, "textDocument": {"uri": "file:///never/opened.py"}},
                {**PLACE, "context": {"triggerKind": 2, "selectedCompletionInfo": 5}},
            )
            for params in wrong:
                result = (await reply_to(editor, INLINE, params)).get("result")
                assert result is not None and isinstance(result["items"], list), params
            for context in ({"triggerKind": 0}, {"triggerKind": 3}, {"triggerKind": "x"}, {}, None):
                result = (await reply_to(editor, INLINE, {**PLACE, "context": context}))["result"]
                assert len(result["items"]) == 1, context
            for place in ({"line": -5, "character": -1}, {"line": 2**40, "character": 2**40}, 3):
                params = {**PLACE, "position": place}
                assert "result" in await reply_to(editor, INLINE, params)
            await is_well(editor)

    with serving(FakeCompleter(says("a"))) as url:
        asyncio.run(edit(url))


def test_p1_other_requests_that_are_wrong_get_one_quiet_error() -> None:
    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"prefetch": False}) as editor:
            editor.open("x")
            for method, params, code in (
                ("no/such/method", {}, -32601),
                ("workspace/executeCommand", {"command": "suture.nothing"}, -32602),
                ("workspace/executeCommand", {"command": 5}, -32602),
                ("initialize", {"capabilities": 7}, -32600),
                ("initialize", {"capabilities": {}}, -32600),
                ("textDocument/didSave", {"textDocument": {"uri": URI}}, -32600),
                ("initialized", {}, -32600),
                ("$/cancelRequest", {"id": 1}, -32600),
                ("exit", None, -32600),
            ):
                assert (await reply_to(editor, method, params))["error"]["code"] == code
            odd: tuple[list[Any], ...] = ([{}], [None, 2, "x"], ["suture"], [[[]]])
            for arguments in odd:
                for name in ("toggle", "snooze", "accepted", "warmup", "clearCache", "status"):
                    await editor.command(name, *arguments)
                    await editor.command(name, *arguments)
            await editor.command("snooze", 0)
            await is_well(editor)

    with serving(FakeCompleter(says("a"))) as url:
        asyncio.run(edit(url))


def test_p1_what_is_no_request_at_all_is_refused_and_the_next_one_is_answered() -> None:
    bodies: list[tuple[bytes, int | None]] = [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"id":1,"method":"shutdown"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"shutdown"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"shutdown"}', -32600),
        (b'{"jsonrpc":"2.0","id":777,"result":null}', None),
        (b'{"jsonrpc":"2.0","id":[],"result":null}', None),
        (b'{"jsonrpc":"2.0","id":778,"error":{"code":1}}', None),
        (b'{"jsonrpc":"2.0","method":"no/such/notification"}', None),
        (b'{"jsonrpc":"2.0","method":"$/cancelRequest"}', None),
        (b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":{}}}', None),
        (b'{"jsonrpc":"2.0","method":"textDocument/didChange","params":[]}', None),
        (b'{"jsonrpc":"2.0","method":"workspace/didChangeConfiguration","params":{}}', None),
    ]

    async def edit(url: str) -> None:
        async with editing_with_process(url, VSCODE, {"prefetch": False}) as editor:
            editor.open("x")
            editor.send_raw(b"")
            for body, _ in bodies:
                editor.send_raw(body)
            await is_well(editor)
            codes = [one["error"]["code"] for one in editor.stray]
            assert codes == [-32700, *(code for _, code in bodies if code is not None)]
            editor.stray.clear()

    with serving(FakeCompleter(says("a"))) as url:
        asyncio.run(edit(url))


def test_p1_before_the_beginning_and_after_the_end_requests_are_refused() -> None:
    async def edit(url: str) -> None:
        async with editing(url, VSCODE) as editor:
            await editor.request("shutdown", None)
            assert (await reply_to(editor, INLINE, PLACE))["error"]["code"] == -32600
            editor.notify("exit", None)
            assert await editor.ended() == 0

    with serving(FakeCompleter()) as url:
        asyncio.run(edit(url))


class Written:
    """What a protocol sends."""

    def __init__(self) -> None:
        self.messages: list[Json] = []

    def write(self, data: bytes) -> None:
        self.messages.append(json.loads(data.split(b"\r\n\r\n", 1)[1]))

    def close(self) -> None:
        """Nothing to close."""


def begun() -> tuple[BridgeProtocol, Written]:
    protocol, written = create_bridge("http://127.0.0.1:9").protocol, Written()
    protocol.set_writer(written)
    return protocol, written


METHOD = st.sampled_from(
    [
        *(INLINE, "textDocument/completion", "no/such", "initialize"),
        # These are told, and not asked.
        *("initialized", "exit", "$/cancelRequest", "$/setTrace", "suture/didShow"),
        *("textDocument/didOpen", "textDocument/didChange", "textDocument/didClose"),
    ]
)
MESSAGE = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.integers(0, 9) | JSON},
    optional={
        "method": METHOD | JSON,
        "params": JSON | st.just({}),
        "error": JSON,
        "result": JSON,
    },
)


@given(st.lists(MESSAGE | JSON, max_size=4))
@settings(max_examples=50)
def test_p1_of_any_json_each_request_gets_one_reply(messages: list[Any]) -> None:
    async def converse() -> list[Json]:
        protocol, written = begun()
        started = {"jsonrpc": "2.0", "id": "first", "method": "initialize"}
        protocol.receive(json.dumps(started | {"params": {"capabilities": {}}}).encode())
        for message in messages:
            protocol.receive(json.dumps(message).encode())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return written.messages

    told = asyncio.run(converse())
    assert all("method" not in one for one in told)
    asked = [
        one["id"]
        for one in messages
        if isinstance(one, dict)
        and one.get("jsonrpc") == "2.0"
        and isinstance(one.get("id"), int | str)
        and not isinstance(one.get("id"), bool)
        and (isinstance(one.get("method"), str) or not {"result", "error"} & one.keys())
    ]
    replied = [one["id"] for one in told if one.get("id") not in (None, "first")]
    assert sorted(map(repr, replied)) == sorted(map(repr, asked))


@pytest.mark.parametrize("method", [INLINE, "workspace/executeCommand"])
def test_p1_before_initialize_nothing_is_served(method: str) -> None:
    async def converse() -> list[Json]:
        protocol, written = begun()
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": PLACE}
        protocol.receive(json.dumps(request).encode())
        return written.messages

    (told,) = asyncio.run(converse())
    assert told["error"]["code"] == -32002


def test_nothing_is_said_before_the_reply_to_initialize() -> None:
    async def converse() -> list[Json]:
        protocol, written = begun()
        params = {"capabilities": {}, "initializationOptions": {"suture": {"maxTokens": "x"}}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        protocol.receive(json.dumps(request).encode())
        return written.messages

    (told,) = asyncio.run(converse())
    assert told["id"] == 1 and told["result"]["capabilities"]["inlineCompletionProvider"] == {}
