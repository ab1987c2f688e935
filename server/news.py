"""What a worker tells its parent of itself, one line of JSON at a time, over a pipe.

The parent has the terminal, the service manager and the other workers; the worker has the model and
the numbers. The end of the pipe is the end of the worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal


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


def read_news(pipe: BinaryIO) -> Iterator[News]:
    """The news as they come, until the worker ends."""
    for line in pipe:
        yield News(**json.loads(line))
