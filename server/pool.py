"""The models that may be served, of which some are loaded.

P2  Before a model is loaded, those go that have not been used for longest, until its weights and
    context and those of the others are within the budget (`memory_mb`). If it cannot be made to
    fit, none goes, and the request is told why.
P3  What goes is freed before what comes in its place is loaded.

P1, P4 and P5 are in `pooled_model.py`. All of it is used on the event loop but `start` and `close`,
before and after it. Models are loaded and freed on the engine's thread, one thing after the other;
a thread of the pool's own waits for that.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from suture.server.counters import Measured, together
from suture.server.engine.thread import EngineThread
from suture.server.errors import NoRoom, RequestError, SetupError, SutureError
from suture.server.logs import without_values
from suture.server.models.names import plain_name
from suture.server.pooled_model import PooledModel, Source, Surveyed
from suture.server.routes.completer import ServedCompleter, State
from suture.server.settings import Settings

T = TypeVar("T")

MB = 1_000_000

_log = logging.getLogger("suture.engine")


class ModelPool:
    """Loads the first of its models at the start, and others when they are asked for.

    Raises `SetupError` where two have one name, or there can never be room for the first.
    """

    def __init__(self, sources: Sequence[Source], settings: Settings) -> None:
        self.thread = EngineThread()
        self._budget = settings.memory_mb * MB
        self._idle_s = settings.idle_minutes * 60
        self._models = [PooledModel(source, self, settings.parallel) for source in sources]
        self._by_name = {plain_name(model.name): model for model in self._models}
        self._in_order = ThreadPoolExecutor(1, thread_name_prefix="models")
        self._lock = threading.Lock()
        self._surveying: tuple[PooledModel, Future[Surveyed | None]] | None = None
        self._leaving: list[ServedCompleter] = []
        self._past: list[Measured] = []
        self._check()

    @property
    def models(self) -> Sequence[PooledModel]:
        return self._models

    def named(self, name: str) -> PooledModel | None:
        return self._by_name.get(plain_name(name))

    def start(self) -> None:
        self._models[0].is_needed = True
        self._models[0].load()
        if self._budget:
            # Now, and not on the event loop when there is to be made room. What cannot be read
            # fails its own requests.
            for model in self._models:
                with suppress(SetupError):
                    model.measure()

    def state(self) -> State:
        states = [model.state() for model in self._models]
        if self._models[0].is_needed:
            return "loading"
        return "stalled" if "stalled" in states else "ready"

    def tend(self) -> None:
        if self._models[0].is_needed:
            return
        self._survey()
        for model in self._models:
            if self._idle_s and model.idle_s >= self._idle_s:
                model.unload()

    def measured(self) -> Measured:
        with self._lock:
            gone = [completer.measured() for completer in self._leaving] + self._past
        loaded = [model.measured() for model in self._models]
        counted = [one for one in loaded if one is not None] + gone
        held = tuple(model.held() for model in self._models)
        return replace(together(counted) if counted else Measured(), models=held)

    def cancel_all(self) -> None:
        for model in self._models:
            model.cancel_all()

    def close(self) -> None:
        if self._surveying is not None:
            self._surveying[1].cancel()
        for model in self._models:
            model.let_go()
        self._in_order.shutdown(wait=True)
        self.thread.close()

    def make_for(self, model: PooledModel) -> None:
        """Unload others until this one fits. Raises why it does not."""
        if not self._budget:
            return
        if model.measure() > self._budget:
            raise TooLarge(
                f"the model {model.name} takes {_mb(model.n_bytes)} MB, and all models together "
                f"may take {_mb(self._budget)} (--memory-mb)"
            )
        for other in self._in_its_way(model):
            other.unload()

    def in_order(self, work: Callable[[], None]) -> None:
        self._in_order.submit(_logged, work)

    def retire(self, completer: ServedCompleter) -> None:
        with self._lock:
            self._leaving.append(completer)
        self.in_order(functools.partial(self._close, completer))
        # After it, when nobody holds the completer any more: vocabularies are large, and what
        # holds them holds itself.
        self.in_order(_give_back)

    def _survey(self) -> None:
        """Learn what was read, and have the next file read: what is to be loaded or freed waits
        for one at most."""
        if self._surveying is not None:
            model, reading = self._surveying
            if not reading.done():
                return
            surveyed = reading.result()
            if surveyed is not None:
                model.learn(surveyed)
            self._surveying = None
        unread = next((model for model in self._models if not model.is_surveyed), None)
        if unread is not None:
            self._surveying = unread, self._in_order.submit(_logged, unread.survey())

    def _in_its_way(self, model: PooledModel) -> list[PooledModel]:
        """Those who may leave and have to, that were not used for longest. Raises `NoRoom`."""
        held = [other for other in self._models if other.is_held]
        n_too_many = sum(other.measure() for other in held) + model.n_bytes - self._budget
        may_leave = [other for other in held if other.may_leave]
        may_leave.sort(key=lambda other: other.idle_s, reverse=True)
        leaving: list[PooledModel] = []
        for other in may_leave:
            if n_too_many <= 0:
                break
            leaving.append(other)
            n_too_many -= other.n_bytes
        if n_too_many > 0:
            raise NoRoom(
                f"no room for the model {model.name}: others are in use, and it would be "
                f"{_mb(n_too_many)} MB too many (--memory-mb)",
                retry_after=5,
            )
        return leaving

    def _close(self, completer: ServedCompleter) -> None:
        try:
            completer.close()
        finally:
            past = _past(completer.measured())
            with self._lock:
                self._leaving.remove(completer)
                self._past = [together([*self._past, past])]

    def _check(self) -> None:
        if len(self._by_name) < len(self._models):
            names = ", ".join(model.name for model in self._models)
            raise SetupError(f"--also-serve: each model needs a name of its own: {names}")
        first = self._models[0]
        if self._budget and first.measure() > self._budget:
            raise SetupError(f"--memory-mb: {first.name} alone takes {_mb(first.n_bytes)}")


class TooLarge(RequestError):
    """The model takes more than all models together may."""


def _past(measured: Measured) -> Measured:
    """What stays counted when a model is gone."""
    return Measured(
        counters=replace(
            measured.counters,
            cells_free=0,
            sequences_running=0,
            sequences_idle=0,
            sequences_saved=0,
        ),
        requests=measured.requests,
        spare=measured.spare,
        encoding=measured.encoding,
    )


def _give_back() -> None:
    """Collect what holds itself, and have the system get it: glibc keeps what is freed."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _logged(work: Callable[[], T]) -> T | None:
    """What comes of work, None where it failed."""
    try:
        return work()
    except SutureError as error:
        _log.error("%s", error)
    except Exception as error:
        _log.error("loading or freeing a model failed: %s", without_values(error))
    return None


def _mb(n_bytes: int) -> int:
    return -(-n_bytes // MB)
