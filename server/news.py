"""What a worker tells its parent of itself, one line of JSON at a time, over a pipe.

The parent has the terminal, the service manager and the other workers; the worker has the model and
the numbers. The end of the pipe is the end of the worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import BinaryIO, Literal

from suture.server.routes.completer import Pool


@dataclass(frozen=True, slots=True)
class News:
    """How a worker is doing.

    `tokens_per_s` is of one text while it is generated, in the requests that ended last; 0 where
    none has. `loading_s` are whole seconds, 0 once it is ready.
    """

    state: Literal["loading", "ready"]
    model: str
    device: str
    url: str
    loading_s: int = 0
    running: int = 0
    waiting: int = 0
    served: int = 0
    tokens_per_s: float = 0.0


class Reporter:
    """Writes to the pipe `fd` what is new about `pool`, which is reached at `url`."""

    def __init__(self, fd: int, pool: Pool, url: str) -> None:
        # Where the parent does not read, stopped at its terminal say, news get lost and we go on.
        os.set_blocking(fd, False)
        self._fd = fd
        self._pool = pool
        self._url = url
        self._last: News | None = None
        self._generated = 0, 0.0

    def tell_loading(self, seconds: float) -> None:
        """Tell that the model is not there yet."""
        model = self._pool.models[0].info
        self._tell(News("loading", model.name, model.device, self._url, int(seconds)))

    def tell_ready(self) -> None:
        """Tell the numbers, if they are others than were told last."""
        model, measured = self._pool.models[0].info, self._pool.measured()
        counters = measured.counters
        self._tell(
            News(
                state="ready",
                model=model.name,
                device=model.device,
                url=self._url,
                running=measured.running,
                waiting=measured.waiting + measured.preparing,
                served=counters.finishes.total() + measured.requests.continued,
                tokens_per_s=self._speed(counters.generated_tokens, counters.predicted_seconds),
            )
        )

    def _speed(self, n_tokens: int, seconds: float) -> float:
        n_before, seconds_before = self._generated
        if n_tokens > n_before and seconds > seconds_before:
            self._generated = n_tokens, seconds
            return round((n_tokens - n_before) / (seconds - seconds_before), 1)
        return 0.0 if self._last is None else self._last.tokens_per_s

    def _tell(self, news: News) -> None:
        if news == self._last:
            return
        self._last = news
        try:
            os.write(self._fd, json.dumps(asdict(news)).encode() + b"\n")
        except (BlockingIOError, BrokenPipeError):
            pass  # the parent is busy, or gone: standard input tells of that


def read_news(pipe: BinaryIO) -> Iterator[News]:
    """The news as they come, until the worker ends."""
    for line in pipe:
        yield News(**json.loads(line))
