"""Where the server is asked for, and what is told of one that was left meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from suture.lsp.http_client import READY, Address, Health, ServerClient, Unanswered

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


GOOD = b'{"suture": {"edit": {"delete_after": 0, "text": "y"}, "reason": null}}'


class Told:
    """A server that answers `/infill` with `status` at once, and `/health` when it may.

    `n_asked` counts the requests for `/infill`.
    """

    def __init__(self) -> None:
        self.status = 503
        self.may = asyncio.Event()
        self.asked = asyncio.Event()
        self.n_asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status = 200
        if head.startswith(b"GET"):
            self.asked.set()
            await self.may.wait()
        else:
            self.n_asked += 1
            status = self.status
        answer = b"HTTP/1.1 %d .\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(answer % (status, len(GOOD)) + GOOD)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@asynccontextmanager
async def asking(told: list[Health]) -> AsyncIterator[tuple[Told, ServerClient]]:
    server = Told()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"

    async def locate() -> Address:
        return Address(url)

    client = ServerClient(locate, told.append)
    yield server, client
    await client.close()
    listener.close()
    await listener.wait_closed()


def reasons(told: list[Health]) -> list[str | None]:
    return [one.reason for one in told]


@pytest.mark.parametrize("is_checked_first", [True, False])
def test_that_a_server_is_there_takes_back_nothing_that_a_request_was_told(
    is_checked_first: bool,
) -> None:
    told: list[Health] = []

    async def ask() -> None:
        async with asking(told) as (server, client):
            check = asyncio.ensure_future(client.check())
            if is_checked_first:
                await server.asked.wait()
            with pytest.raises(Unanswered):
                await client.infill(BODY)
            server.may.set()
            await check
            assert reasons(told) == ["BUSY"]
            server.status = 200
            await client.infill(BODY)

    asyncio.run(ask())
    assert reasons(told) == ["BUSY", None]


def test_what_nobody_waits_for_says_nothing_of_the_server_and_makes_nobody_wait() -> None:
    told: list[Health] = []

    async def ask() -> None:
        async with asking(told) as (server, client):
            for status in (503, 500, 200):
                server.status = status
                if status == 200:
                    assert (await client.read(BODY)).suggestion.text == "y"
                else:
                    with pytest.raises(Unanswered):
                        await client.read(BODY)
            assert told == [] and client.health == READY
            await client.infill(BODY)
            # Where it does not do well nobody asks it for that.
            server.status = 503
            with pytest.raises(Unanswered):
                await client.infill(BODY)
            n_asked, server.status = server.n_asked, 200
            with pytest.raises(Unanswered):
                await client.read(BODY)
            assert server.n_asked == n_asked and reasons(told) == ["BUSY"]

    asyncio.run(ask())
