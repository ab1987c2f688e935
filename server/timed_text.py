"""How long it takes to make text of tokens, measured around any text stream."""

from __future__ import annotations

import time

from suture.server.counters import Counters
from suture.server.decoding.text_stream import TextStream


class TimedText:
    """A text stream that adds the seconds of `feed` to the counters of the engine's thread."""

    __slots__ = ("_counters", "_stream")

    def __init__(self, stream: TextStream, counters: Counters) -> None:
        self._stream = stream
        self._counters = counters

    @property
    def held_steps(self) -> int:
        return self._stream.held_steps

    @property
    def held_max_bytes(self) -> int:
        return self._stream.held_max_bytes

    @property
    def held_chars(self) -> int:
        return self._stream.held_chars

    @property
    def stopped(self) -> bool:
        return self._stream.stopped

    @property
    def stop_match(self) -> str | None:
        return self._stream.stop_match

    def feed(self, token_id: int) -> str:
        started = time.perf_counter()
        text = self._stream.feed(token_id)
        self._counters.detokenize_seconds += time.perf_counter() - started
        return text

    def flush(self) -> str:
        # Not timed: it may be another thread that ends what waits.
        return self._stream.flush()
