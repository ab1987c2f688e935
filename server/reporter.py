"""How a worker tells its parent of itself (`news.py`)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

from suture.server.news import News
from suture.server.routes.completer import Pool


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
