"""What a source of a model file is, and what is shared by all kinds of them.

A source is one place that has the file: a repository on a hub, or packages on a package index.
`download` tries an entry's sources in order.

1. A source raises `SourceError` with a one-line reason, and no other error of its own libraries.
2. What a source leaves in its folder after any failure is safe to resume from.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from suture.server.models.progress import Progress


class SourceError(Exception):
    """This source does not give the file; ``str(error)`` is the reason, in one line."""


class Stopped(Exception):
    """The transfer was told to stop; raised in a worker thread, never seen by a caller."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the file must be; None is not known."""

    n_bytes: int | None
    sha256: str | None


class Source(Protocol):
    """One place that has the file."""

    @property
    def spec(self) -> str:
        """The source as models.txt writes it."""
        ...

    def expected(self, listed: Expected) -> Expected:
        """`listed`, completed and checked against what the source says about the file."""
        ...

    def space(self, n_bytes: int) -> int:
        """Bytes of disk that fetching a file of `n_bytes` takes at most, the file included."""
        ...

    def fetch(self, folder: Path, expected: Expected, meter: Meter) -> Path:
        """The fetched file inside `folder`, unverified; resumes from what `folder` holds."""
        ...


class Meter:
    """Counts bytes from several threads into one `Progress`, and carries the word to stop."""

    def __init__(self, progress: Progress, total_bytes: int | None) -> None:
        self._progress = progress
        self._left = total_bytes
        self._lock = threading.Lock()
        self._stop = threading.Event()
        progress.start(total_bytes)

    def advance(self, n_bytes: int) -> None:
        """Count `n_bytes` more; what goes over the total is dropped. Raises `Stopped`."""
        if self._stop.is_set():
            raise Stopped
        with self._lock:
            if self._left is not None:
                n_bytes = min(n_bytes, self._left)
                self._left -= n_bytes
            if n_bytes > 0:
                self._progress.advance(n_bytes)

    def stop(self) -> None:
        """Make every later `advance` raise `Stopped`."""
        self._stop.set()


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its type's name where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .:") if lines else type(error).__name__
