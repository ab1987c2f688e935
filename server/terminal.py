"""The last line of a terminal, which says how the server is doing and is rewritten in place.

What is said meanwhile, by us or by a worker, stands above it: a worker's output comes through here.
Where standard output or error is no terminal, or one that cannot go back in a line, there is no
such line, and workers print for themselves (`supervisor.Plain`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import BinaryIO, TextIO

from rich.cells import cell_len
from rich.text import Text

from suture.server.news import News
from suture.server.settings import has_dumb_terminal

_CLEAR = "\r\x1b[K"
_FALLBACK_COLUMNS = 80
# How long what a worker printed last is waited for.
_LAST_LINES_S = 1.0


class StatusLine:
    """A display (`supervisor.Display`) on the terminal that `stream` is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._line = ""
        self._is_stopping = False
        self._forwarding: list[threading.Thread] = []

    def say(self, line: str) -> None:
        with self._lock:
            self._write(f"{_CLEAR}{line}\n{self._line}")

    def show(self, news: News) -> None:
        if not self._is_stopping:
            self._show(*describe(news))

    def show_stopping(self) -> None:
        self._is_stopping = True
        self._show("stopping as soon as what runs has ended; Ctrl-C again does not wait")

    def forward(self, output: BinaryIO) -> None:
        """Say what comes out of `output` until its end, and close it."""
        thread = threading.Thread(target=self._forward, args=(output,), daemon=True)
        self._forwarding.append(thread)
        thread.start()

    def close(self) -> None:
        """Take the line away; what follows stands where it was."""
        for thread in self._forwarding:
            thread.join(_LAST_LINES_S)
        self._show("")

    def _forward(self, output: BinaryIO) -> None:
        with output:
            for line in output:
                self.say(line.decode("utf-8", "replace").rstrip("\r\n"))

    def _show(self, *forms: str) -> None:
        """Show the first of some forms of a line that there is room for; of the last its head."""
        # One cell less: in the last one, some terminals begin a new line.
        room = self._columns() - 1
        texts = ["".join(c if c.isprintable() else "?" for c in form) for form in forms]
        shown = Text(next((text for text in texts if cell_len(text) <= room), texts[-1]))
        shown.truncate(room, overflow="ellipsis")
        with self._lock:
            self._line = shown.plain
            self._write(_CLEAR + self._line)

    def _columns(self) -> int:
        with contextlib.suppress(OSError):
            # A terminal that was never told its size says 0.
            return os.get_terminal_size(self._stream.fileno()).columns or _FALLBACK_COLUMNS
        return _FALLBACK_COLUMNS

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone; the server goes on
            self._stream.write(text)
            self._stream.flush()


def describe(news: News) -> list[str]:
    """How a worker is doing, for people, in one line: all of it, and ever less.

    What changes from moment to moment goes last. The URL was said when it began to listen.
    """
    if news.state == "loading":
        return [f"loading {news.model}, {news.loading_s} s"]
    counts = [f"{news.running} running"]
    if news.waiting:
        counts.append(f"{news.waiting} waiting")
    if news.tokens_per_s:
        counts.append(f"{news.tokens_per_s} tokens/s")
    where = f"{news.model} on {news.device}"
    served = f"{news.served} served"
    forms = (
        [where, news.url, *counts, f"{served}; Ctrl-C stops"],
        [where, news.url, *counts, served],
        [where, news.url, *counts],
        [news.model, news.url, *counts],
        [news.model, *counts],
        [*counts, news.model],
    )
    return [", ".join(form) for form in forms]


def takes_a_status_line() -> bool:
    """Whether what we print goes to a terminal that can rewrite a line."""
    return sys.stdout.isatty() and sys.stderr.isatty() and not has_dumb_terminal()


def has_terminal() -> bool:
    """Whether this process belongs to a terminal, whose end is then told to it by SIGHUP."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
