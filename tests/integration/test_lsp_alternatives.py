"""Other texts for a place where one is shown, for who asks for them by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from support.fake_completer import FakeCompleter
from support.http_server import serving
from support.lsp_client import TIMEOUT_S, VSCODE, Json, editing, until
from suture.lsp import completions
from suture.lsp.completions import Completions
from suture.lsp.context.chunks import Chunk
from suture.lsp.documents import Document, Position
from suture.lsp.http_client import Address, ServerClient
from suture.lsp.settings import Options
from suture.server.errors import Loading
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult

ALONE: Json = {"prefetch": False, "debounceMs": 0}
TEXTS = (" = one", " = two", " = one")


@dataclass
class Several(FakeCompleter):
    """Says the first of `TEXTS`, and a text of each to who wants several; only the first one at
    `x` comes at once.
    """

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        if self.loading == "loading":
            raise Loading("Loading model")
        self.requests.append(request)
        is_whole = False
        try:
            for index, text in enumerate(TEXTS[: request.n]):
                is_first = request.n == 1 and request.prefix == "x"
                await asyncio.sleep(0 if is_first else self.delay_s)
                # The caller may close us behind the last instead of asking for one more.
                is_whole = index + 1 == request.n
                yield CompletionChunk(text, (index,), CompletionResult("eos"), index=index)
        finally:
            self.cancelled += not is_whole


def test_who_asks_again_by_hand_gets_others_beside_what_is_shown() -> None:
    completer = Several()

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x")
            (first,) = await editor.inline(0, 1)
            both = await editor.inline(0, 1, kind=1)
            assert [item["insertText"] for item in both] == ["x = one", "x = two"]
            marks = [item["command"]["arguments"][0] for item in both]
            assert marks[0] == first["command"]["arguments"][0] != marks[1]
            assert completer.requests[-1].n == 3
            assert completer.requests[-1].sampling.temperature > 0
            # By itself comes what was shown; and what one types of another is gone on with.
            assert len(await editor.inline(0, 1)) == 1
            editor.type(" = t", 0, 1)
            (item,) = await editor.inline(0, 5)
            assert item["insertText"] == "x = two"

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [request.n for request in completer.requests] == [1, 3]


def test_the_first_request_by_hand_is_answered_with_one_text_at_once() -> None:
    completer = Several()

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x")
            assert len(await editor.inline(0, 1, kind=1)) == 1

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert [request.n for request in completer.requests] == [1]


def test_where_a_text_was_only_fetched_ahead_the_first_request_by_hand_waits_for_no_others() -> (
    None
):
    completer = Several()

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"debounceMs": 0}) as editor:
            editor.open("x")
            await editor.inline(0, 1)
            await until(lambda: len(completer.requests) == 2)
            editor.type(" = one", 0, 1)
            (item,) = await editor.inline(0, 7, kind=1)
            assert item["insertText"] == "x = one = one"
            assert len(await editor.inline(0, 7, kind=1)) == 2

    with serving(completer) as url:
        asyncio.run(edit(url))
    assert completer.requests[1].prefix == "x = one"


def test_what_is_shown_is_not_held_back_long_and_what_follows_it_is_fetched_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completions, "ALTERNATIVES_S", 0.3)
    completer = Several(delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, {"debounceMs": 0}) as editor:
            editor.open("x")
            await editor.inline(0, 1)
            await until(lambda: len(completer.requests) == 2)
            (item,) = await editor.inline(0, 1, kind=1)
            assert item["insertText"] == "x = one"
            explained = await editor.command("explainLast")
            assert explained["source"] == "typed" and "too long" in explained["message"]
            # It was ended for the others' sake.
            await until(lambda: len(completer.requests) == 4)
            await until(lambda: completer.cancelled == 2)

    with serving(completer) as url:
        asyncio.run(edit(url))
    asked = [(request.prefix, request.n) for request in completer.requests]
    assert asked == [("x", 1), ("x = one", 1), ("x", 3), ("x = one", 1)]


def test_of_others_it_is_known_what_was_asked_and_with_which_files() -> None:
    chunk = Chunk("/b.py", "b.py", "def b(): ...\n")

    async def ask(url: str) -> None:
        client = ServerClient(lambda: _address(url), lambda health: None)
        asking = Completions(client, "an editor", Options(prefetch=False))
        cursor = Document("file:///a.py", "python", 1, "x").cursor(Position(0, 1), "utf-16")
        await asking.complete(cursor, is_automatic=True)
        asking.bodies.others_with = lambda uri: [chunk]
        outcome = await asking.complete(cursor, is_automatic=False)
        assert outcome.source == "typed" and outcome.files == ("b.py",)
        assert outcome.report["edit"] == {"delete_after": 0, "text": " = one"}
        assert [one.text for one in outcome.alternatives] == [" = two"]
        await client.close()

    with serving(Several()) as url:
        asyncio.run(ask(url))


async def _address(url: str) -> Address:
    return Address(url)


def test_a_key_ends_what_others_were_asked_for() -> None:
    completer = Several(delay_s=60)

    async def edit(url: str) -> None:
        async with editing(url, VSCODE, ALONE) as editor:
            editor.open("x")
            await editor.inline(0, 1)
            _, reply = editor.ask_inline(0, 1, kind=1)
            await until(lambda: len(completer.requests) == 2)
            editor.type(" ", 0, 1)
            assert len(await editor.inline(0, 2)) == 1
            assert (await asyncio.wait_for(reply, TIMEOUT_S))["result"] == {"items": []}
            await until(lambda: completer.cancelled == 1)

    with serving(completer) as url:
        asyncio.run(edit(url))


def test_what_is_shown_stays_where_others_cannot_be_had() -> None:
    completer = Several()

    async def edit() -> None:
        with serving(completer) as url:
            async with editing(url, VSCODE, ALONE) as editor:
                editor.open("x")
                await editor.inline(0, 1)
                completer.loading = "loading"
                assert len(await editor.inline(0, 1, kind=1)) == 1

    asyncio.run(edit())
