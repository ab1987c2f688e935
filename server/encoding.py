"""Text to prompt plans, off the event loop and off the engine's thread.

Planning tokenizes, which takes milliseconds for a large window: too long for the event loop that
frames everybody's streams, and the engine's thread should only evaluate.

  alone     one thread plans one request after the other
  batched   several plan at the same time, and hand their texts to one queue

Requests that plan at the same time do so in turns: who waits for tokens lets another go on. So
what plans share is used by one thread at a time either way, and the event loop does not stand in a
crowd before Python's lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Protocol, TypeVar

from suture.healing.boundary import Encode
from suture.server.codec import Encoder
from suture.server.counters import EncodeCounters
from suture.server.encode_queue import MAX_BATCH_BYTES, EncodeQueue, Tokens

T = TypeVar("T")

# Encoded sooner than handed over: some 0.05 ms.
MIN_QUEUED_BYTES = 512


class Encoding(Protocol):
    """Where prompts are planned."""

    @property
    def counters(self) -> EncodeCounters: ...

    async def run(self, work: Callable[[Encode], T], encoder: Encoder) -> T:
        """The result of `work`, which is given the encoder's `encode`, to be called there.

        Cancelling leaves the others alone.
        """
        ...

    def close(self) -> None:
        """Wait for the work under way, which may be reading the vocabulary; drop the rest."""
        ...


def open_encoding(max_texts: int, wait_s: float) -> Encoding:
    """Batched, up to `max_texts` in a batch that waits up to `wait_s`; alone where that is 1."""
    return EncodingThread() if max_texts == 1 else BatchedEncoding(max_texts, wait_s)


class EncodingThread:
    """One worker thread for tokenizing; llama.cpp's vocabulary may be read beside a decode."""

    def __init__(self) -> None:
        self.counters = EncodeCounters()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encoding")

    async def run(self, work: Callable[[Encode], T], encoder: Encoder) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, work, encoder.encode)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class BatchedEncoding:
    """Up to `max_texts` requests that plan in turns, and the queue that encodes for them."""

    def __init__(self, max_texts: int, wait_s: float) -> None:
        self._queue = EncodeQueue(max_texts, wait_s)
        self._turn = threading.Lock()
        self._planners = _started(max_texts)

    @property
    def counters(self) -> EncodeCounters:
        return self._queue.counters

    async def run(self, work: Callable[[Encode], T], encoder: Encoder) -> T:
        planning = _Planning(encoder, self._queue, self._turn)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._planners, planning.run, work)
        finally:
            planning.withdraw()

    def close(self) -> None:
        self._planners.shutdown(wait=False, cancel_futures=True)
        self._queue.close()
        self._planners.shutdown(wait=True)


def _started(n_threads: int) -> ThreadPoolExecutor:
    """An executor all of whose threads run: the event loop would wait for each start of one."""
    executor = ThreadPoolExecutor(n_threads, thread_name_prefix="planner")
    all_run = threading.Barrier(n_threads + 1)
    for _ in range(n_threads):
        executor.submit(all_run.wait)
    all_run.wait()
    return executor


class _Planning:
    """One request's: the thread that has its turn, and the text that it waits for."""

    def __init__(self, encoder: Encoder, queue: EncodeQueue, turn: threading.Lock) -> None:
        self._encoder = encoder
        self._queue = queue
        self._turn = turn
        self._tokens: Tokens | None = None
        self._withdrawn = False

    def run(self, work: Callable[[Encode], T]) -> T:
        with self._queue.planner(), self._turn:
            return work(self._encode)

    def withdraw(self) -> None:
        """Nobody waits for the plan any more: it ends at its next text."""
        self._withdrawn = True
        if self._tokens is not None:
            self._tokens.cancel()

    def _encode(self, piece: bytes) -> Sequence[int]:
        """The tokens of a text; others have their turns meanwhile."""
        if self._withdrawn:
            raise CancelledError
        if len(piece) < MIN_QUEUED_BYTES:
            return self._encoder.encode(piece)
        self._turn.release()
        try:
            # Here: it is the only one, or so long that a batch with it would hold up all others.
            if self._queue.has_one_planner or len(piece) > MAX_BATCH_BYTES:
                return self._encoder.encode(piece)
            return self._queued(piece)
        finally:
            self._turn.acquire()

    def _queued(self, piece: bytes) -> Sequence[int]:
        self._tokens = self._queue.put(piece, self._encoder)
        if self._withdrawn:  # which may not have seen the tokens
            self._tokens.cancel()
        return self._tokens.result()
