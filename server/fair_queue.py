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

import bisect
import collections
import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

# Names of users come from clients: there may be as many as these think of. Who has not waited since
# so many others had stopped to is forgotten, and counts as never served.
MAX_REMEMBERED = 1024

T = TypeVar("T", bound=Hashable)
N = TypeVar("N", bound=Hashable)
Name = str | None


class FairQueue(Generic[T]):
    """Items that wait, each once; for one thread at a time.

    Iterating is in the order in which they are served if no others come.
    """

    def __init__(self, max_remembered: int = MAX_REMEMBERED) -> None:
        self._owners: dict[T, tuple[Name, Name]] = {}
        self._items: dict[tuple[Name, Name], collections.deque[T]] = {}
        self._tenants = _Line[Name]()
        self._users: dict[Name, _Line[Name]] = {}
        self._idle_tenants = _Turns[Name](max_remembered)
        self._idle_users = _Turns[tuple[Name, Name]](max_remembered)
        self._n_turns = 0

    def put(self, item: T, tenant: Name = None, user: Name = None) -> None:
        """Have `item` wait behind all others of the user; those without a name are one."""
        assert item not in self._owners
        self._owners[item] = owner = tenant, user
        if tenant not in self._users:
            self._users[tenant] = _Line()
            self._tenants.enter(tenant, self._idle_tenants.take(tenant))
        if owner not in self._items:
            self._items[owner] = collections.deque()
            self._users[tenant].enter(user, self._idle_users.take(owner))
        self._items[owner].append(item)

    def popleft(self) -> T:
        """Take out what is served next, which is a turn of its tenant and user.

        Raises `IndexError` where nothing waits.
        """
        tenant = self._tenants.first
        users = self._users[tenant]
        user = users.first
        item = self._items[tenant, user][0]
        self._n_turns += 1
        self._tenants.serve(tenant, self._n_turns)
        users.serve(user, self._n_turns)
        self.remove(item)
        return item

    def remove(self, item: T) -> None:
        """Take `item` out without a turn. Raises `KeyError` where it does not wait."""
        owner = tenant, user = self._owners.pop(item)
        self._items[owner].remove(item)
        if not self._items[owner]:
            del self._items[owner]
            self._idle_users.keep(owner, self._users[tenant].leave(user))
        if not self._users[tenant]:
            del self._users[tenant]
            self._idle_tenants.keep(tenant, self._tenants.leave(tenant))

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, item: T) -> bool:
        return item in self._owners

    def __iter__(self) -> Iterator[T]:
        return iter(_in_turns([self._items_of(tenant) for tenant in self._tenants]))

    def _items_of(self, tenant: Name) -> list[T]:
        """A tenant's items in the order in which they are served."""
        return _in_turns([list(self._items[tenant, user]) for user in self._users[tenant]])


class _Line(Generic[N]):
    """Those that wait, in the order of their turns: who was served longest ago first."""

    def __init__(self) -> None:
        # The latest turn, 0 for none, and a number that rises with who begins to wait.
        self._places: dict[N, tuple[int, int]] = {}
        self._order: list[tuple[int, int, N]] = []
        self._numbers = itertools.count()

    @property
    def first(self) -> N:
        return self._order[0][2]

    def enter(self, name: N, last: int) -> None:
        """`name`, whose latest turn was `last`, begins to wait."""
        place = self._places[name] = last, next(self._numbers)
        bisect.insort(self._order, (*place, name))

    def serve(self, name: N, turn: int) -> None:
        """`name` has a turn, and waits on."""
        self.leave(name)
        self.enter(name, turn)

    def leave(self, name: N) -> int:
        """`name` no longer waits; its latest turn."""
        place = self._places.pop(name)
        # No two have one number, so that names are never compared.
        del self._order[bisect.bisect_left(self._order, place, key=lambda one: one[:2])]
        return place[0]

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[N]:
        return (name for _, _, name in self._order)


class _Turns(Generic[N]):
    """The latest turns of those that do not wait; of the last `max_remembered` that did."""

    def __init__(self, max_remembered: int) -> None:
        self._max_remembered = max_remembered
        self._last: collections.OrderedDict[N, int] = collections.OrderedDict()

    def keep(self, name: N, last: int) -> None:
        if last:
            self._last[name] = last
        if len(self._last) > self._max_remembered:
            self._last.popitem(last=False)

    def take(self, name: N) -> int:
        """The latest turn of `name`, which is about to wait; 0 where none is known."""
        return self._last.pop(name, 0)


def _in_turns(queues: list[list[T]]) -> list[T]:
    """Everything in them: what is first in each, what is second in each, and so on."""
    placed = [(place, item) for queue in queues for place, item in enumerate(queue)]
    placed.sort(key=lambda one: one[0])  # stable: equal places stay as the queues stand
    return [item for _, item in placed]
