"""Keeps a worker process alive, and has another one take its place without a gap.

llama.cpp can end its process where Python would raise. The listening socket belongs to the parent,
so while there is no worker, clients wait in its queue and are served by the next one.

  S1  A worker that dies of a signal or an unforeseen status is started again, after a pause that
      grows; after too many deaths in a row that came soon, it is given up: status 3.
  S2  A worker that says "set-up" (2) would say so again: its status is ours.
  S3  On SIGTERM or SIGINT the worker is asked to drain and ours is 0 or 130. A worker that takes
      longer than the grace, or a second signal, is killed.
  S4  On SIGHUP a second worker is started; once it serves, the first one is asked to leave. Where
      the second one dies before, the first one goes on, or one as it was where it has died too. A
      SIGHUP meanwhile is heeded then.

One thread, the main one, decides; what happens comes to it through a queue, in which it waits
without a timeout: idle, we never wake.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from types import FrameType
from typing import Any, Protocol

from suture.server.commands import exits
from suture.server.errors import SutureError
from suture.server.news import News

PAUSES_S = (0.1, 0.5, 2.0, 5.0, 10.0)
SOON_S = 60.0


class Worker(Protocol):
    """A process that serves; it may be gone already when it is told something."""

    @property
    def grace_s(self) -> float:
        """How long it may take to end."""
        ...

    @property
    def news(self) -> Iterable[News]:
        """What it tells; ends when it does."""
        ...

    def stop(self) -> None: ...

    def leave(self) -> None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class Display(Protocol):
    """What whoever started the server sees of it."""

    def say(self, line: str) -> None:
        """Say something that is to stay."""
        ...

    def show(self, news: News) -> None:
        """Show how the worker is doing now."""
        ...

    def show_stopping(self) -> None:
        """Show that it ends."""
        ...


class Plain:
    """Says what is to stay on standard error, and shows nothing else."""

    def say(self, line: str) -> None:
        with suppress(OSError):  # nobody reads it any more
            print(line, file=sys.stderr, flush=True)

    def show(self, news: News) -> None: ...

    def show_stopping(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Told:
    worker: Worker
    news: News


@dataclass(frozen=True, slots=True)
class _Ended:
    worker: Worker
    status: int


@dataclass(frozen=True, slots=True)
class _Signalled:
    number: int


class _PauseOver:
    """It is time to start the next worker."""


_Event = _Told | _Ended | _Signalled | _PauseOver

# Starts a worker, one that follows another where that one serves still.
Spawn = Callable[[bool], Worker]


class Supervisor:
    """Runs what `spawn` starts until it ends well, cannot start, or dies too often.

    `renew` gives what to start others with from SIGHUP on, as the settings are then; it may raise a
    `SutureError`. None: SIGHUP is left as it is. `pauses_s` are the pauses before the restarts; a
    death more than `soon_s` after the start begins them anew. Use in the main thread, which gets
    the signals.
    """

    def __init__(
        self,
        spawn: Spawn,
        renew: Callable[[], Spawn] | None = None,
        display: Display | None = None,
        pauses_s: Sequence[float] = PAUSES_S,
        soon_s: float = SOON_S,
    ) -> None:
        # What to start workers with, and what with once one that a SIGHUP started has come up.
        self._spawn = self._renewed = spawn
        self._renew = renew
        self._display = display or Plain()
        self._pauses_s = pauses_s
        self._soon_s = soon_s
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._alive: list[Worker] = []
        # Who serves, or is to; who is to take its place, and whether somebody is.
        self._first: Worker | None = None
        self._second: Worker | None = None
        self._is_ready = False
        self._wants_second = False
        self._stopped_by: int | None = None
        self._n_deaths = 0
        self._started = 0.0

    def run(self) -> int:
        """The exit status of it all."""
        with self._signals():
            self._start_first()
            while True:
                status = self._on(self._events.get())
                if status is not None:
                    return status

    def _on(self, event: _Event) -> int | None:
        """What to do about what happened; the exit status if that was the end."""
        match event:
            case _Signalled(number):
                return self._on_signal(number)
            case _Told(worker, news):
                self._on_news(worker, news)
            case _Ended(worker, status):
                self._alive.remove(worker)
                return self._on_end(worker, status)
            case _PauseOver():
                self._start_first()
        return None

    def _on_signal(self, number: int) -> int | None:
        if number == signal.SIGHUP:
            if self._stopped_by is None:
                self._wants_second = True
                self._start_second()
            return None
        if self._stopped_by is not None:
            for worker in self._alive:
                worker.kill()
            return None
        self._stopped_by = number
        self._display.show_stopping()
        for worker in self._alive:
            self._ask(worker, worker.stop)
        return self._status_of_stop()

    def _on_news(self, worker: Worker, news: News) -> None:
        if worker is self._second and news.state == "ready":
            assert self._first is not None
            self._ask(self._first, self._first.leave)
            self._first, self._second = self._second, None
            self._is_ready = False
            self._started = time.monotonic()
        if worker is self._first and self._stopped_by is None:
            self._display.show(news)
            if news.state == "ready" and not self._is_ready:
                self._is_ready, self._spawn = True, self._renewed
                self._start_second()

    def _on_end(self, worker: Worker, status: int) -> int | None:
        if self._stopped_by is not None:
            return self._status_of_stop()
        if worker is self._second:
            self._second, self._renewed = None, self._spawn
            self._say(f"the new worker {_death(status)}: the one before goes on")
            self._start_second()
        elif worker is self._first:
            self._first, self._is_ready = None, False
            return self._on_death(status)
        return None

    def _on_death(self, status: int) -> int | None:
        """Who served is gone."""
        if self._second is not None:  # which takes up what comes once it is loaded
            self._first, self._second = self._second, None
            self._say(f"the worker {_death(status)}: the new one takes its place")
            return None
        # Settings with which nobody has served yet: those before them did.
        is_untried = self._renewed is not self._spawn
        if status == exits.OK or (status == exits.SETUP and not is_untried):
            return status
        soon = time.monotonic() - self._started < self._soon_s
        self._n_deaths = self._n_deaths + 1 if soon else 1
        if self._n_deaths > len(self._pauses_s):
            self._say(f"the worker {_death(status)} {self._n_deaths} times in a row: giving up")
            return exits.FAILURE
        self._say(f"the worker {_death(status)}: starting it again")
        pause = self._pauses_s[self._n_deaths - 1]
        _after(pause, lambda: self._events.put(_PauseOver()))
        return None

    def _status_of_stop(self) -> int | None:
        if self._alive:
            return None
        return exits.INTERRUPTED if self._stopped_by == signal.SIGINT else exits.OK

    def _start_first(self) -> None:
        if self._stopped_by is None:
            self._started = time.monotonic()
            self._renewed = self._spawn
            self._first = self._start(self._spawn(False))

    def _start_second(self) -> None:
        """Start who is to take the place of who serves, once somebody does and it is wanted."""
        if not (self._renew and self._wants_second and self._is_ready and self._second is None):
            return
        self._wants_second = False
        try:
            self._renewed = self._renew()
        except SutureError as error:
            self._say(f"{' '.join(str(error).split())}: the worker goes on as it was")
            return
        self._second = self._start(self._renewed(True))

    def _start(self, worker: Worker) -> Worker:
        self._alive.append(worker)
        threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
        return worker

    def _listen(self, worker: Worker) -> None:
        for news in worker.news:
            self._events.put(_Told(worker, news))
        self._events.put(_Ended(worker, worker.wait()))

    def _ask(self, worker: Worker, end: Callable[[], None]) -> None:
        end()
        _after(worker.grace_s, worker.kill)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def on(number: int, frame: FrameType | None) -> None:
            self._events.put(_Signalled(number))

        numbers: tuple[Any, ...] = _STOP_SIGNALS + ((signal.SIGHUP,) if self._renew else ())
        before = {number: signal.signal(number, on) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _say(self, line: str) -> None:
        self._display.say(f"suture: {line}")


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _after(seconds: float, act: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def _death(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"died of {signal.Signals(-status).name}"
    except ValueError:
        return f"died of signal {-status}"
