from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.fake_completer import FakeCompleter
from suture.server.errors import EngineError, Loading, QueueFull
from suture.server.one_model import OneModel
from suture.server.routes import awaited_loads
from suture.server.routes.awaited_loads import AwaitedLoads
from suture.server.routes.completer import Completer, State


class Slow(OneModel):
    """A model that is being loaded, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(FakeCompleter())
        self.now: State | EngineError = "loading"
        self.n_asked = 0

    def state(self) -> State:
        self.n_asked += 1
        if isinstance(self.now, EngineError):
            raise self.now
        return self.now

    @contextmanager
    def lease(self) -> Iterator[Completer]:
        if isinstance(self.now, EngineError):
            raise self.now
        if self.now == "loading":
            raise Loading("Loading model")
        yield FakeCompleter()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_loads, "POLL_LOADING_S", 0.01)


async def begun() -> None:
    """Return once all tasks so far wait, and what they wait for has begun."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_one_asks_for_all_who_wait() -> None:
    async def work() -> None:
        model, loads = Slow(), AwaitedLoads(100)
        waiting = [asyncio.create_task(loads.loaded(model)) for _ in range(100)]
        await begun()
        assert model.n_asked <= 101
        while model.n_asked < 104:
            await asyncio.sleep(0.01)
        waiting[0].cancel()
        await asyncio.sleep(0.02)
        assert [one.done() for one in waiting] == [True] + [False] * 99
        n_before = model.n_asked
        model.now = "ready"
        await asyncio.gather(*waiting[1:])
        assert model.n_asked <= n_before + 1

    asyncio.run(asyncio.wait_for(work(), 20))


def test_no_more_wait_than_may() -> None:
    async def work() -> None:
        model, loads = Slow(), AwaitedLoads(2)
        waiting = [asyncio.create_task(loads.loaded(model)) for _ in range(2)]
        await begun()
        with pytest.raises(QueueFull):
            await loads.loaded(model)
        waiting[0].cancel()
        await asyncio.sleep(0.02)
        waiting[0] = asyncio.create_task(loads.loaded(model))
        await begun()
        model.now = "ready"
        await asyncio.gather(*waiting)
        await loads.loaded(model)

    asyncio.run(asyncio.wait_for(work(), 20))


def test_a_loading_that_fails_ends_the_wait_and_is_told_to_who_comes_then() -> None:
    async def work() -> None:
        model, loads = Slow(), AwaitedLoads(2)
        waiting = asyncio.create_task(loads.loaded(model))
        await begun()
        model.now = EngineError("it could not be loaded")
        await waiting
        with pytest.raises(EngineError):
            await loads.loaded(model)

    asyncio.run(asyncio.wait_for(work(), 20))
