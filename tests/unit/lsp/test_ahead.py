"""What is fetched ahead, whichever turn of the event loop its answer comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from support.lsp_client import until
from suture.lsp.ahead import after_accepting
from suture.lsp.completions import Completions
from suture.lsp.documents import Cursor
from suture.lsp.http_client import Address, Answer, ServerClient
from suture.lsp.settings import Options
from suture.lsp.shown import Suggestion


class Held(ServerClient):
    """Answers when it is told to; `asked` are the prefixes, one for each answer."""

    def __init__(self) -> None:
        super().__init__(self._nowhere, lambda health: None)
        self.asked: list[str] = []
        self.answers: list[asyncio.Future[Answer]] = []

    async def _nowhere(self) -> Address:
        raise AssertionError("no server is asked")

    async def infill(self, body: dict[str, Any], tells: Collection[str] = ()) -> Answer:
        self.asked.append(body["input_prefix"])
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def answer(self, text: str) -> None:
        self.answers[-1].set_result(Answer(Suggestion(text, number=len(self.asked)), None))


@pytest.mark.parametrize("turns", range(12))
def test_what_is_accepted_as_its_next_comes_has_that_and_the_next_is_asked_for(turns: int) -> None:
    """The answer comes so many turns of the event loop behind the question for it."""

    async def edit() -> None:
        client = Held()
        completions = Completions(client, "an editor", Options(debounce_ms=0))
        at = Cursor("file:///a.py", "python", 1, 0, "x", "", "x", "")
        shown = asyncio.create_task(completions.complete(at, is_automatic=True))
        await until(lambda: len(client.asked) == 1)
        client.answer(" = 1\n")
        suggestion = (await shown).suggestion
        assert suggestion is not None
        await until(lambda: len(client.asked) == 2)
        there = after_accepting(at, suggestion)
        accepted = asyncio.create_task(completions.complete(there, is_automatic=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        client.answer("y = 2\n")
        outcome = await accepted
        assert outcome.suggestion == Suggestion("y = 2\n")
        assert outcome.source in ("typed", "ahead")
        await until(lambda: len(client.asked) == 3)
        assert client.asked == ["x", "x = 1\n", "x = 1\ny = 2\n"]
        client.answer("")
        await until(lambda: not completions.is_busy)

    asyncio.run(edit())
