"""Where prompts are planned: alone and batched, with the same results, and who holds up whom."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeVar

import pytest

from suture.healing import Encode
from suture.server.codec import Encoder
from suture.server.encode_queue import MAX_BATCH_BYTES
from suture.server.encoding import (
    MIN_QUEUED_BYTES,
    BatchedEncoding,
    Encoding,
    EncodingThread,
    open_encoding,
)

T = TypeVar("T")
LONG_S = 20.0
PIECE = b"x" * MIN_QUEUED_BYTES


class Gate:
    """A tokenizer of bytes whose texts that begin so wait to be let through."""

    def __init__(self, held: bytes) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.threads: set[str] = set()
        self.encoder = Encoder(self._encode, self._encode_all)
        self._held = held

    def _encode(self, piece: bytes) -> Sequence[int]:
        self.threads.add(threading.current_thread().name)
        if piece.startswith(self._held):
            self.entered.set()
            assert self.go.wait(LONG_S)
        return list(piece)

    def _encode_all(self, pieces: Sequence[bytes]) -> Sequence[Sequence[int]]:
        return [self._encode(piece) for piece in pieces]


@contextlib.asynccontextmanager
async def closing(encoding: Encoding, *gates: Gate) -> AsyncGenerator[Encoding, None]:
    try:
        yield encoding
    finally:
        for gate in gates:
            gate.go.set()
        await asyncio.to_thread(encoding.close)


def encoding_of(piece: bytes, n_times: int = 1) -> Callable[[Encode], list[int]]:
    """A plan: the tokens of a text, encoded so many times."""

    def work(encode: Encode) -> list[int]:
        return [token_id for _ in range(n_times) for token_id in encode(piece)]

    return work


async def occupy(encoding: Encoding, gate: Gate) -> list[asyncio.Task[list[int]]]:
    """Two requests that are held: the first on its own thread, the other in the queue."""
    tasks = []
    for _ in range(2):
        gate.entered.clear()
        work = encoding_of(b"held" + PIECE)
        tasks.append(asyncio.create_task(encoding.run(work, gate.encoder)))
        await until(gate.entered.is_set)
    return tasks


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():
            await asyncio.sleep(0.001)


def test_one_text_a_batch_is_the_one_thread() -> None:
    encodings = [open_encoding(1, 0.002), open_encoding(2, 0.002)]
    assert [type(each) for each in encodings] == [EncodingThread, BatchedEncoding]
    for each in encodings:
        each.close()


@pytest.mark.parametrize("max_texts", [1, 4, 64])
def test_many_requests_get_their_own_results(max_texts: int) -> None:
    pieces = [bytes([at]) * (MIN_QUEUED_BYTES - 8 + at) for at in range(64)]
    gate = Gate(b"nothing")

    async def run() -> list[list[int]]:
        async with closing(open_encoding(max_texts, 0.001)) as encoding:
            works = [encoding_of(piece, n_times=3) for piece in pieces]
            return list(await asyncio.gather(*(encoding.run(w, gate.encoder) for w in works)))

    assert asyncio.run(run()) == [list(piece) * 3 for piece in pieces]


def test_planning_has_one_thread_at_a_time() -> None:
    n_inside, most_inside = 0, 0

    def work(encode: Encode) -> None:
        nonlocal n_inside, most_inside
        for _ in range(5):
            n_inside += 1
            most_inside = max(most_inside, n_inside)
            for _ in range(200):
                pass
            n_inside -= 1
            encode(PIECE)

    async def run() -> None:
        async with closing(open_encoding(16, 0.0)) as encoding:
            await asyncio.gather(*(encoding.run(work, Gate(b"-").encoder) for _ in range(32)))

    asyncio.run(run())
    assert most_inside == 1


def test_a_lone_request_is_not_handed_over() -> None:
    gate = Gate(b"nothing")

    async def run() -> int:
        async with closing(open_encoding(8, LONG_S)) as encoding:
            async with asyncio.timeout(LONG_S / 2):
                await encoding.run(encoding_of(PIECE, n_times=3), gate.encoder)
            return sum(encoding.counters.batch_texts.counts)

    assert asyncio.run(run()) == 0
    assert all(name.startswith("planner") for name in gate.threads)


def test_requests_that_plan_beside_each_other_are_encoded_by_one_thread_in_batches() -> None:
    gate = Gate(b"held")

    async def run() -> list[int]:
        async with closing(open_encoding(8, 0.0), gate) as encoding:
            held = await occupy(encoding, gate)
            gate.threads.clear()
            works = [encoding_of(PIECE) for _ in range(6)]
            tasks = [asyncio.create_task(encoding.run(w, gate.encoder)) for w in works]
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in tasks)
            gate.go.set()
            await asyncio.gather(*held, *tasks)
            tally = encoding.counters.batch_texts
            return [count for count in tally.counts if count]

    # The one text that was held, and all that came meanwhile.
    assert asyncio.run(run()) == [1, 1]
    assert gate.threads == {"encoding"}


def test_a_very_long_text_holds_up_none_of_those_beside_it() -> None:
    gate = Gate(b"held")
    long_piece = b"held" + bytes(10_000_000)

    async def run() -> bool:
        async with closing(open_encoding(4, 0.0), gate) as encoding:
            # Not alone, which would keep it out of the queue anyway.
            other = asyncio.create_task(encoding.run(encoding_of(b"held" + PIECE), gate.encoder))
            await until(gate.entered.is_set)
            gate.entered.clear()
            long = asyncio.create_task(
                encoding.run(lambda encode: len(encode(long_piece)), gate.encoder)
            )
            await until(gate.entered.is_set)
            async with asyncio.timeout(LONG_S / 2):
                works = [encoding_of(PIECE, n_times=2) for _ in range(9)]
                await asyncio.gather(*(encoding.run(w, gate.encoder) for w in works))
            was_done = long.done()
            gate.go.set()
            assert await long == len(long_piece)
            await other
            return was_done

    assert len(long_piece) > MAX_BATCH_BYTES
    assert asyncio.run(run()) is False


@pytest.mark.parametrize("max_texts", [1, 4])
def test_an_error_is_that_of_one_request(max_texts: int) -> None:
    def encode(piece: bytes) -> Sequence[int]:
        if piece.startswith(b"bad"):
            raise UnicodeDecodeError("utf-8", piece, 0, 1, "bad")
        return list(piece)

    def encode_all(pieces: Sequence[bytes]) -> Sequence[Sequence[int]]:
        return list(map(encode, pieces))

    async def run() -> list[list[int] | BaseException]:
        async with closing(open_encoding(max_texts, 0.01)) as encoding:
            pieces = [PIECE, b"bad" + PIECE, PIECE + b"!"]
            works = [encoding.run(encoding_of(p), Encoder(encode, encode_all)) for p in pieces]
            return list(await asyncio.gather(*works, return_exceptions=True))

    first, failed, last = asyncio.run(run())
    assert (first, last) == (list(PIECE), list(PIECE + b"!"))
    assert isinstance(failed, UnicodeDecodeError)


def test_a_cancelled_request_leaves_its_place_and_the_others_alone() -> None:
    gate = Gate(b"held")
    n_plans = 0

    def twice(encode: Encode) -> None:
        nonlocal n_plans
        encode(PIECE)
        encode(PIECE)
        n_plans += 1

    async def run() -> None:
        async with closing(open_encoding(4, 0.0), gate) as encoding:
            held = await occupy(encoding, gate)
            # Two wait in the queue, the others for a planner.
            tasks = [asyncio.create_task(encoding.run(twice, gate.encoder)) for _ in range(9)]
            await asyncio.sleep(0.02)
            for task in tasks[::2]:
                task.cancel()
            ended = await asyncio.gather(*tasks[::2], return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended)
            gate.go.set()
            await asyncio.gather(*held, *tasks[1::2])

    asyncio.run(run())
    assert n_plans == 4


@pytest.mark.parametrize("max_texts", [1, 4])
def test_closing_leaves_nobody_waiting(max_texts: int) -> None:
    gate = Gate(b"first")

    async def run() -> list[list[int] | BaseException]:
        encoding = open_encoding(max_texts, LONG_S)
        first = asyncio.create_task(encoding.run(encoding_of(b"first" + PIECE), gate.encoder))
        await until(gate.entered.is_set)
        works = [encoding_of(PIECE) for _ in range(9)]
        tasks = [asyncio.create_task(encoding.run(w, gate.encoder)) for w in works]
        await asyncio.sleep(0.02)
        close = asyncio.create_task(asyncio.to_thread(encoding.close))
        async with asyncio.timeout(LONG_S / 2):
            waiting = await asyncio.gather(*tasks, return_exceptions=True)
            assert not close.done()
            gate.go.set()
            await close
            return [await first, *waiting]

    under_way, *dropped = asyncio.run(run())
    assert under_way == list(b"first" + PIECE)
    assert all(isinstance(each, asyncio.CancelledError) for each in dropped)
