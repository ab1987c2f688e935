"""The one thread that loads, warms, decodes and frees, for all models.

llama.cpp computes with OpenMP, whose pool of threads belongs to the thread that calls it, and two
pools on the same cores halve the speed of both. So every model's scheduler is a *member* of one
thread and has turns on it: a turn is a step of its requests, its loading, or its freeing.

W1  Members with work have turns one after the other: nobody waits longer than for one turn of
    each other one. What is to be freed goes before everything else, what is to be loaded among
    those with work.
W2  Spare work is done only while no member has any other, and ends when one gets some.
W3  While one is loaded the others go on and are freed, at each place where loading gives way; they
    get at most as much time as it has had.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Literal, Protocol

from suture.server.logs import without_values

Demand = Literal["free", "load", "work", "spare"]

_log = logging.getLogger("suture.engine")


class Member(Protocol):
    """What has turns on the engine's thread."""

    def demand(self) -> Demand | None:
        """What a turn would be for, None for nothing. Called with `changed` held."""
        ...

    def turn(self) -> None:
        """Do what is demanded; on the engine's thread, `changed` not held."""
        ...

    def end_spare(self) -> None:
        """Have spare work end at once: somebody has other work. Called with `changed` held."""
        ...


class EngineThread:
    """Gives its members turns, from `join` until `leave`.

    `changed` guards the members' own states too, and is notified when a demand comes up.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._members: list[Member] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._load_went_on = 0.0
        self._others_took_s = 0.0

    def join(self, member: Member) -> None:
        """Give a member turns from here on; the thread begins with the first."""
        with self.changed:
            self._members.append(member)
            self.changed.notify_all()
            if not self._thread.is_alive() and not self._is_closed:
                self._thread.start()

    def leave(self, member: Member) -> None:
        """No turns for a member any more."""
        with self.changed:
            if member in self._members:
                self._members.remove(member)
            self.changed.notify_all()

    def has(self, member: Member) -> bool:
        """Whether a member has turns. With `changed` held."""
        return member in self._members

    def end_spare(self) -> None:
        """End the spare work of all members. With `changed` held."""
        for member in self._members:
            member.end_spare()

    def close(self) -> None:
        """End the thread once nobody demands anything, and wait for it."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def is_shared_by_work(self, member: Member) -> bool:
        """Whether others than `member` have requests to go on with. With `changed` held."""
        return any(other is not member and other.demand() == "work" for other in self._members)

    def give_way(self, loading: Member) -> None:
        """Let the others have a turn each, if loading has gone on for as long as their last took.

        Called on this thread, by a turn in which a model is loaded.
        """
        began = time.perf_counter()
        if began - self._load_went_on < self._others_took_s:
            return
        with self.changed:
            others = [one for one in self._members if one is not loading]
            waiting = [one for one in others if one.demand() in ("work", "free")]
        for member in waiting:
            self._take_turn(member)
        self._load_went_on = time.perf_counter()
        self._others_took_s = self._load_went_on - began

    def _work(self) -> None:
        while self._give_turn():
            pass

    def _give_turn(self) -> bool:
        """Wait for a turn and have it taken; False at the end. Holds no member meanwhile."""
        member = self._next()
        if member is None:
            return False
        self._take_turn(member)
        return True

    def _take_turn(self, member: Member) -> None:
        """A member's turn; what it raises is its own failure, and no other member's."""
        try:
            member.turn()
        except Exception as error:
            _log.error("a turn on the engine's thread failed: %s", without_values(error))
            self.leave(member)

    def _next(self) -> Member | None:
        """Whose turn it is; waits for somebody. None at the end."""
        with self.changed:
            while (member := self._first()) is None:
                if self._is_closed:
                    return None
                self.changed.wait()
            if len(self._members) > 1:
                self._members.remove(member)
                self._members.append(member)
            return member

    def _first(self) -> Member | None:
        spare = None
        chosen = None
        for member in self._members:
            demand = member.demand()
            if demand == "free":
                return member
            if demand == "spare":
                spare = spare or member
            elif demand is not None:
                chosen = chosen or member
        return chosen or spare
