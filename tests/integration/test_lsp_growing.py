"""The first line is shown before the rest is written, for clients that can be told of the rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.lsp_client import (
    GROWS,
    NEOVIM,
    TIMEOUT_S,
    URI,
    VSCODE,
    Editor,
    Json,
    editing,
    until,
)
from support.writing_completer import WritingCompleter
from suture.server.errors import EngineError
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult

ALONE: Json = {"prefetch": False, "debounceMs": 0}
EARLY: Json = {**VSCODE, **GROWS}
BODY = "(a, b):\n    return a + b\n"
# Of `BODY`: with the beginning of the second line the first one is known.
N_FIRST = 3


@dataclass
class Held(WritingCompleter):
    """Writes the first line, and the rest once it may go on: then slowly at first."""

    n_free: int = N_FIRST

    def __post_init__(self) -> None:
        self.may_go_on = threading.Event()


def n_grown(editor: Editor) -> int:
    return [one["method"] for one in editor.told].count("suture/didGrow")


def text_of(items: list[Json]) -> str:
    (item,) = items
    text: str = item["insertText"]
    return text


def range_of(item: Json) -> tuple[int, int]:
    return item["range"]["start"]["character"], item["range"]["end"]["character"]


async def answered(reply: asyncio.Future[Json]) -> list[Json]:
    items: list[Json] = (await asyncio.wait_for(reply, TIMEOUT_S))["result"]["items"]
    return items


def test_q3_the_first_line_is_shown_early_and_has_grown_once_all_is_there() -> None:
    completer = Held(text=f"def add{BODY}")

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            (first,) = await editor.inline(0, 7)
            assert first["insertText"] == "def add(a, b):"
            explained = await editor.command("explainLast")
            assert explained["source"] == "server" and explained["report"] == {}
            assert n_grown(editor) == 0
            completer.may_go_on.set()
            await until(lambda: n_grown(editor) == 1)
            told = next(one for one in editor.told if one["method"] == "suture/didGrow")
            assert told["params"] == {"textDocument": {"uri": URI, "version": 0}}
            # The report has come, too.
            explained = await editor.command("explainLast")
            assert explained["report"]["finish"] == "eos"
            (whole,) = await editor.inline(0, 7)
            assert whole["insertText"] == f"def add{BODY}"
            assert range_of(whole) == range_of(first) == (0, 7)
            # It is one suggestion.
            numbers = [one["command"]["arguments"][0]["number"] for one in (first, whole)]
            assert numbers[0] == numbers[1]
            assert (await editor.command("explainLast"))["source"] == "typed"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert len(completer.requests) == 1 and completer.cancelled == 0


def test_q3_who_types_through_what_is_shown_gets_the_rest_of_the_same_text() -> None:
    completer = Held(text=f"def add{BODY}")

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            await editor.inline(0, 7)
            # The editor closes the bracket.
            editor.type("(", 0, 7, behind=")")
            assert text_of(await editor.inline(0, 8)) == "def add(a, b):"
            editor.type("a, b", 0, 8)
            (item,) = await editor.inline(0, 12)
            assert item["insertText"] == "def add(a, b):" and range_of(item) == (0, 13)
            completer.may_go_on.set()
            await until(lambda: n_grown(editor) == 1)
            (item,) = await editor.inline(0, 12)
            assert item["insertText"] == f"def add{BODY}" and range_of(item) == (0, 13)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert len(completer.requests) == 1 and completer.cancelled == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_q3_who_types_on_while_one_waits_for_the_rest_is_told_of_it(is_cancelled: bool) -> None:
    completer = Held(text=f"def add{BODY}")

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            number, _ = editor.ask_inline(0, 7)
            # The first line is there by then, held back as the rest may come at once.
            await until(lambda: len(completer.requests) == 1)
            await asyncio.sleep(0.15)
            if is_cancelled:
                editor.notify("$/cancelRequest", {"id": number})
            editor.type("(", 0, 7)
            assert text_of(await editor.inline(0, 8)) == "def add(a, b):"
            completer.may_go_on.set()
            await until(lambda: n_grown(editor) == 1)
            assert text_of(await editor.inline(0, 8)) == f"def add{BODY}"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert len(completer.requests) == 1 and completer.cancelled == 0


def test_q3_who_accepts_the_first_line_waits_for_the_next_one_and_asks_nothing() -> None:
    completer = Held(text=f"def add{BODY}")

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            (item,) = await editor.inline(0, 7)
            editor.type("(a, b):", 0, 7)
            await editor.command("accepted", *item["command"]["arguments"])
            _, reply = editor.ask_inline(0, 14)
            # A key more, which is what comes; the request before it is answered with nothing.
            await asyncio.sleep(0.1)
            editor.type("\n    ret", 0, 14)
            _, second = editor.ask_inline(1, 7)
            assert await answered(reply) == [] and not second.done()
            completer.may_go_on.set()
            assert text_of(await answered(second)) == "    return a + b\n"
            assert (await editor.command("explainLast"))["source"] == "typed"
            await editor.command("accepted", *item["command"]["arguments"])
            assert n_grown(editor) == 0

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert len(completer.requests) == 1 and completer.cancelled == 0


@pytest.mark.parametrize("where", ["wrong key", "elsewhere", "other document", "dismissed"])
def test_q3_the_rest_is_ended_by_a_request_for_anything_else(where: str) -> None:
    completer = Held(text=f"def add{BODY}")
    other = "file:///b.md"

    async def edit(url: str) -> None:
        options = {**ALONE, "languages": {"markdown": False}}
        async with editing(url, EARLY, options) as editor:
            editor.open("x = 1", other, "markdown")
            editor.open("def add\ny", URI)
            assert len(await editor.inline(0, 7)) == 1
            if where == "wrong key":
                editor.type("x", 0, 7)
                assert await editor.inline(0, 8) == []
            elif where == "elsewhere":
                assert await editor.inline(1, 1) == []
            elif where == "other document":
                assert await editor.inline(0, 5, uri=other) == []
            else:
                editor.notify("suture/didReject", {"textDocument": {"uri": URI}})
            await until(lambda: completer.cancelled == 1)
            assert n_grown(editor) == 0

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_q1_a_request_that_is_cancelled_before_its_first_line_stops_the_engine() -> None:
    completer = Held(text=f"def add{BODY}", n_free=1)

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            msg_id, reply = editor.ask_inline(0, 7)
            await until(lambda: len(completer.requests) == 1)
            editor.notify("$/cancelRequest", {"id": msg_id})
            assert (await asyncio.wait_for(reply, TIMEOUT_S))["error"]["code"] == -32800
            await until(lambda: completer.cancelled == 1)
            # And one that the next key makes useless.
            _, reply = editor.ask_inline(0, 7)
            await until(lambda: len(completer.requests) == 2)
            editor.type("(", 0, 7)
            _, second = editor.ask_inline(0, 8)
            assert await answered(reply) == []
            await until(lambda: completer.cancelled == 2)
            completer.may_go_on.set()
            assert text_of(await answered(second)).startswith("def add(a, b):")

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_who_asks_by_hand_waits_for_all_and_so_does_who_asks_again_meanwhile() -> None:
    completer = Held(text=f"def add{BODY}")

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            _, reply = editor.ask_inline(0, 7, kind=1)
            await until(lambda: len(completer.requests) == 1)
            await asyncio.sleep(0.5)
            assert not reply.done()
            completer.may_go_on.set()
            assert text_of(await answered(reply)) == f"def add{BODY}"
            completer.may_go_on.clear()
            await editor.command("clearCache")
            assert text_of(await editor.inline(0, 7)) == "def add(a, b):"
            _, reply = editor.ask_inline(0, 7, kind=1)
            await asyncio.sleep(0.2)
            assert not reply.done()
            completer.may_go_on.set()
            assert text_of(await answered(reply)) == f"def add{BODY}"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [request.n for request in completer.requests] == [1, 1]


@pytest.mark.parametrize("profile", [VSCODE, NEOVIM])
def test_a_client_that_cannot_be_told_of_more_is_shown_all_at_once(profile: Json) -> None:
    completer = Held(text=f"def add{BODY}")

    async def edit(url: str) -> None:
        async with editing(url, profile, ALONE) as editor:
            editor.open("def add")
            _, reply = editor.ask_inline(0, 7)
            await until(lambda: len(completer.requests) == 1)
            await asyncio.sleep(0.5)
            assert not reply.done()
            completer.may_go_on.set()
            assert text_of(await answered(reply)).endswith(BODY)
            assert n_grown(editor) == 0

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_of_a_quick_engine_all_is_shown_at_once() -> None:
    text = "".join(f"line_{n} = {n}\n" for n in range(1, 10))
    completer = WritingCompleter(text=text)

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("lin")
            assert text_of(await editor.inline(0, 3)) == text
            assert n_grown(editor) == 0

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_line_ends_are_those_of_the_document_and_a_line_of_signs_is_not_shown_alone() -> None:
    completer = Held(text="x = 1\nint f()\n{\n    g();\n}\n", n_free=3)

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("x = 1\r\nint f()")
            _, reply = editor.ask_inline(1, 7)
            await until(lambda: len(completer.requests) == 1)
            completer.n_free = 3
            assert text_of(await answered(reply)) == "int f()\r\n{\r\n    g();"
            completer.may_go_on.set()
            await until(lambda: n_grown(editor) == 1)
            assert text_of(await editor.inline(1, 7)) == "int f()\r\n{\r\n    g();\r\n}\r\n"

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_g2_lines_go_over_no_closer_and_all_of_the_text_over_those_that_it_writes() -> None:
    completer = Held(text="f(\n    a,\n    b,\n)\ng()\n", n_free=2)

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("f()\n")
            (item,) = await editor.inline(0, 2)
            assert item["insertText"] == "f(\n    a," and range_of(item) == (0, 2)
            completer.may_go_on.set()
            await until(lambda: n_grown(editor) == 1)
            (item,) = await editor.inline(0, 2)
            assert item["insertText"] == "f(\n    a,\n    b,\n)\ng()\n" and range_of(item) == (0, 3)

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_g2_a_line_that_writes_the_closer_behind_the_cursor_waits_for_the_end() -> None:
    completer = Held(text=f"def add{BODY}", n_free=2)

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add()\n")
            _, reply = editor.ask_inline(0, 8)
            await until(lambda: len(completer.requests) == 1)
            await asyncio.sleep(0.5)
            assert not reply.done()
            completer.may_go_on.set()
            (item,) = await answered(reply)
            assert item["insertText"] == f"def add{BODY}" and range_of(item) == (0, 9)

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_an_engine_that_fails_behind_the_first_line_is_told_of_and_the_line_stays() -> None:
    completer = Held(text=f"def add{BODY}", raised={4: EngineError("it broke")})

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            assert text_of(await editor.inline(0, 7)) == "def add(a, b):"
            completer.may_go_on.set()
            assert (await editor.status_with("ERROR"))["message"] == "it broke"
            assert text_of(await editor.inline(0, 7)) == "def add(a, b):"
            assert n_grown(editor) == 0

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_an_engine_that_fails_before_the_first_line_is_told_of_as_ever() -> None:
    completer = Held(text=f"def add{BODY}", n_free=9, raised={1: EngineError("it broke")})

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("def add")
            assert await editor.inline(0, 7) == []
            assert (await editor.status_with("ERROR"))["message"] == "it broke"

    with serving(completer) as url:
        asyncio.run(edit(url))


@pytest.mark.parametrize(
    ("texts", "whole"),
    [(("a = 1\nb", " = 2\nc = "), "a = 1\nb = 2\n"), (("a = ", "1 + "), "a = 1 + ")],
)
def test_what_a_deadline_cut_off_inside_a_line_is_not_shown(
    texts: tuple[str, ...], whole: str
) -> None:
    end = CompletionChunk("", result=CompletionResult("deadline", "DEADLINE"))
    completer = FakeCompleter(says(*texts, finish=end))

    async def edit(url: str) -> None:
        async with editing(url, EARLY, ALONE) as editor:
            editor.open("x")
            assert text_of(await editor.inline(0, 1)) == f"x{whole}"

    with serving(completer) as url:
        asyncio.run(edit(url))


@dataclass
class Lines(Held):
    """Writes one line to who is at `x`, at once; what is ahead of it as the other one does."""

    def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        if request.prefix != "x":
            return super().complete(request)
        return self.first.complete(request)

    first: WritingCompleter = field(default_factory=lambda: WritingCompleter(text="x = 1\n"))


@pytest.mark.parametrize("is_known", [True, False])
def test_q2_what_is_fetched_ahead_shows_its_first_line_to_who_comes_there(is_known: bool) -> None:
    completer = Lines(text="x = 1\ny = 2\nz = 3\n", n_free=4 if is_known else 0)

    async def edit(url: str) -> None:
        async with editing(url, EARLY, {"debounceMs": 0}) as editor:
            editor.open("x")
            assert text_of(await editor.inline(0, 1)) == "x = 1\n"
            await until(lambda: len(completer.requests) == 1)
            if is_known:
                await asyncio.sleep(0.3)
            editor.type(" = 1\n", 0, 1)
            _, reply = editor.ask_inline(1, 0)
            await asyncio.sleep(0.1)
            completer.n_free = 4
            assert text_of(await answered(reply)) == "y = 2"
            source = "typed" if is_known else "ahead"
            assert (await editor.command("explainLast"))["source"] == source
            editor.type("y", 1, 0)
            assert text_of(await editor.inline(1, 1)) == "y = 2"
            completer.may_go_on.set()
            await until(lambda: n_grown(editor) == 1)
            assert text_of(await editor.inline(1, 1)) == "y = 2\nz = 3"
            # What follows that is fetched now, and not what follows its first line.
            await until(lambda: len(completer.requests) == 2)

    with serving(completer) as url:
        asyncio.run(edit(url))
    prefixes = [request.prefix for request in completer.requests]
    # VS Code would not show the last line end, on an empty line.
    assert prefixes == ["x = 1\n", "x = 1\ny = 2\nz = 3"]
    assert completer.cancelled == 0


def test_q2_what_follows_is_fetched_once_all_is_there() -> None:
    completer = Held(text=f"def add{BODY}")

    async def edit(url: str) -> None:
        async with editing(url, EARLY, {"debounceMs": 0}) as editor:
            editor.open("def add")
            await editor.inline(0, 7)
            editor.type("(", 0, 7)
            await editor.inline(0, 8)
            await asyncio.sleep(0.2)
            assert len(completer.requests) == 1
            completer.may_go_on.set()
            await until(lambda: len(completer.requests) == 2)

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [request.prefix for request in completer.requests][1:] == [f"def add{BODY}"]
