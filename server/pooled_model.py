"""One model of a pool: its completer while it is loaded, and what is known of it meanwhile.

  lease   a request's hold on a model: while there is one, the model stays

P1  A model with a lease is never unloaded; one to be unloaded goes when its last lease ends,
    unless it was asked for again meanwhile.
P4  A model that was loaded for somebody stays until it has been used, for a while at least: clients
    of two models that take turns in one's room would otherwise never get an answer.
P5  A model that cannot be loaded fails its own requests; a needed one, the server.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from suture.server.counters import HeldModel, Measured
from suture.server.engine.thread import EngineThread
from suture.server.errors import EngineError, Loading, SetupError, SutureError
from suture.server.routes.completer import (
    LOADED,
    Completer,
    ModelInfo,
    ModelState,
    ServedCompleter,
    Slot,
    shown_state,
)

# How long a model that was loaded for somebody waits for them, and one that could not be is not
# tried again for every request.
UNUSED_S = 10.0
# From a slow disk, and warmed up.
_BYTES_LOADED_A_SECOND = 250_000_000
RETRY_S = 30.0

_log = logging.getLogger("suture.engine")


@dataclass(frozen=True, slots=True)
class Source:
    """A model before it is loaded.

    `open` makes its completer. `survey` reads what its file says, and `n_bytes` what it will take;
    both raise `ModelError`.
    """

    name: str
    path: Path
    open: Callable[[EngineThread], ServedCompleter]
    survey: Callable[[], ModelInfo]
    n_bytes: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a model's file says; `info` None where it is known already."""

    n_bytes: int
    info: ModelInfo | None


class Room(Protocol):
    """Where models are loaded, beside others."""

    thread: EngineThread

    def make_for(self, model: PooledModel) -> None:
        """Unload others until this one fits. Raises why it does not."""
        ...

    def in_order(self, work: Callable[[], None]) -> None:
        """Have work done after all that was to be done before, off the event loop."""
        ...

    def retire(self, completer: ServedCompleter) -> None:
        """Have a completer closed."""
        ...


class PooledModel:
    """Loads its model when it is asked for. `is_needed`: the server ends where it cannot be."""

    def __init__(self, source: Source, room: Room, n_slots: int) -> None:
        self.name = source.name
        self.is_needed = False
        self._source = source
        self._room = room
        self._n_slots = n_slots
        self._info = ModelInfo(source.name, str(source.path), 0, 0, None, None, False, None)
        self._n_bytes: int | None = None
        self._completer: ServedCompleter | None = None
        self._was_ready = False
        self._failed_at: float | None = None
        self._n_leases = 0
        self._used_at = 0.0
        self._is_unused = False
        self._is_to_go = False
        self._is_surveyed = False

    @property
    def info(self) -> ModelInfo:
        # A completer knows nothing before its model is loaded.
        loaded = self._completer.model if self._completer is not None else None
        return loaded if loaded is not None and loaded.n_ctx else self._info

    @property
    def n_bytes(self) -> int:
        return self._n_bytes or 0

    @property
    def is_held(self) -> bool:
        """Whether it takes room, or is about to."""
        return self._completer is not None

    @property
    def idle_s(self) -> float:
        """For how long it has been loaded and not used; 0 where it is not, or is in use."""
        if self._n_leases or shown_state(self) not in LOADED:
            return 0.0
        return time.monotonic() - self._used_at

    @property
    def may_leave(self) -> bool:
        """Whether it may make room for another one."""
        is_idle = not self._n_leases and shown_state(self) in LOADED
        return is_idle and not (self._is_unused and self.idle_s < UNUSED_S)

    def state(self) -> ModelState:
        if self._completer is None:
            return "unloaded" if self._failed_at is None else "failed"
        try:
            state = self._completer.state()
        except SutureError as error:
            if self._was_ready or self.is_needed:
                raise
            self._fail(error)
            return "failed"
        if state != "loading" and not self._was_ready:
            self._was_ready, self.is_needed = True, False
            self._used_at = time.monotonic()
        return state

    @contextmanager
    def lease(self) -> Iterator[Completer]:
        completer = self._loaded()
        self._n_leases += 1
        self._is_to_go = self._is_unused = False
        try:
            yield completer
        finally:
            self._n_leases -= 1
            self._used_at = time.monotonic()
            if self._is_to_go and not self._n_leases:
                self.let_go()

    def load(self) -> None:
        self._is_to_go = False
        if self.state() in ("loading", *LOADED):
            return
        try:
            self._room.make_for(self)
        except SetupError as error:
            self._fail(error)
            return
        self._completer = self._source.open(self._room.thread)
        self._is_unused, self._was_ready, self._failed_at = True, False, None
        self._room.in_order(self._completer.start)

    def unload(self) -> None:
        if self.is_needed:
            raise Loading("Loading model", retry_after=2)
        self._failed_at = None
        if self._n_leases:
            self._is_to_go = True
        else:
            self.let_go()

    def let_go(self) -> None:
        """Have the completer closed, whatever it does."""
        completer = self._completer
        if completer is None:
            return
        # Its vocabulary is as large as a small model.
        self._info = replace(self.info, tokens=None)
        self._completer = None
        self._room.retire(completer)

    @property
    def is_surveyed(self) -> bool:
        """Whether what its file says has been read, or is being."""
        return self._is_surveyed

    def survey(self) -> Callable[[], Surveyed]:
        """What reads what the file says, on another thread; what comes of it is to be learned.

        Clients choose by whether a model can fill in.
        """
        self._is_surveyed = True
        source, is_known = self._source, self.info.n_ctx > 0
        return lambda: Surveyed(source.n_bytes(), None if is_known else source.survey())

    def learn(self, surveyed: Surveyed) -> None:
        """Know what the file says, unless more is known by now."""
        self._n_bytes = surveyed.n_bytes
        if surveyed.info is not None and not self._info.n_ctx:
            self._info = surveyed.info

    def measure(self) -> int:
        """Its bytes, which are read from its file if they are not known. Raises `ModelError`."""
        if self._n_bytes is None:
            self._n_bytes = self._source.n_bytes()
        return self._n_bytes

    def measured(self) -> Measured | None:
        """What it has counted since it was loaded; None where it is not."""
        return None if self._completer is None else self._completer.measured()

    def held(self) -> HeldModel:
        """It as `/metrics` shows it."""
        return HeldModel(self.name, shown_state(self) in LOADED, self.n_bytes)

    def slots(self) -> list[Slot | None]:
        return [None] * self._n_slots if self._completer is None else self._completer.slots()

    def cancel_all(self) -> None:
        """End its completions with their text so far."""
        if self._completer is not None:
            self._completer.cancel_all()

    def _loaded(self) -> ServedCompleter:
        """The completer. Raises `Loading` until it is loaded, or why it cannot be."""
        if self.state() == "unloaded" or self._is_to_be_tried_again():
            self.load()
        state = self.state()
        if state == "failed":
            # Why stands in the log: a message would tell where files lie.
            raise EngineError(f"the model {self.name} could not be loaded")
        if self._completer is None or state not in LOADED:
            # Clients that ask again do so a few times only.
            wait_s = max(2, self.n_bytes // _BYTES_LOADED_A_SECOND)
            raise Loading("Loading model", retry_after=wait_s)
        return self._completer

    def _is_to_be_tried_again(self) -> bool:
        return self._failed_at is not None and time.monotonic() - self._failed_at > RETRY_S

    def _fail(self, error: SutureError) -> None:
        _log.error("the model %s cannot be loaded: %s", self.name, error)
        self._failed_at = time.monotonic()
        self.let_go()
