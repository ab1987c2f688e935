"""Text to prompt plans, off the event loop and off the engine's thread.

Planning tokenizes, which takes milliseconds for a large window: too long for the event loop that
frames everybody's streams, and the engine's thread should only evaluate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class EncodingThread:
    """One worker thread for tokenizing; llama.cpp's vocabulary may be read beside a decode."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoding")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, done on the encoding thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for the work under way, which may be reading the vocabulary; drop the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)
