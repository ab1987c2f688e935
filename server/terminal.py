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
            self._show(describe(news))

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

    def _show(self, text: str) -> None:
        shown = Text("".join(char if char.isprintable() else "?" for char in text))
        # One cell less: in the last one, some terminals begin a new line.
        shown.truncate(self._columns() - 1, overflow="ellipsis")
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


def describe(news: News) -> str:
    """How a worker is doing, for people, in one line."""
    if news.state == "loading":
        return f"loading {news.model}, {news.loading_s} s"
    parts = [f"{news.model} on {news.device}", news.url, f"{news.running} running"]
    if news.waiting:
        parts.append(f"{news.waiting} waiting")
    if news.tokens_per_s:
        parts.append(f"{news.tokens_per_s} tokens/s")
    return ", ".join([*parts, f"{news.served} served"]) + "; Ctrl-C stops"


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
