"""A progress that remembers what it was told."""

from __future__ import annotations

from collections.abc import Callable


class RecordingProgress:
    """`n_bytes` counts since the last start; `on_message` sees each message as it comes."""

    def __init__(self, on_message: Callable[[str], None] = lambda text: None) -> None:
        self.total: int | None = None
        self.n_bytes = 0
        self.messages: list[str] = []
        self.finished = False
        self._on_message = on_message

    def start(self, total_bytes: int | None) -> None:
        self.total, self.n_bytes = total_bytes, 0

    def advance(self, n_bytes: int) -> None:
        assert n_bytes > 0
        self.n_bytes += n_bytes

    def message(self, text: str) -> None:
        self.messages.append(text)
        self._on_message(text)

    def finish(self) -> None:
        self.finished = True
