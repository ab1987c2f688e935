"""Where the server is asked for, and what is told of one that was left meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import serving
from support.lsp_client import until
from suture.lsp.http_client import (
    READY,
    STATES_AHEAD,
    Address,
    Health,
    ServerClient,
    Unanswered,
)
from suture.lsp.shown import Suggestion
from suture.server.errors import EngineError

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


@pytest.mark.parametrize("is_loading", [False, True])
def test_a_server_that_is_there_again_is_known_before_anything_is_asked(is_loading: bool) -> None:
    told: list[Health] = []
    n_located = 0
    completer = FakeCompleter(says("a"), loading="loading" if is_loading else "ready")

    async def ask(port: int) -> None:
        async def locate() -> Address:
            nonlocal n_located
            n_located += 1
            return Address(f"http://127.0.0.1:{port}", api_key="secret")

        client = ServerClient(locate, told.append)
        with pytest.raises(Unanswered):
            await client.infill(BODY)
        assert reasons(told) == ["UNREACHABLE"]
        with serving(completer, port=port):
            await until(lambda: len(told) == 2)
            if is_loading:
                assert reasons(told)[1:] == ["LOADING"]
                completer.loading = "ready"
                await until(lambda: len(told) == 3)
            # It was looked for where it was: none is started for that.
            assert told[-1] == READY and n_located == 1 + is_loading
            assert (await client.infill(BODY)).suggestion.text == "a"
        await client.close()

    asyncio.run(ask(free_port()))


def test_who_is_answered_meanwhile_has_the_last_word_and_nobody_looks_any_more() -> None:
    told: list[Health] = []

    async def ask(port: int) -> None:
        async with asking(told) as (_, client):
            addresses = [Address(f"http://127.0.0.1:{port}")]
            found = client._locate

            async def locate() -> Address:
                return addresses.pop() if addresses else await found()

            client._locate = locate
            with pytest.raises(Unanswered):
                await client.infill(BODY)
            client.try_again()
            with pytest.raises(Unanswered):
                await client.infill(BODY)
            assert reasons(told) == ["UNREACHABLE", "BUSY"]
            with serving(FakeCompleter(), port=port):
                await asyncio.sleep(1.5)
            assert reasons(told) == ["UNREACHABLE", "BUSY"]

    asyncio.run(ask(free_port()))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_what_is_asked_ahead_tells_of_a_server_that_is_gone_and_not_of_one_without_time() -> None:
    told: list[Health] = []

    async def ask() -> None:
        async with asking(told) as (server, client):
            with pytest.raises(Unanswered, match="503"):
                await client.infill(BODY, STATES_AHEAD)
            with pytest.raises(Unanswered, match="503"):
                await client.write(BODY, lambda said: None, STATES_AHEAD)
            assert told == [] and client.health == READY
            with pytest.raises(Unanswered):
                await client.infill(BODY)
            assert reasons(told) == ["BUSY"]
            server.status = 200
            await client.infill(BODY, STATES_AHEAD)
            assert reasons(told) == ["BUSY", None]
            server.status = 500
            with pytest.raises(Unanswered):
                await client.infill(BODY, STATES_AHEAD)
            assert reasons(told) == ["BUSY", None, "ERROR"]

    asyncio.run(ask())


def test_what_is_written_is_heard_piece_by_piece_with_the_number_of_the_answer() -> None:
    async def ask(url: str) -> None:
        async def locate() -> Address:
            return Address(url)

        client, heard = ServerClient(locate, lambda health: None), list[Suggestion]()
        await client.infill(BODY)
        answer = await client.write(BODY, heard.append)
        assert [one.text for one in heard] == ["a\u2028", "a\u2028b\n"]
        assert answer.suggestion.text == "a\u2028b\n"
        assert {one.number for one in (*heard, answer.suggestion)} == {2}
        assert answer.report["finish"] == "eos"
        await client.close()

    with serving(FakeCompleter(says("a\u2028", "b\n"))) as url:
        asyncio.run(ask(url))


def test_an_error_behind_the_first_piece_is_told_as_one_before_it() -> None:
    told: list[Health] = []
    broken = FakeCompleter([*says("a")[:1], EngineError("it broke")])

    async def ask(url: str) -> None:
        async def locate() -> Address:
            return Address(url)

        client, heard = ServerClient(locate, told.append), list[Suggestion]()
        with pytest.raises(Unanswered, match="it broke"):
            await client.write(BODY, heard.append)
        assert [one.text for one in heard] == ["a"] and reasons(told) == ["ERROR"]
        await client.close()

    with serving(broken) as url:
        asyncio.run(ask(url))
