"""Counts what becomes of suggestions, and saves it now and then: an editor may end at any time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import date
from typing import Any

from filelock import Timeout

from suture.lsp.stats import Stats
from suture.lsp.tally import Event, Tally
from suture.server.errors import SutureError

SAVE_S = 5.0


class Counting:
    """What is told of one editor's suggestions, for the file that `find` names.

    Where the file cannot be written, nobody is told: nothing that is shown depends on it.
    """

    def __init__(self, find: Callable[[], Stats]) -> None:
        self.tally = Tally(lambda: date.today().isoformat())
        self._find = find
        self._saving = threading.Lock()
        self._soon: asyncio.Task[None] | None = None

    def told(self, event: Event, params: Any) -> None:
        """An editor told what became of an item."""
        self.tally.told(event, params)
        self._save_soon()

    def accepted(self, mark: Any) -> None:
        """An item with this mark was accepted to its end."""
        self.tally.accepted(mark)
        self._save_soon()

    def save(self) -> None:
        """Add to the file what was counted since."""
        with self._saving:
            counts = self.tally.take()
            try:
                if counts:
                    self._find().add(counts)
            except (OSError, Timeout, SutureError):
                self.tally.give_back(counts)

    def end(self) -> None:
        """Save no more by itself."""
        if self._soon is not None:
            self._soon.cancel()

    def _save_soon(self) -> None:
        if self._soon is None or self._soon.done():
            self._soon = asyncio.ensure_future(self._save_later())

    async def _save_later(self) -> None:
        await asyncio.sleep(SAVE_S)
        await asyncio.to_thread(self.save)
