"""Requests that wait until a model is loaded: one asks for all of them."""

from __future__ import annotations

import asyncio

from suture.server.errors import Loading, QueueFull
from suture.server.routes.completer import ServedModel, shown_state

POLL_LOADING_S = 0.05


class AwaitedLoads:
    """Has models loaded and waits for it, for `max_waiting` requests at once."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._n_waiting = 0
        self._ends: dict[str, asyncio.Task[None]] = {}

    async def loaded(self, model: ServedModel) -> None:
        """Return once a model is no longer being loaded, whatever came of it.

        Raises what a lease does but `Loading`, and `QueueFull`.
        """
        try:
            with model.lease():
                pass
        except Loading:
            pass
        if model.state() != "loading":
            return
        if self._n_waiting >= self._max_waiting:
            raise QueueFull(f"{self._n_waiting} requests wait for models already", retry_after=2)
        self._n_waiting += 1
        try:
            # Who leaves ends the waiting of no other.
            await asyncio.shield(self._end_of(model))
        finally:
            self._n_waiting -= 1

    def _end_of(self, model: ServedModel) -> asyncio.Task[None]:
        """The end of a model's loading, the same for all."""
        name = model.info.name
        end = self._ends.get(name)
        if end is None:
            end = self._ends[name] = asyncio.create_task(_until_loaded(model))
            end.add_done_callback(lambda _: self._ends.pop(name))
        return end


async def _until_loaded(model: ServedModel) -> None:
    while shown_state(model) == "loading":
        await asyncio.sleep(POLL_LOADING_S)
