"""R1 to R3: who is served next, against a search through all that was served before."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from suture.server.fair_queue import FairQueue, Name

TENANTS = [None, "blue", "red"]
USERS = [None, "ann", "bob", "eve"]


@dataclass
class Oracle:
    """A list of what waits and a list of who was served, both searched from end to end.

    `since` are tenants, `(tenant,)`, and users, `(tenant, user)`, in the order in which they began
    to wait.
    """

    waiting: list[tuple[int, Name, Name]] = field(default_factory=list)
    served: list[tuple[Name, Name]] = field(default_factory=list)
    since: list[tuple[Name, ...]] = field(default_factory=list)

    def put(self, item: int, tenant: Name, user: Name) -> None:
        self.waiting.append((item, tenant, user))
        self.since += [one for one in ((tenant,), (tenant, user)) if one not in self.since]

    def pop(self) -> int:
        [tenant] = min({(t,) for _, t, _ in self.waiting}, key=self._rank)
        owner = min({(t, u) for _, t, u in self.waiting if t == tenant}, key=self._rank)
        item = next(item for item, *other in self.waiting if tuple(other) == owner)
        self.served.append(owner)
        self.remove(item)
        return item

    def remove(self, item: int) -> None:
        self.waiting = [one for one in self.waiting if one[0] != item]
        left: set[tuple[Name, ...]] = {(t,) for _, t, _ in self.waiting}
        left |= {(t, u) for _, t, u in self.waiting}
        self.since = [one for one in self.since if one in left]

    def order(self) -> list[int]:
        copy = Oracle([*self.waiting], [*self.served], [*self.since])
        return [copy.pop() for _ in self.waiting]

    def _rank(self, owner: tuple[Name, ...]) -> tuple[int, int]:
        """When it was served last, and since when it waits."""
        turns = [n for n, one in enumerate(self.served) if one[: len(owner)] == owner]
        return max(turns, default=-1), self.since.index(owner)


class Queues(RuleBasedStateMachine):
    """The queue and its oracle, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue()
        self.oracle = Oracle()
        self.n_put = 0

    @rule(tenant=st.sampled_from(TENANTS), user=st.sampled_from(USERS), n=st.integers(1, 4))
    def put(self, tenant: Name, user: Name, n: int) -> None:
        for _ in range(n):
            self.queue.put(self.n_put, tenant, user)
            self.oracle.put(self.n_put, tenant, user)
            self.n_put += 1

    @precondition(lambda self: self.oracle.waiting)
    @rule()
    def pop(self) -> None:
        assert self.queue.popleft() == self.oracle.pop()

    @precondition(lambda self: self.oracle.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        item, _, _ = data.draw(st.sampled_from(self.oracle.waiting))
        self.queue.remove(item)
        self.oracle.remove(item)
        assert item not in self.queue

    @invariant()
    def both_have_the_same(self) -> None:
        assert [*self.queue] == self.oracle.order()
        assert len(self.queue) == len(self.oracle.waiting)
        assert all(item in self.queue for item, _, _ in self.oracle.waiting)


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

owners = st.lists(
    st.tuples(st.sampled_from(TENANTS), st.sampled_from(USERS)), min_size=1, max_size=40
)


@given(owners)
def test_r1_nobody_has_two_turns_while_another_waits(asked: list[tuple[Name, Name]]) -> None:
    queue: FairQueue[int] = FairQueue()
    for item, (tenant, user) in enumerate(asked):
        queue.put(item, tenant, user)
    left = collections.Counter(asked)
    turns: list[tuple[Name, Name]] = []
    while left:
        turns.append(asked[queue.popleft()])
        left -= collections.Counter([turns[-1]])
        waiting_tenants = {tenant for tenant, _ in left}
        for tenant in waiting_tenants:
            since = _since_last(tenant, [t for t, _ in turns])
            assert max(collections.Counter(since).values(), default=0) <= 1
        for tenant, user in left:
            since = _since_last(user, [u for t, u in turns if t == tenant])
            assert max(collections.Counter(since).values(), default=0) <= 1


def _since_last(name: Name, turns: list[Name]) -> list[Name]:
    """The turns of others since the last one of `name`."""
    at = max((n for n, other in enumerate(turns) if other == name), default=-1)
    return turns[at + 1 :]


@given(owners)
def test_r2_what_one_user_asks_is_served_in_its_order(asked: list[tuple[Name, Name]]) -> None:
    queue: FairQueue[int] = FairQueue()
    for item, (tenant, user) in enumerate(asked):
        queue.put(item, tenant, user)
    served = [queue.popleft() for _ in asked]
    for owner in set(asked):
        mine = [item for item in served if asked[item] == owner]
        assert mine == sorted(mine)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("blue", "ann"), ("red", "ann")),
        (("blue", "ann"), ("blue", "bob")),
        ((None, None), (None, "bob")),
    ],
)
def test_r1_who_asks_thirty_times_delays_another_by_none(
    one: tuple[Name, Name], other: tuple[Name, Name]
) -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(30):
        queue.put(f"one {n}", *one)
    assert queue.popleft() == "one 0"
    queue.put("other", *other)
    assert queue.popleft() == "other"
    # And by one, who was served since.
    queue.put("another", *other)
    assert [queue.popleft(), queue.popleft()] == ["one 1", "another"]


def test_r1_a_tenant_with_many_users_has_the_turns_of_one_tenant() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(10):
        queue.put(f"blue {n}", "blue", f"user {n}")
    for n in range(5):
        queue.put(f"red {n}", "red", "ann")
    served = [queue.popleft().split()[0] for _ in range(10)]
    assert served == ["blue", "red"] * 5


def test_r3_what_is_taken_out_is_no_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("leaves", "blue")
    queue.put("stays", "red")
    queue.remove("leaves")
    queue.put("blue", "blue")
    # Neither was served; red has waited longer.
    assert [*queue] == ["stays", "blue"]
    with pytest.raises(KeyError):
        queue.remove("leaves")


@given(st.integers(1, 4), st.integers(5, 12))
def test_r1_those_that_wait_are_never_forgotten(max_remembered: int, n_users: int) -> None:
    queue: FairQueue[tuple[int, int]] = FairQueue(max_remembered)
    for turn in range(3):
        for user in range(n_users):
            queue.put((turn, user), None, str(user))
    served = [queue.popleft() for _ in range(3 * n_users)]
    assert served == [(turn, user) for turn in range(3) for user in range(n_users)]


def test_who_left_long_ago_is_forgotten() -> None:
    queue: FairQueue[int] = FairQueue(max_remembered=8)
    for n in range(1000):
        queue.put(n, f"tenant {n}", f"user {n}")
        assert queue.popleft() == n
    assert len(queue._idle_tenants._last) == len(queue._idle_users._last) == 8
    assert not (queue._items or queue._users or queue._owners)


def test_nothing_is_served_where_nothing_waits() -> None:
    queue: FairQueue[int] = FairQueue()
    assert (len(queue), [*queue], 1 in queue) == (0, [], False)
    with pytest.raises(IndexError):
        queue.popleft()
