"""How far a download is, told to whoever waits for it.

`bar` for a terminal, `PlainLines` for a log or a pipe, `Silent` for tests and libraries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TextIO

from rich import progress as rich_progress
from rich.console import Console


class Progress(Protocol):
    """Told by one thread at a time; `start` may come again when another source is tried."""

    def start(self, total_bytes: int | None) -> None:
        """Begin at 0 of `total_bytes`; None is not known."""
        ...

    def advance(self, n_bytes: int) -> None:
        """`n_bytes` more have arrived."""
        ...

    def message(self, text: str) -> None:
        """Say one line."""
        ...

    def finish(self) -> None:
        """The end, good or bad; a second call does nothing."""
        ...


class Silent:
    """Says nothing."""

    def start(self, total_bytes: int | None) -> None: ...

    def advance(self, n_bytes: int) -> None: ...

    def message(self, text: str) -> None: ...

    def finish(self) -> None: ...


class PlainLines:
    """A line at the start and at the end, and in between at most one every `every_s` seconds."""

    def __init__(
        self, stream: TextIO, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._every_s = every_s
        self._clock = clock
        self._total: int | None = None
        self._done = 0
        self._said: int | None = None
        self._said_at = 0.0

    def start(self, total_bytes: int | None) -> None:
        self._total, self._done, self._said = total_bytes, 0, None
        self._said_at = self._clock()

    def advance(self, n_bytes: int) -> None:
        self._done += n_bytes
        if self._clock() - self._said_at >= self._every_s:
            self._say_amount()

    def message(self, text: str) -> None:
        self._write(text)

    def finish(self) -> None:
        if self._done and self._said != self._done:
            self._say_amount()

    def _say_amount(self) -> None:
        self._said, self._said_at = self._done, self._clock()
        if self._total:
            share = f" of {megabytes(self._total)} ({100 * self._done // self._total} %)"
        else:
            share = ""
        self._write(megabytes(self._done) + share)

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class Bar:
    """A bar with amount, speed and time left; messages stand above it."""

    def __init__(self, stream: TextIO) -> None:
        self._rich = rich_progress.Progress(
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._task: rich_progress.TaskID | None = None

    def start(self, total_bytes: int | None) -> None:
        if self._task is not None:
            self._rich.remove_task(self._task)
        self._task = self._rich.add_task("", total=total_bytes)
        self._rich.start()

    def advance(self, n_bytes: int) -> None:
        if self._task is not None:
            self._rich.advance(self._task, n_bytes)

    def message(self, text: str) -> None:
        self._rich.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def finish(self) -> None:
        self._rich.stop()


def progress_on(stream: TextIO) -> Progress:
    """A bar where `stream` is a terminal, else plain lines."""
    return Bar(stream) if stream.isatty() else PlainLines(stream)


def megabytes(n_bytes: int) -> str:
    """`n_bytes` for people: ``98.4 MB``."""
    return f"{n_bytes / 1e6:.1f} MB"
