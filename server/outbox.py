"""From the engine's thread to the event loop: one wake-up for all that a step has said.

A step may draw a token for every stream. Waking the loop for each of them costs more than framing
them does, and a loop that frames some hundreds at once answers nothing else meanwhile. So what
comes while the loop has not looked yet waits with what is there, and the loop takes no more than
`OUTPUT_CHUNK` a turn.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import threading
from typing import Generic, Protocol, TypeVar

from suture.server.logs import without_values

_log = logging.getLogger("suture.server")

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

OUTPUT_CHUNK = 128


class Inbox(Protocol[T_contra]):
    """What an item is put into; an `asyncio.Queue` is one."""

    def put_nowait(self, item: T_contra, /) -> None: ...


class Outbox(Generic[T]):
    """Puts items into inboxes, on the event loop that it is made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: collections.deque[tuple[Inbox[T], T]] = collections.deque()
        self._lock = threading.Lock()
        self._is_awake = False

    def put(self, inbox: Inbox[T], item: T) -> None:
        """Have the loop put `item` into `inbox`, in the order of the calls. From any thread."""
        with self._lock:
            self._items.append((inbox, item))
            if self._is_awake:
                return
            self._is_awake = True
        if _is_running(self._loop):
            # Nobody has to be woken, which is two system calls.
            self._loop.call_soon(self._deliver)
            return
        # A loop that has been closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        for _ in range(OUTPUT_CHUNK):
            with self._lock:
                if not self._items:
                    self._is_awake = False
                    return
                inbox, item = self._items.popleft()
            try:
                inbox.put_nowait(item)
            except Exception as error:
                # One that cannot be told must not stop the others.
                _log.error("an answer could not be handed over: %s", without_values(error))
        self._loop.call_soon(self._deliver)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of the loop, and within it."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
