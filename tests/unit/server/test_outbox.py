from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from suture.server.outbox import OUTPUT_CHUNK, Outbox


def test_items_arrive_in_order_from_any_thread() -> None:
    async def run() -> list[list[int]]:
        outbox: Outbox[int] = Outbox()
        queues: list[asyncio.Queue[int]] = [asyncio.Queue() for _ in range(3)]

        def say(queue: asyncio.Queue[int]) -> None:
            for n in range(500):
                outbox.put(queue, n)

        threads = [threading.Thread(target=say, args=(queue,)) for queue in queues]
        for thread in threads:
            thread.start()
        heard = [[await queue.get() for _ in range(500)] for queue in queues]
        for thread in threads:
            thread.join()
        return heard

    assert asyncio.run(run()) == [list(range(500))] * 3


@pytest.mark.parametrize(("is_elsewhere", "n_wanted"), [(True, 1), (False, 0)])
def test_the_loop_is_woken_once_for_a_step_and_has_turns_for_others(
    is_elsewhere: bool, n_wanted: int
) -> None:
    async def run() -> tuple[int, list[int]]:
        outbox: Outbox[int] = Outbox()
        loop, n_woken = asyncio.get_running_loop(), 0
        wake: Callable[..., object] = loop.call_soon_threadsafe

        def counting(*args: object) -> object:
            nonlocal n_woken
            n_woken += 1
            return wake(*args)

        loop.call_soon_threadsafe = counting  # type: ignore[method-assign, assignment]
        queue: asyncio.Queue[int] = asyncio.Queue()

        def step() -> None:
            for n in range(3 * OUTPUT_CHUNK):
                outbox.put(queue, n)

        if is_elsewhere:
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
        else:
            step()
        sizes = []
        while queue.qsize() < 3 * OUTPUT_CHUNK:
            await asyncio.sleep(0)
            sizes.append(queue.qsize())
        return n_woken, [size for size in sizes if size]

    n_woken, sizes = asyncio.run(run())
    assert n_woken == n_wanted
    assert sizes == [OUTPUT_CHUNK, 2 * OUTPUT_CHUNK, 3 * OUTPUT_CHUNK]


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    async def run() -> tuple[Outbox[int], asyncio.Queue[int]]:
        return Outbox(), asyncio.Queue()

    outbox, queue = asyncio.run(run())
    outbox.put(queue, 1)
    assert queue.empty()


def test_an_inbox_that_fails_harms_no_other() -> None:
    class Broken:
        def put_nowait(self, item: int) -> None:
            raise RuntimeError("broken on purpose")

    async def run() -> list[int]:
        outbox: Outbox[int] = Outbox()
        sound: asyncio.Queue[int] = asyncio.Queue()
        outbox.put(Broken(), 1)
        outbox.put(sound, 2)
        heard = [await sound.get()]
        outbox.put(sound, 3)
        return [*heard, await sound.get()]

    assert asyncio.run(run()) == [2, 3]
