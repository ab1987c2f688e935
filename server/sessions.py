"""Which request is the newest of a typing session: it supersedes those before it."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Session(Generic[T]):
    seq: int
    before: int  # the number that `seq` replaced
    running: T | None


class Sessions(Generic[T]):
    """The newest sequence number of each session, and what runs for it.

    The `capacity` most recently used sessions are remembered; one that falls out starts anew. A
    request without a session or a number supersedes nobody and is never late.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._sessions: collections.OrderedDict[str, _Session[T]] = collections.OrderedDict()

    def arrive(self, session: str | None, seq: int | None) -> bool:
        """Note a request that came; False if one with its number or a higher one came before."""
        if session is None or seq is None:
            return True
        known = self._sessions.pop(session, None) or _Session[T](seq - 1, seq - 1, None)
        self._sessions[session] = known
        while len(self._sessions) > self._capacity:
            self._sessions.popitem(last=False)
        if seq <= known.seq:
            return False
        known.before, known.seq = known.seq, seq
        return True

    def retract(self, session: str | None, seq: int | None) -> None:
        """Take back a request that was refused before it ran: the same number may come again."""
        known = self._find(session, seq)
        if known is not None and known.seq == seq:
            known.seq, known.running = known.before, None

    def is_newest(self, session: str | None, seq: int | None) -> bool:
        """Whether no request has come after the one that arrived with this number. Any thread."""
        known = self._find(session, seq)
        return known is None or known.seq == seq

    def take_running(self, session: str | None, seq: int | None) -> T | None:
        """What runs for the session, which is no longer the session's afterwards."""
        known = self._find(session, seq)
        if known is None:
            return None
        running, known.running = known.running, None
        return running

    def attach(self, session: str | None, seq: int | None, running: T) -> bool:
        """Note what runs for a request that arrived; False if a newer one came meanwhile."""
        if session is None or seq is None:
            return True
        known = self._sessions.get(session)
        if known is None or known.seq != seq:
            return False
        known.running = running
        return True

    def leave(self, session: str | None, running: T) -> None:
        """Forget what ran, once it has ended; the number stays."""
        known = None if session is None else self._sessions.get(session)
        if known is not None and known.running is running:
            known.running = None

    def _find(self, session: str | None, seq: int | None) -> _Session[T] | None:
        return None if session is None or seq is None else self._sessions.get(session)
