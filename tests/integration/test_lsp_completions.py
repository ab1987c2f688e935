"""What editors see while one types: the bridge, and a server that plays a script."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.lsp_client import (
    COPILOT_STYLE,
    NEOVIM,
    TIMEOUT_S,
    URI,
    VSCODE,
    Json,
    editing,
    editing_with_process,
    until,
)

BODY = "(a, b):\n    return a + b"
ALONE: Json = {"prefetch": False, "debounceMs": 0}


def applied(text: str, item: Json, encoding: str = "utf-16-le") -> str:
    """A document of one line end kind with an item accepted."""
    lines = text.split("\n")
    start, end = item["range"]["start"], item["range"]["end"]
    assert start["line"] == end["line"]
    unit = 1 if encoding == "utf-8" else 2
    raw = lines[start["line"]].encode(encoding)
    head, tail = raw[: start["character"] * unit], raw[end["character"] * unit :]
    lines[start["line"]] = head.decode(encoding) + item["insertText"] + tail.decode(encoding)
    return "\n".join(lines)


def test_vs_code_types_sees_and_types_through_without_a_new_generation() -> None:
    completer = FakeCompleter(says(BODY))

    async def edit(url: str) -> None:
        async with editing_with_process(url, VSCODE, ALONE) as editor:
            editor.open("def add\nx = 1\n")
            (item,) = await editor.inline(0, 7)
            assert applied("def add\nx = 1\n", item) == f"def add{BODY}\nx = 1\n"
            assert item["filterText"] == item["insertText"] == f"def add{BODY}"
            # The editor closes the bracket: the range goes over it.
            editor.type("(", 0, 7, behind=")")
            for n, char in enumerate("(a, b"):
                if n:
                    editor.type(char, 0, 7 + n)
                text = "def add" + "(a, b"[: n + 1] + ")\nx = 1\n"
                (item,) = await editor.inline(0, 8 + n)
                assert applied(text, item) == f"def add{BODY}\nx = 1\n"
            assert (await editor.command("explainLast"))["source"] == "typed"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert len(completer.requests) == 1
    request = completer.requests[0]
    assert (request.prefix, request.suffix) == ("def add", "\nx = 1\n")
    assert (request.path, request.language, request.shape) == ("/work space/a.py", "python", "auto")
    assert request.sampling.temperature == 0 and request.seq is not None


def test_neovim_counts_bytes_and_gets_a_range_at_the_cursor() -> None:
    completer = FakeCompleter(says("x)\r\ny"))

    async def edit(url: str) -> None:
        async with editing(url, NEOVIM, ALONE) as editor:
            editor.open("s = '漢😀' + f()\r\n")
            (item,) = await editor.inline(0, len("s = '漢😀' + f(".encode()))
            # Its buffers have no CR.
            assert item["insertText"] == "x)\ny"
            at = len("s = '漢😀' + f(".encode())
            assert item["range"]["start"] == {"line": 0, "character": at}
            assert "filterText" not in item

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests[0].prefix == "s = '漢😀' + f("
    assert completer.requests[0].suffix == ")\r\n"


def test_a_copilot_style_client_is_served_and_its_events_are_counted() -> None:
    completer = FakeCompleter(says(" = 1"))

    async def edit(url: str) -> None:
        async with editing(url, COPILOT_STYLE, ALONE) as editor:
            editor.open("😀x")
            (item,) = await editor.inline(0, 3)
            assert applied("😀x", item) == "😀x = 1"
            editor.notify("textDocument/didShowCompletion", {"item": item})
            params = {"item": item, "acceptedLength": 2}
            editor.notify("textDocument/didPartiallyAcceptCompletion", params)
            editor.notify("suture/didReject", {"item": item})
            editor.notify("textDocument/didFocus", {"textDocument": {"uri": URI}})
            odd: tuple[list[Any], ...] = ([], [{"x": 1}], ["zzz"], [None], [[{}]])
            for arguments in odd:
                await editor.command("accepted", *arguments)
            await editor.command("accepted", {"number": 10**9, "start": 0, "typed": 0})
            await editor.command("accepted", *item["command"]["arguments"])
            status = await editor.command("status")
            assert status["server"] == url
            assert status["counts"] == {
                "shown": 1, "partly_accepted": 1, "rejected": 1, "focused": 1, "accepted": 1
            }  # fmt: skip
            told = {one["method"] for one in editor.told}
            assert {"suture/status", "didChangeStatus"} <= told

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_crlf_stays_crlf_and_a_place_inside_a_character_is_before_it() -> None:
    completer = FakeCompleter(says("1\r\ny = 2"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("a\u2028b\r\nx = 😀\r\n")
            (item,) = await editor.inline(1, 5)
            assert item["insertText"] == "x = 1\r\ny = 2"
            assert item["range"]["end"] == {"line": 1, "character": 4}
            (item,) = await editor.inline(999, 10**12)  # far beyond the end
            assert item["range"]["start"] == {"line": 2, "character": 0}

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests[0].prefix == "a\u2028b\r\nx = "
    assert completer.requests[0].suffix == "😀\r\n"
    assert completer.requests[1].prefix == "a\u2028b\r\nx = 😀\r\n"


def test_a_row_of_the_popup_is_gone_on_from_or_nothing_comes() -> None:
    completer = FakeCompleter(says("(1)"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x = pr\n")
            span = {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 6}}
            row = {"range": span, "text": "print"}
            (item,) = await editor.inline(0, 6, selectedCompletionInfo=row)
            assert applied("x = pr\n", item) == "x = print(1)\n"
            assert item["insertText"] == "x = print(1)"
            row = {"range": span, "text": "map_pr"}
            assert await editor.inline(0, 6, selectedCompletionInfo=row) == []
            assert (await editor.command("explainLast"))["reason"] == "DISABLED"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [request.prefix for request in completer.requests] == ["x = print"]


def test_in_front_of_a_word_something_comes_only_by_hand() -> None:
    completer = FakeCompleter(says("user_"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x = name\n")
            assert await editor.inline(0, 4) == []
            assert (await editor.status_with("MIDWORD"))["kind"] == "Normal"
            (item,) = await editor.inline(0, 4, kind=1)
            assert applied("x = name\n", item) == "x = user_name\n"
            # What is shown stays while one types it, wherever the cursor is.
            editor.type("u", 0, 4)
            (item,) = await editor.inline(0, 5)
            assert applied("x = uname\n", item) == "x = user_name\n"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [request.shape for request in completer.requests] == ["line"]


def test_what_follows_a_suggestion_is_fetched_ahead_and_there_when_it_is_accepted() -> None:
    completer = FakeCompleter(says(" = 1\n"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"debounceMs": 0}) as editor:
            editor.open("x")
            assert len(await editor.inline(0, 1)) == 1
            await until(lambda: len(completer.requests) == 2)
            assert completer.requests[1].prefix == "x = 1\n"
            editor.type(" = 1\n", 0, 1)
            assert len(await editor.inline(1, 0)) == 1
            assert (await editor.command("explainLast"))["source"] in ("typed", "ahead")
            await until(lambda: len(completer.requests) == 3)

    with serving(completer) as url:
        asyncio.run(edit(url))
    sessions = [request.session for request in completer.requests]
    assert sessions[0] != sessions[1] == sessions[2]


def test_q2_any_other_request_ends_what_is_fetched_ahead() -> None:
    first, slow = FakeCompleter(says(" = 1")), FakeCompleter(says("z"), delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"debounceMs": 0}) as editor:
            editor.open("x")
            await editor.inline(0, 1)
            await until(lambda: len(slow.requests) == 1)
            editor.type("y", 0, 1)
            _, reply = editor.ask_inline(0, 2)
            await until(lambda: slow.cancelled == 1 and len(slow.requests) == 2)
            editor.type("z", 0, 2)
            editor.ask_inline(0, 3)
            assert (await asyncio.wait_for(reply, TIMEOUT_S))["result"] == {"items": []}

    class Both(FakeCompleter):
        def complete(self, request: Any) -> Any:
            return (slow if len(first.requests) else first).complete(request)

    with serving(Both()) as url:
        asyncio.run(edit(url))


def test_q1_a_cancelled_request_is_told_so_once_the_engine_has_stopped() -> None:
    completer = FakeCompleter(says("a"), delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x")
            msg_id, reply = editor.ask_inline(0, 1)
            await until(lambda: len(completer.requests) == 1)
            editor.notify("$/cancelRequest", {"id": msg_id})
            assert (await asyncio.wait_for(reply, TIMEOUT_S))["error"]["code"] == -32800
            await until(lambda: completer.cancelled == 1)
            # Also one whose cancelling comes in the same packet.
            msg_id, reply = editor.ask_inline(0, 1)
            editor.notify("$/cancelRequest", {"id": msg_id})
            assert (await asyncio.wait_for(reply, TIMEOUT_S))["error"]["code"] == -32800
            editor.notify("$/cancelRequest", {"id": 999})
            await until(lambda: completer.cancelled == len(completer.requests))

    with serving(completer) as url:
        asyncio.run(edit(url))


@pytest.mark.parametrize("cancels", [True, False])
def test_q1_of_a_burst_of_keys_the_engine_sees_few_and_is_idle_afterwards(cancels: bool) -> None:
    completer = FakeCompleter(says("a"), delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"debounceMs": 500}) as editor:
            editor.open("")
            asked = []
            for n in range(20):
                editor.type("x", 0, n)
                asked.append(editor.ask_inline(0, n + 1))
                await asyncio.sleep(0.03)
                if cancels:
                    editor.notify("$/cancelRequest", {"id": asked[-1][0]})
            if not cancels:
                editor.notify("$/cancelRequest", {"id": asked[-1][0]})
            told = [await asyncio.wait_for(reply, TIMEOUT_S) for _, reply in asked]
            # None is answered with a text, and each that was cancelled with that alone.
            cancelled = [one["error"]["code"] for one in told if "error" in one]
            assert cancelled == [-32800] * (20 if cancels else 1)
            assert [one["result"] for one in told if "result" in one] == [{"items": []}] * (
                0 if cancels else 19
            )
            await until(lambda: completer.cancelled == len(completer.requests))

    with serving(completer) as url:
        asyncio.run(edit(url))
    # At most the last, where the machine keeps the pace; on a busy one some keys may come late.
    assert len(completer.requests) <= 6


def test_two_documents_are_asked_about_at_once_and_closing_one_ends_its_request() -> None:
    completer = FakeCompleter(says("a"), delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x", "file:///a.py")
            editor.open("y", "untitled:Untitled-1")
            _, first = editor.ask_inline(0, 1, uri="file:///a.py")
            _, second = editor.ask_inline(0, 1, uri="untitled:Untitled-1")
            await until(lambda: len(completer.requests) == 2)
            closed = {"textDocument": {"uri": "file:///a.py"}}
            editor.notify("textDocument/didClose", closed)
            assert (await asyncio.wait_for(first, TIMEOUT_S))["result"] == {"items": []}
            assert not second.done()

    with serving(completer) as url:
        asyncio.run(edit(url))
    # They come over connections of their own, in any order.
    assert {one.prefix: one.path for one in completer.requests} == {"x": "/a.py", "y": None}


def test_that_all_is_off_or_on_again_is_told_before_anything_is_asked() -> None:
    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            for enable, reason in ((False, "DISABLED"), (True, None)):
                settings = {"suture": ALONE | {"enable": enable}}
                editor.notify("workspace/didChangeConfiguration", {"settings": settings})
                await editor.status_with(reason)
            await editor.command("toggle")
            assert (await editor.status_with("DISABLED"))["message"] == "suggestions are turned off"
            await editor.command("toggle")
            await editor.status_with(None)
            await editor.command("snooze", 5)
            assert "5 min" in (await editor.status_with("DISABLED"))["message"]
            editor.open("x")
            assert await editor.inline(0, 1) == []
            await editor.command("snooze", 0)
            # Nor does it go on saying what was refused last.
            await editor.status_with(None)

    with serving(FakeCompleter(says("a"))) as url:
        asyncio.run(edit(url))


def test_files_of_secrets_and_what_is_turned_off_are_never_sent() -> None:
    completer = FakeCompleter(says("a"))

    async def edit(url: str) -> None:
        options = {**ALONE, "languages": {"markdown": False}, "exclude": ["*.csv"]}
        async with editing(url, VSCODE, options) as editor:
            for uri, language, reason in (
                ("file:///repo/.env", "dotenv", "EXCLUDED"),
                ("file:///repo/a.csv", "csv", "EXCLUDED"),
                ("file:///repo/a.md", "markdown", "DISABLED"),
            ):
                editor.open("x", uri, language)
                assert await editor.inline(0, 1, kind=1, uri=uri) == []
                assert (await editor.command("explainLast"))["reason"] == reason
                await editor.command("warmup", uri)
            editor.open("x")
            assert await editor.command("toggle") == {"enabled": False}
            assert await editor.inline(0, 1) == []
            assert await editor.command("toggle") == {"enabled": True}
            assert await editor.command("toggle", "python") == {"enabled": False}
            assert await editor.inline(0, 1) == []
            assert await editor.command("toggle", "python") == {"enabled": True}
            assert await editor.command("snooze", 5) == {"minutes": 5}
            assert await editor.inline(0, 1) == []
            assert (await editor.status_with("DISABLED"))["kind"] == "Inactive"
            assert await editor.command("snooze", 0) == {"minutes": 0}
            assert completer.requests == []
            assert len(await editor.inline(0, 1)) == 1

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_completion_lists_come_where_they_are_asked_for() -> None:
    completer = FakeCompleter(says(BODY))

    async def edit(url: str) -> None:
        async with editing(url, NEOVIM, {**ALONE, "completion": True}) as editor:
            editor.open("def add\n")
            place = {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 7}}
            listed = await editor.request("textDocument/completion", place)
            assert listed["isIncomplete"]
            (item,) = listed["items"]
            assert item["label"] == "add(a, b):"
            # Editors show of their rows those that the word before the cursor begins.
            assert item["filterText"] == item["textEdit"]["newText"] == "add" + BODY
            assert item["textEdit"]["range"]["start"]["character"] == 4
        async with editing(url, NEOVIM, ALONE) as editor:
            _, reply = editor.ask("textDocument/completion", place)
            assert (await asyncio.wait_for(reply, TIMEOUT_S))["error"]["code"] == -32601

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_wrong_arguments_of_commands_have_no_effect() -> None:
    completer = FakeCompleter(says("a"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x")
            odd: list[Any] = [5, None, ["python"], {"language": "python"}, True]
            for argument in odd:
                assert await editor.command("toggle", argument) == {"enabled": True}
            for argument in [*odd, "file:///none.py"]:
                assert (await editor.command("warmup", argument))["reason"] == "EMPTY"
            wrong: list[Any] = ["x", None, True, [5], -5, float("nan"), -(10**400)]
            for argument in wrong:
                assert await editor.command("snooze", argument) == {"minutes": 0}
            assert completer.requests == []
            assert len(await editor.inline(0, 1)) == 1
            for long in (1e9, 10**400, float("inf")):
                assert await editor.command("snooze", long) == {"minutes": 1440}
            for argument in wrong:
                left = (await editor.command("snooze", argument))["minutes"]
                assert 1439 < left <= 1440

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_warming_up_reads_the_document_and_writes_nothing() -> None:
    completer = FakeCompleter(says())

    async def edit(url: str) -> None:
        async with editing(url, VSCODE) as editor:
            editor.open("x = 1\n")
            assert (await editor.command("warmup"))["source"] == "server"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [(one.prefix, one.max_tokens) for one in completer.requests] == [("x = 1\n", 0)]


@pytest.mark.parametrize("how", ["shutdown", "cancel", "key"])
def test_warming_up_ends_with_the_editor_its_request_and_the_next_key(how: str) -> None:
    completer = FakeCompleter(says(), delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x = 1\n")
            params = {"command": "suture.warmup", "arguments": []}
            msg_id, reply = editor.ask("workspace/executeCommand", params)
            await until(lambda: len(completer.requests) == 1)
            if how == "shutdown":
                await editor.request("shutdown", None)
                assert (await asyncio.wait_for(reply, TIMEOUT_S))["error"]["code"] == -32800
                await until(lambda: completer.cancelled == 1)
                editor.notify("exit", None)
                assert await editor.ended() == 0
            elif how == "cancel":
                editor.notify("$/cancelRequest", {"id": msg_id})
                assert (await asyncio.wait_for(reply, TIMEOUT_S))["error"]["code"] == -32800
                await until(lambda: completer.cancelled == 1)
            else:
                editor.ask_inline(0, 5)
                message = await asyncio.wait_for(reply, TIMEOUT_S)
                assert message["result"]["reason"] == "SUPERSEDED"
                await until(lambda: completer.cancelled == 1)

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_a_row_that_does_not_match_ends_what_was_asked_before() -> None:
    completer = FakeCompleter(says("a"), delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x = pr\n")
            _, reply = editor.ask_inline(0, 6)
            await until(lambda: len(completer.requests) == 1)
            span = {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 6}}
            row = {"range": span, "text": "map_pr"}
            assert await editor.inline(0, 6, selectedCompletionInfo=row) == []
            message = await asyncio.wait_for(reply, TIMEOUT_S)
            assert message["result"] == {"items": []}
            await until(lambda: completer.cancelled == 1)

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_q2_a_request_that_is_not_asked_ends_what_is_fetched_ahead() -> None:
    first, slow = FakeCompleter(says(" = 1")), FakeCompleter(says("z"), delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"debounceMs": 0}) as editor:
            editor.open("x")
            editor.open("name", "file:///b.py")
            await editor.inline(0, 1)
            await until(lambda: len(slow.requests) == 1)
            assert await editor.inline(0, 0, uri="file:///b.py") == []
            await until(lambda: slow.cancelled == 1)

    class Both(FakeCompleter):
        def complete(self, request: Any) -> Any:
            return (slow if len(first.requests) else first).complete(request)

    with serving(Both()) as url:
        asyncio.run(edit(url))


def test_what_was_dismissed_comes_again_by_hand_or_once_the_text_has_changed() -> None:
    completer = FakeCompleter(says("a"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x")
            (item,) = await editor.inline(0, 1)
            editor.notify("suture/didReject", {"item": item})
            assert await editor.inline(0, 1) == []
            assert len(await editor.inline(0, 1, kind=1)) == 1
            editor.type("y", 0, 1)
            assert len(await editor.inline(0, 2)) == 1

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_what_is_dismissed_in_another_document_than_the_last_text_changes_nothing() -> None:
    completer = FakeCompleter(says("a"))
    other = "file:///b.py"

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("y", other)
            await editor.inline(0, 1, uri=other)
            editor.open("x")
            await editor.inline(0, 1)
            editor.notify("suture/didReject", {"textDocument": {"uri": other, "version": 0}})
            assert len(await editor.inline(0, 1)) == 1
            assert (await editor.command("explainLast"))["source"] == "typed"
            editor.notify("suture/didReject", {"textDocument": {"uri": URI, "version": 0}})
            assert await editor.inline(0, 1) == []
            # What is known in other documents is not forgotten for it.
            assert len(await editor.inline(0, 1, uri=other)) == 1

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [request.prefix for request in completer.requests] == ["y", "x"]


def test_what_was_shown_with_other_options_is_forgotten() -> None:
    completer = FakeCompleter(says("a"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x")
            await editor.inline(0, 1)
            told = {"settings": {"suture": {"maxTokens": 7}}}
            editor.notify("workspace/didChangeConfiguration", told)
            await editor.inline(0, 1)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [one.max_tokens for one in completer.requests] == [64, 7]


def test_vs_code_is_given_what_it_shows_behind_an_emoji_and_on_an_empty_line() -> None:
    completer = FakeCompleter(says("me.title()\nx = 1\n"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            text = "s = '漢😀' + na\n\n"
            editor.open(text)
            (item,) = await editor.inline(0, 14)
            # It hides what has a character beyond the basic plane in its range.
            assert item["range"]["start"] == {"line": 0, "character": 8}
            assert item["insertText"] == item["filterText"] == "' + name.title()\nx = 1\n"
            assert applied(text, item) == "s = '漢😀' + name.title()\nx = 1\n\n\n"
            # And on an empty line what ends with a line end.
            (item,) = await editor.inline(1, 0)
            assert item["insertText"] == "me.title()\nx = 1"
            # The model is asked as if the row were typed; the line is empty all the same.
            here = {"line": 2, "character": 0}
            row = {"range": {"start": here, "end": here}, "text": "na"}
            (item,) = await editor.inline(2, 0, selectedCompletionInfo=row)
            assert item["insertText"] == "name.title()\nx = 1"

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_what_follows_a_text_on_an_empty_line_is_fetched_behind_what_vs_code_inserts() -> None:
    completer = FakeCompleter(says("x = 1\n"))

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"debounceMs": 0}) as editor:
            editor.open("\n")
            (item,) = await editor.inline(0, 0)
            await until(lambda: len(completer.requests) == 2)
            editor.type(item["insertText"], 0, 0)
            assert len(await editor.inline(0, 5)) == 1
            assert (await editor.command("explainLast"))["source"] in ("typed", "ahead")

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests[1].prefix == "x = 1"
