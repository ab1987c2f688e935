"""What waits to be served, in turns: of the tenants, and of the users of each. PURE.

Next is the tenant that was served longest ago, of it the user that was served longest ago, and of
theirs what came first. Who was never served goes first, and of two such who has waited longer. So
it is round robin among those that wait, in which nobody wins or loses a turn by having had nothing
to ask for a while.

A turn is one item, whatever serving it costs, which nobody knows before.

  R1  While somebody waits, every other tenant has one turn at most, and so has every other user of
      the same tenant: who comes between two of another's thirty items waits for none of them that
      is not being served yet, unless it was served itself since that other one.
  R2  Items of one user are served in the order in which they came.
  R3  What is taken out without being served is no turn.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

# Names of users come from clients: there may be as many as these think of. Who does not wait and
# was served before so many others is forgotten, and counts as never served.
MAX_REMEMBERED = 1024

T = TypeVar("T", bound=Hashable)
N = TypeVar("N", bound=Hashable)
Name = str | None


class FairQueue(Generic[T]):
    """Items that wait, each once; for one thread at a time.

    Iterating is in the order in which they are served if no others come.
    """

    def __init__(self, max_remembered: int = MAX_REMEMBERED) -> None:
        # Those that wait, in the order in which they began to.
        self._waiting: dict[Name, dict[Name, collections.deque[T]]] = {}
        self._owners: dict[T, tuple[Name, Name]] = {}
        self._tenants = _Turns[Name](max_remembered)
        self._users = _Turns[tuple[Name, Name]](max_remembered)

    def put(self, item: T, tenant: Name = None, user: Name = None) -> None:
        """Have `item` wait behind all others of the user; those without a name are one."""
        assert item not in self._owners
        self._owners[item] = tenant, user
        users = self._waiting.setdefault(tenant, {})
        users.setdefault(user, collections.deque()).append(item)

    def popleft(self) -> T:
        """Take out what is served next, which is a turn of its tenant and user.

        Raises `IndexError` where nothing waits.
        """
        if not self._waiting:
            raise IndexError("nothing waits")
        tenant = min(self._waiting, key=self._tenants.last)
        user = min(self._waiting[tenant], key=lambda name: self._users.last((tenant, name)))
        item = self._waiting[tenant][user][0]
        self._tenants.take(tenant, self._waiting.__contains__)
        self._users.take((tenant, user), self._is_waiting)
        self.remove(item)
        return item

    def remove(self, item: T) -> None:
        """Take `item` out without a turn. Raises `KeyError` where it does not wait."""
        tenant, user = self._owners.pop(item)
        users = self._waiting[tenant]
        users[user].remove(item)
        if not users[user]:
            del users[user]
        if not users:
            del self._waiting[tenant]

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, item: T) -> bool:
        return item in self._owners

    def __iter__(self) -> Iterator[T]:
        tenants = sorted(self._waiting, key=self._tenants.last)
        return iter(_in_turns([self._items_of(tenant) for tenant in tenants]))

    def _items_of(self, tenant: Name) -> list[T]:
        """A tenant's items in the order in which they are served."""
        queues = self._waiting[tenant]
        users = sorted(queues, key=lambda name: self._users.last((tenant, name)))
        return _in_turns([list(queues[user]) for user in users])

    def _is_waiting(self, owner: tuple[Name, Name]) -> bool:
        tenant, user = owner
        return user in self._waiting.get(tenant, ())


class _Turns(Generic[N]):
    """Who had a turn when. Of those that do not wait, the last `max_remembered` are known."""

    def __init__(self, max_remembered: int) -> None:
        self._max_remembered = max_remembered
        # The one that had a turn longest ago first.
        self._last: collections.OrderedDict[N, int] = collections.OrderedDict()
        self._n_taken = 0

    def last(self, name: N) -> int:
        """The number of the latest turn that `name` had; 0 where none is known."""
        return self._last.get(name, 0)

    def take(self, name: N, is_waiting: Callable[[N], bool]) -> None:
        """`name` has a turn. Who waits is not forgotten: it would have another one at once."""
        self._n_taken += 1
        self._last[name] = self._n_taken
        self._last.move_to_end(name)
        n_over = len(self._last) - self._max_remembered
        for other in [*self._last] if n_over > 0 else ():
            if n_over > 0 and not is_waiting(other):
                del self._last[other]
                n_over -= 1


def _in_turns(queues: list[list[T]]) -> list[T]:
    """Everything in them: what is first in each, what is second in each, and so on."""
    placed = [(place, item) for queue in queues for place, item in enumerate(queue)]
    placed.sort(key=lambda one: one[0])  # stable: equal places stay as the queues stand
    return [item for _, item in placed]
