"""Which replica a request goes to. PURE but for what a policy remembers.

The router sees who asks and in which file, how many requests each replica has open, and, of a
prompt that is text, its beginning. Only the oracle looks into the caches.

`Rendezvous` is what our front does with a plain list of backends: its keys, orders and bound are
imported from there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from harness.fleet.kv_cache import Block
from harness.fleet.replica import Job, Replica
from suture.server.engine.remote.affinity import affinity_key, rendezvous
from suture.server.engine.remote.fleet import FREE_LOAD, SPILL

# As vllm-router's documentation has them: beyond both thresholds load goes before the cache; a
# prompt of which less than the share is known goes where least was sent.
CACHE_SHARE, ABSOLUTE, RELATIVE = 0.3, 64, 1.5


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the router sees it. `text` names its prompt's blocks; a prompt that is sent as
    token ids has none."""

    user: int
    file: Hashable
    job: Job
    text: Sequence[Block] = ()


class Policy(Protocol):
    def choose(self, asked: Asked, replicas: Sequence[Replica]) -> Replica: ...


class RoundRobin:
    def __init__(self) -> None:
        self._n = 0

    def choose(self, asked: Asked, replicas: Sequence[Replica]) -> Replica:
        self._n += 1
        return replicas[(self._n - 1) % len(replicas)]


@dataclass(frozen=True, slots=True)
class Random:
    rng: random.Random

    def choose(self, asked: Asked, replicas: Sequence[Replica]) -> Replica:
        return self.rng.choice(replicas)


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """The one of two, drawn at random, that has less open."""

    rng: random.Random

    def choose(self, asked: Asked, replicas: Sequence[Replica]) -> Replica:
        drawn = self.rng.sample(replicas, min(2, len(replicas)))
        return min(drawn, key=lambda one: one.n_open)


def by_user(asked: Asked) -> str:
    return affinity_key("", str(asked.user), "")


def by_file(asked: Asked) -> str:
    return affinity_key("", str(asked.user), str(asked.file))


@dataclass(frozen=True, slots=True)
class Bound:
    """How many requests a replica may have while another has less: `spill` times what each would
    have if all had the same, and no less than `free_load`. As our front has it."""

    spill: float = SPILL
    free_load: int = FREE_LOAD

    def of(self, replicas: Sequence[Replica]) -> float:
        n_open = sum(one.n_open for one in replicas) + 1
        return max(self.free_load, math.ceil(self.spill * n_open / len(replicas)))


class Rendezvous:
    """Each key has its own order of replicas, and goes to the first, or to the first that is below
    the bound."""

    def __init__(self, key_of: Callable[[Asked], str], bound: Bound | None = None) -> None:
        self._key_of = key_of
        self._bound = bound
        self._orders: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def choose(self, asked: Asked, replicas: Sequence[Replica]) -> Replica:
        known = {one.name: one for one in replicas}
        order = [known[name] for name in self._order(self._key_of(asked), tuple(known))]
        bound = math.inf if self._bound is None else self._bound.of(replicas)
        return next((one for one in order if one.n_open < bound), order[0])

    def _order(self, key: str, names: tuple[str, ...]) -> list[str]:
        if (key, names) not in self._orders:
            self._orders[key, names] = rendezvous(key, names)
        return self._orders[key, names]


class CacheAware:
    """vllm-router's `cache_aware`, as its documentation and sources have it: by what was sent
    where, not by what is still in the caches. Where it can read no text, nothing is known."""

    def __init__(self) -> None:
        self._sent: dict[str, set[Block]] = {}

    def choose(self, asked: Asked, replicas: Sequence[Replica]) -> Replica:
        chosen = self._least_open(replicas) or self._most_sent(asked.text, replicas)
        self._sent.setdefault(chosen.name, set()).update(asked.text)
        return chosen

    def _least_open(self, replicas: Sequence[Replica]) -> Replica | None:
        least = min(replicas, key=lambda one: one.n_open)
        most = max(one.n_open for one in replicas)
        is_uneven = most - least.n_open > ABSOLUTE and most > RELATIVE * least.n_open
        return least if is_uneven else None

    def _most_sent(self, text: Sequence[Block], replicas: Sequence[Replica]) -> Replica:
        sent = {one.name: self._sent.get(one.name, set()) for one in replicas}
        known = {name: _n_first(text, blocks) for name, blocks in sent.items()}
        best = max(replicas, key=lambda one: known[one.name])
        if text and known[best.name] / len(text) > CACHE_SHARE:
            return best
        return min(replicas, key=lambda one: len(sent[one.name]))


def _n_first(text: Sequence[Block], known: Set[Block]) -> int:
    return next((n for n, block in enumerate(text) if block not in known), len(text))


@dataclass(frozen=True, slots=True)
class Oracle:
    """Where most of the prompt is in the cache, which no router can know; bounded, and of equals
    the one that has least open."""

    bound: Bound

    def choose(self, asked: Asked, replicas: Sequence[Replica]) -> Replica:
        bound = self.bound.of(replicas)
        open_ones = [one for one in replicas if one.n_open < bound] or list(replicas)
        return max(open_ones, key=lambda one: (one.n_hits(asked.job), -one.n_open))
