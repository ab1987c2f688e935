"""What a service manager gives us and is told by us, as systemd has it (sd_listen_fds, sd_notify).

With a socket unit it listens before we are started, so a client that comes first waits and is
served; a service unit of `Type=notify` counts as started once the model is loaded.
"""

from __future__ import annotations

import contextlib
import socket

from suture.server.errors import SetupError
from suture.server.news import News
from suture.server.supervisor import Display

FIRST_FD = 3


def inherited_listener(n_sockets: int) -> socket.socket | None:
    """The socket that we were started with, of `n_sockets`; None without one.

    Raises `SetupError` where it is none that HTTP can be served on.
    """
    if n_sockets == 0:
        return None
    if n_sockets > 1:
        raise SetupError(f"LISTEN_FDS is {n_sockets}: one socket is served, not several")
    try:
        listener = socket.socket(fileno=FIRST_FD)
        listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise SetupError(f"LISTEN_FDS: descriptor {FIRST_FD}: {error.strerror}") from None
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or not listens:
        listener.detach()
        raise SetupError("LISTEN_FDS: expected a TCP socket that listens (ListenStream=PORT)")
    listener.set_inheritable(False)
    return listener


class Notifying:
    """A display (`supervisor.Display`) whose service manager is told at `address`, too."""

    def __init__(self, display: Display, address: str) -> None:
        self._display = display
        # A name that begins with @ stands for one in the abstract namespace.
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def say(self, line: str) -> None:
        self._display.say(line)

    def show(self, news: News) -> None:
        self._display.show(news)
        if news.state == "ready":
            self._tell(f"READY=1\nSTATUS={news.model} on {news.device}, {news.url}")

    def show_stopping(self) -> None:
        self._display.show_stopping()
        self._tell("STOPPING=1\nSTATUS=ending what runs")

    def _tell(self, message: str) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        ):
            manager.connect(self._address)
            manager.send(message.encode())
