"""A worker as its parent has it: starts it, tells it what to do, hears of it, ends it.

What runs in it is `worker.py`, which the parent does not import: the worker is started before its
parent could have read half of that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from pydantic import BaseModel

from suture.server.news import News, read_news
from suture.server.settings import Settings

# How long requests have to say so that were ended for lack of time.
FAREWELL_S = 3
# How long a worker then has to close its connections and free its model, before it is killed.
FREEING_S = 3
# -P: what stands in the working directory, an untrusted checkout perhaps, is not imported.
COMMAND = (sys.executable, "-P", "-m", "suture.server.worker")


class Order(BaseModel):
    """What a worker is to do: serve `settings` on the socket `fd`, and tell of it on `news_fd`.

    `follows`: another worker serves there, so take up nothing before the model is loaded.
    `watched`: somebody looks on, so tell the numbers whenever they change.
    """

    fd: int
    news_fd: int
    settings: Settings
    follows: bool = False
    watched: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as its parent has it (`supervisor.Worker`).

    `output` is what it prints where that is for the parent to show, and to close; None elsewhere.
    """

    process: subprocess.Popen[bytes]
    pipe: BinaryIO
    grace_s: float
    output: BinaryIO | None = None

    @property
    def news(self) -> Iterator[News]:
        """What it tells of itself; ends when it does."""
        return read_news(self.pipe)

    def stop(self) -> None:
        """Have it end: what runs goes on for a while, what is new is refused."""
        self.process.send_signal(signal.SIGTERM)

    def leave(self) -> None:
        """Have it end; another one serves what is new."""
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int:
        """Its exit status, once it has ended; below 0 the signal that it died of."""
        status = self.process.wait()
        self.pipe.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return status


def start_worker(
    listener: socket.socket,
    settings: Settings,
    command: Sequence[str] = COMMAND,
    follows: bool = False,
    watched: bool = False,
) -> Worker:
    """Start a worker on `listener`. It is out of the terminal's reach: its parent stops it.

    What a watched one prints is for the parent to show.
    """
    fd = listener.fileno()
    news, news_fd = os.pipe()
    output, output_fd = os.pipe() if watched else (None, None)
    order = Order(fd=fd, news_fd=news_fd, settings=settings, follows=follows, watched=watched)
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=output_fd,
        stderr=output_fd,
        pass_fds=(fd, news_fd),
        start_new_session=True,
        bufsize=0,
    )
    for ours in (news_fd, output_fd):
        if ours is not None:
            os.close(ours)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once; waiting for it tells of what
        process.stdin.write(order.model_dump_json().encode() + b"\n")
    printed = None if output is None else open(output, "rb")
    return Worker(process, open(news, "rb"), grace_s(settings), printed)


def grace_s(settings: Settings) -> float:
    """How long a worker may take to end."""
    return settings.drain_s + FAREWELL_S + FREEING_S
