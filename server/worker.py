"""The process that holds the model: serves HTTP on a socket that its parent listens on.

The parent writes one line of JSON to standard input, the socket's descriptor and the settings,
and keeps it open: its end is the parent's death, and ours. Status 2: the model or the settings
cannot be served, starting again would not help. 3: the engine failed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import uvicorn

from suture.server.app import create_app
from suture.server.commands import exits
from suture.server.connections import http_config, raise_descriptor_limit
from suture.server.errors import SetupError, SutureError
from suture.server.logs import log_loop_error, log_to_stderr
from suture.server.routes.completer import ServedPool
from suture.server.settings import Settings

POLL_LOADING_S = 0.02
POLL_READY_S = 0.5
# How long open requests may go on after a request to stop.
DRAIN_S = 4
# How long they then have to say so.
FAREWELL_S = 3
LAST_RESORT_S = 10.0
# -P: what stands in the working directory, an untrusted checkout perhaps, is not imported.
COMMAND = (sys.executable, "-P", "-m", "suture.server.worker")


def start_worker(
    listener: socket.socket, settings: Settings, command: Sequence[str] = COMMAND
) -> subprocess.Popen[bytes]:
    """Start a worker on `listener`. It is out of the terminal's reach: its parent stops it."""
    fd = listener.fileno()
    worker = subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=(fd,), start_new_session=True, bufsize=0
    )
    order = {"fd": fd, "settings": settings.model_dump(mode="json")}
    assert worker.stdin is not None
    try:
        worker.stdin.write(json.dumps(order).encode() + b"\n")
    except BrokenPipeError:
        pass  # it died at once; waiting for it tells of what
    return worker


def main(build: Callable[[Settings], ServedPool]) -> int:
    """Serve what `build` makes until told to stop; returns the exit status."""
    faulthandler.enable()
    log_to_stderr()
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn drains, then raises the signal once more, which must not keep us from closing.
        signal.signal(number, lambda *_: None)
    order = json.loads(sys.stdin.buffer.readline() or b"null")
    if order is None:
        return exits.OK
    settings = Settings.model_validate(order["settings"])
    raise_descriptor_limit()
    try:
        pool = build(settings)
        with socket.socket(fileno=order["fd"]) as listener:
            worker = _Worker(pool, settings, listener)
            pool.start()
            # What is imported stays: no collection need look at it, and hold everybody up.
            gc.freeze()
            try:
                asyncio.run(worker.run())
            finally:
                pool.close()
    except SutureError as error:
        print(f"suture: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return exits.SETUP if isinstance(error, SetupError) else exits.FAILURE
    return exits.OK


class _Worker:
    def __init__(self, pool: ServedPool, settings: Settings, listener: socket.socket) -> None:
        self._pool = pool
        self._settings = settings
        self._listener = listener
        # Read now: uvicorn closes the listener as soon as it is told to stop.
        self._url = settings.url_at(*listener.getsockname()[:2])
        config = http_config(create_app(pool, settings), settings, DRAIN_S + FAREWELL_S)
        self._server = uvicorn.Server(config)

    async def run(self) -> None:
        """Serve until stopped; raises the `SutureError` that the pool ended with."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log_loop_error)
        loop.add_reader(sys.stdin.fileno(), self._on_stdin)
        watching = asyncio.create_task(self._watch())
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            watching.cancel()
            (failure,) = await asyncio.gather(watching, return_exceptions=True)
        if isinstance(failure, Exception):
            raise failure

    async def _watch(self) -> None:
        """Say when requests are served; stop the server when its engine has failed."""
        try:
            while not (self._server.started and self._pool.state() == "ready"):
                await asyncio.sleep(POLL_LOADING_S)
            self._announce()
            while not self._server.should_exit:
                self._pool.state()
                self._pool.tend()
                await asyncio.sleep(POLL_READY_S)
            await asyncio.sleep(DRAIN_S)
            # What still runs ends with the text so far, in its own dialect.
            self._pool.cancel_all()
        except SutureError:
            self._server.should_exit = True
            raise

    def _announce(self) -> None:
        print(f"listening on {self._url}", flush=True)

    def _on_stdin(self) -> None:
        if os.read(sys.stdin.fileno(), 4096):
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(sys.stdin.fileno())
        self._server.should_exit = True
        # Nobody is left to kill us if draining or freeing the model hangs.
        last_resort = threading.Timer(LAST_RESORT_S, os._exit, (exits.FAILURE,))
        last_resort.daemon = True
        last_resort.start()


if __name__ == "__main__":
    # Only here: importing this module must not load llama.cpp into the parent.
    from suture.server.local import build_pool

    sys.exit(main(build_pool))
