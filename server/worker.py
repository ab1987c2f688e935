"""The process that holds the model: serves HTTP on a socket that its parent listens on.

The parent writes one line of JSON to standard input, an `Order`, and keeps it open: its end is the
parent's death, and ours. Status 2: the model or the settings cannot be served, starting again would
not help. 3: the engine failed.

SIGTERM and SIGINT: what runs goes on for `drain_s`, then ends with its text so far; what is new is
refused (`routes/drain.py`). SIGHUP is the same where another worker has taken our place on the
socket: that one takes up what is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from suture.server.app import create_app, dialect_of
from suture.server.commands import exits
from suture.server.connections import http_config, raise_descriptor_limit
from suture.server.errors import SetupError, SutureError
from suture.server.logs import log_loop_error, log_to_stderr
from suture.server.reporter import Reporter
from suture.server.routes.completer import ServedPool
from suture.server.routes.drain import Drain
from suture.server.settings import Settings
from suture.server.worker_process import FAREWELL_S, Order, grace_s

POLL_LOADING_S = 0.02
POLL_READY_S = 0.5
POLL_LEAVING_S = 0.1
TELL_LOADING_S = 1.0
# How much of that connections have, those whose clients do not read what they asked for.
CLOSING_S = 1


def main(build: Callable[[Settings], ServedPool]) -> int:
    """Serve what `build` makes until told to stop; returns the exit status."""
    faulthandler.enable()
    log_to_stderr()
    line = sys.stdin.buffer.readline()
    if not line:
        return exits.OK
    order = Order.model_validate_json(line)
    raise_descriptor_limit()
    try:
        pool = build(order.settings)
        with socket.socket(fileno=order.fd) as listener:
            serving = _Serving(pool, order, listener)
            pool.start()
            # What is imported stays: no collection need look at it, and hold everybody up.
            gc.freeze()
            try:
                asyncio.run(serving.run())
            finally:
                pool.close()
    except SutureError as error:
        print(f"suture: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return exits.SETUP if isinstance(error, SetupError) else exits.FAILURE
    return exits.OK


class _Server(uvicorn.Server):
    """uvicorn's, told to end by us and not by signals: it would close what is still answered."""

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_signal = on_signal

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_signal()

    def close_listeners(self) -> None:
        """Leave new connections to who else listens on the socket."""
        for server in getattr(self, "servers", ()):  # none before it has started
            server.close()


class _Serving:
    def __init__(self, pool: ServedPool, order: Order, listener: socket.socket) -> None:
        settings = order.settings
        self._pool = pool
        self._order = order
        self._listener = listener
        # Read now: uvicorn closes the listener as soon as it is told to stop.
        self._url = settings.url_at(*listener.getsockname()[:2])
        self._reporter = Reporter(order.news_fd, pool, self._url)
        self._drain = Drain(create_app(pool, settings), dialect_of)
        self._leaves = False
        self._ending = asyncio.Event()
        self._server = _Server(http_config(self._drain, settings, CLOSING_S), self._on_stop)

    async def run(self) -> None:
        """Serve until stopped; raises the `SutureError` that the pool ended with."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log_loop_error)
        loop.add_reader(sys.stdin.fileno(), self._on_stdin)
        loop.add_signal_handler(signal.SIGHUP, self._on_leave)
        if self._order.follows:
            await self._load()
        watching = asyncio.create_task(self._watch())
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            watching.cancel()
            (failure,) = await asyncio.gather(watching, return_exceptions=True)
        if isinstance(failure, Exception):
            raise failure

    async def _watch(self) -> None:
        """Say when requests are served; stop the server when told to, or its engine failed."""
        try:
            await self._load()
            while not (self._server.started or self._ending.is_set()):
                await asyncio.sleep(POLL_LOADING_S)
            if not self._ending.is_set():
                self._announce()
            while not self._ending.is_set():
                self._pool.state()
                self._pool.tend()
                if self._order.watched:
                    self._reporter.tell_ready()
                await self._pause(POLL_READY_S)
            await self._end()
        finally:
            self._server.should_exit = True

    async def _load(self) -> None:
        """Return when the model is loaded, or we are told to end."""
        began = time.monotonic()
        told = -TELL_LOADING_S
        while not self._ending.is_set() and self._pool.state() == "loading":
            self._pool.tend()
            elapsed = time.monotonic() - began
            if self._order.watched and elapsed - told >= TELL_LOADING_S:
                told = elapsed
                self._reporter.tell_loading(elapsed)
            await self._pause(POLL_LOADING_S)

    def _announce(self) -> None:
        with contextlib.suppress(OSError):  # who started us has left the pipe; we serve
            print(f"listening on {self._url}", flush=True)
        self._reporter.tell_ready()

    async def _end(self) -> None:
        """Let what runs end; what does not in time ends with its text so far, in its dialect."""
        if self._leaves:
            self._server.close_listeners()
            self._drain.close_connections()
        else:
            self._drain.refuse()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended(), self._order.settings.drain_s)
        give_up_at = time.monotonic() + FAREWELL_S
        while self._drain.n_running and time.monotonic() < give_up_at:
            # Again and again: what was being planned is submitted in between.
            self._pool.cancel_all()
            await asyncio.sleep(POLL_LOADING_S)

    async def _ended(self) -> None:
        await self._drain.idle()
        while self._leaves and self._server.server_state.connections:
            # Clients that keep a connection open get time to be told of its end.
            await asyncio.sleep(POLL_LEAVING_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)

    def _on_stop(self) -> None:
        # In a signal handler, which runs between any two steps of the loop.
        asyncio.get_running_loop().call_soon_threadsafe(self._ending.set)

    def _on_leave(self) -> None:
        self._leaves = True
        self._ending.set()

    def _on_stdin(self) -> None:
        if os.read(sys.stdin.fileno(), 4096):
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(sys.stdin.fileno())
        self._ending.set()
        # Nobody is left to kill us if draining or freeing the model hangs.
        last_resort = threading.Timer(grace_s(self._order.settings), os._exit, (exits.FAILURE,))
        last_resort.daemon = True
        last_resort.start()


def _build(settings: Settings) -> ServedPool:
    # Only here: tests serve other models with this module, and what runs none reads less.
    if settings.engine == "remote":
        from suture.server import remote

        return remote.build_pool(settings)
    from suture.server import local

    return local.build_pool(settings)


if __name__ == "__main__":
    sys.exit(main(_build))
