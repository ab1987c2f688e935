"""Keeps a worker process alive.

llama.cpp can end its process where Python would raise. The listening socket belongs to the parent,
so while there is no worker, clients wait in its queue and are served by the next one.

  S1  A worker that dies of a signal or an unforeseen status is started again, after a pause that
      grows; after too many deaths in a row that came soon, it is given up: status 3.
  S2  A worker that says "set-up" (2) would say so again: its status is ours.
  S3  On SIGTERM or SIGINT the worker is asked to drain and ours is 0 or 130. A worker that takes
      longer than the grace, or a second signal, is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from suture.server.commands import exits

Process = subprocess.Popen[bytes]

PAUSES_S = (0.1, 0.5, 2.0, 5.0, 10.0)
SOON_S = 60.0
GRACE_S = 10.0


class Supervisor:
    """Runs what `spawn` starts until it ends well, cannot start, or dies too often.

    `pauses_s` are the pauses before the restarts; a death more than `soon_s` after the start
    begins them anew. Use in the main thread, which gets the signals.
    """

    def __init__(
        self,
        spawn: Callable[[], Process],
        pauses_s: Sequence[float] = PAUSES_S,
        soon_s: float = SOON_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._spawn = spawn
        self._pauses_s = pauses_s
        self._soon_s = soon_s
        self._grace_s = grace_s
        self._child: Process | None = None
        self._stopped_by: int | None = None
        self._stopping = threading.Event()

    def run(self) -> int:
        """The exit status of it all."""
        with self._signals():
            return self._keep_alive()

    def _keep_alive(self) -> int:
        n_deaths = 0
        while True:
            started = time.monotonic()
            status = self._run_child()
            if self._stopped_by is not None:
                return exits.INTERRUPTED if self._stopped_by == signal.SIGINT else exits.OK
            if status in (exits.OK, exits.SETUP):
                return status
            n_deaths = n_deaths + 1 if time.monotonic() - started < self._soon_s else 1
            if n_deaths > len(self._pauses_s):
                _say(f"the worker {_death(status)} {n_deaths} times in a row: giving up")
                return exits.FAILURE
            _say(f"the worker {_death(status)}: starting it again")
            self._stopping.wait(self._pauses_s[n_deaths - 1])

    def _run_child(self) -> int:
        if self._stopping.is_set():
            return exits.OK
        self._child = self._spawn()
        if self._stopping.is_set():  # the signal came while it was being started
            self._ask_to_stop(self._child)
        try:
            return self._child.wait()
        finally:
            self._child = None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in _STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        child = self._child
        if self._stopped_by is not None:
            if child is not None:
                child.kill()
            return
        self._stopped_by = number
        self._stopping.set()
        if child is not None:
            self._ask_to_stop(child)

    def _ask_to_stop(self, child: Process) -> None:
        child.terminate()
        # Waiting happens in the main thread, without a timeout: idle, we never wake.
        timer = threading.Timer(self._grace_s, child.kill)
        timer.daemon = True
        timer.start()


_STOP_SIGNALS: tuple[Any, ...] = (signal.SIGTERM, signal.SIGINT)


def _death(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"died of {signal.Signals(-status).name}"
    except ValueError:
        return f"died of signal {-status}"


def _say(line: str) -> None:
    print(f"suture: {line}", file=sys.stderr, flush=True)
