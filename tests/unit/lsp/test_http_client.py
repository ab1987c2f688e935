"""Where the server is asked for, and what is told of one that was left meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from suture.lsp.http_client import Address, Health, ServerClient, Unanswered

BODY = {"input_prefix": "x", "input_suffix": ""}
NOBODY = Address("http://127.0.0.1:9")


def test_what_was_looked_for_before_the_server_moved_is_not_asked() -> None:
    told: list[Health] = []

    async def ask(url: str) -> None:
        looking, found = asyncio.Event(), asyncio.Event()

        async def locate() -> Address:
            if looking.is_set():
                return Address(url)
            looking.set()
            await found.wait()
            return NOBODY

        client = ServerClient(locate, told.append)
        asked = asyncio.ensure_future(client.infill(BODY))
        await looking.wait()
        client.relocate()
        found.set()
        assert (await asked).suggestion.text == "a"
        await client.close()

    with serving(FakeCompleter(says("a"))) as url:
        asyncio.run(ask(url))
    assert told == []


def test_a_late_failure_of_a_server_that_was_left_says_nothing_of_the_new_one() -> None:
    told: list[Health] = []
    slow = FakeCompleter([RuntimeError("it broke")], delay_s=0.3)

    async def ask(first: str, second: str) -> None:
        addresses = [first, second]

        async def locate() -> Address:
            return Address(addresses.pop(0))

        client = ServerClient(locate, told.append)
        late = asyncio.ensure_future(client.infill(BODY))
        while not slow.requests:
            await asyncio.sleep(0.01)
        client.relocate()
        assert (await client.infill(BODY)).suggestion.text == "a"
        with pytest.raises(Unanswered):
            await late
        # Nobody looks for it a third time, and no wait is over it.
        assert (await client.infill(BODY)).suggestion.text == "a"
        await client.close()

    with serving(slow) as first, serving(FakeCompleter(says("a"))) as second:
        asyncio.run(ask(first, second))
    assert told == []
