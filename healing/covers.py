"""The covers of the pending bytes: every way in which tokens can spell them and go on.

A *cover* is a token path whose bytes begin with the pending bytes and of which only the last token
reaches the cursor or passes it. One that ends at the cursor is an *exact end*, one that passes it
is *crossing*, and what its last token adds is its *overhang*. With ``userNa`` pending ``userName``
crosses from the root, ``user`` and ``Name`` from the node ``user``, and ``user`` and ``Na`` are
the exact end.

Crossing covers of one node differ in their last token only, so a tree of the paths before it is
all that a model has to evaluate: each node's row weighs its children, its crossing tokens, and at
an exact end what may follow. A canonical sequence has one node for each byte at most, mostly three.

C1  Covers are disjoint, and complete among drawable tokens: each canonical sequence of a text that
    begins with the pending bytes begins with exactly one of them, unless the tree left it out.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from suture.healing.canonical import CanonicalPairs
from suture.healing.healer import HealingError
from suture.healing.vocabulary import Vocabulary

ROOT = -1

# So many crossing tokens of a node are asked whether one of them is canonical there.
_MAX_ASKED = 256
_NEVER = 1 << 20
MAX_NODES = 16
# A stable cut gives back 48 bytes, or as many as the longest token has that may cover them.
MAX_PENDING = 128


class LeftOut(NamedTuple):
    """A subtree that the budget left out: behind `parent`, beginning with this token."""

    parent: int
    token_id: int


@dataclass(frozen=True, slots=True)
class Cover:
    """The path to `node` and one token more, none at an exact end; what that adds to the text."""

    node: int
    token_id: int | None
    overhang: bytes


@dataclass(frozen=True, slots=True)
class CoverTree:
    """The paths before the last token of every cover; nodes stand behind their parents.

    `ends` says how many pending bytes the path to each node spells. `crossing` has the ranks of
    the tokens that pass the cursor from the root and from each node, the root first. `is_filtered`
    is false where all segmentations were taken.
    """

    pending: bytes
    left_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    ends: tuple[int, ...]
    crossing: tuple[range, ...]
    left_out: tuple[LeftOut, ...]
    is_filtered: bool

    @property
    def wants(self) -> tuple[int, ...]:
        """The nodes whose rows weigh the covers: the root and all others."""
        return (ROOT, *range(len(self.tokens)))

    @property
    def exact_ends(self) -> tuple[int, ...]:
        """The nodes at the cursor, the one of fewest tokens first."""
        if not self.pending:
            return (ROOT,)
        return tuple(n for n, end in enumerate(self.ends) if end == len(self.pending))

    @property
    def n_leaves(self) -> int:
        """How many nodes have none behind them."""
        return len(self.tokens) - len(set(self.parents) - {ROOT})

    def end_of(self, node: int) -> int:
        """How many pending bytes the path to the node spells."""
        return self.ends[node] if node != ROOT else 0

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens that lead to the node."""
        ids: list[int] = []
        while node != ROOT:
            ids.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(ids))

    def context(self, node: int) -> tuple[int, ...]:
        """What stands before the token that follows the node, as far as it decides on that."""
        return self.left_ids + self.path(node)


def cover_tree(
    pending: bytes,
    left_ids: Sequence[int],
    vocabulary: Vocabulary,
    pairs: CanonicalPairs | None,
    max_nodes: int = MAX_NODES,
) -> CoverTree:
    """The tree of the covers that are canonical behind `left_ids`, which end at the cut.

    All segmentations where `pairs` is None, or where no canonical token path spells the bytes, as
    behind kept tokens that are not canonical themselves. There are more than `max_nodes` nodes
    only where the exact end needs them. Raises `HealingError` if no tokens spell the bytes,
    or there are more than `MAX_PENDING` of them.
    """
    if len(pending) > MAX_PENDING:
        raise HealingError(f"a tree of covers is for {MAX_PENDING} bytes, not {len(pending)}")
    growth = _Growth(pending, tuple(left_ids), vocabulary, pairs, max_nodes)
    if growth.is_barren and pairs is not None:
        growth = _Growth(pending, tuple(left_ids), vocabulary, None, max_nodes)
    if growth.is_barren:
        raise HealingError(f"no tokens of the vocabulary spell {pending!r}")
    return growth.tree()


class _Steps(NamedTuple):
    """Where tokens lead from a place in the pending bytes."""

    inner: list[tuple[int, int]]  # token and the end of it, up to the cursor
    crossing: range


class _Growth:
    """A tree in the making: paths of few tokens first, those to the exact end before others."""

    def __init__(
        self,
        pending: bytes,
        left_ids: tuple[int, ...],
        vocabulary: Vocabulary,
        pairs: CanonicalPairs | None,
        max_nodes: int,
    ) -> None:
        self._pending = pending
        self._left_ids = left_ids
        self._vocabulary = vocabulary
        self._pairs = pairs
        self._max_nodes = max_nodes
        n_bytes = len(pending)
        self._steps = [_steps(vocabulary, pending, start) for start in range(n_bytes)]
        self._steps.append(_Steps([], range(0)))
        self._to_end = _tokens_to_end(self._steps)
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._ends: list[int] = []
        self._paths: list[tuple[int, ...]] = []
        self._refused: list[LeftOut] = []
        self._grow(8 * max_nodes + n_bytes)
        self._is_useful = self._useful()
        self.is_barren = bool(pending) and not any((self._is_useful, self._has_crossing(ROOT, 0)))

    def _grow(self, max_visited: int) -> None:
        order = count()
        heap = [(0, 0, next(order), ROOT, -1, 0, self._left_ids)]
        while heap:
            _, depth, _, parent, token_id, end, path = heapq.heappop(heap)
            node = ROOT
            if token_id >= 0:
                if len(self._tokens) == max_visited:
                    self._refused.append(LeftOut(parent, token_id))
                    continue
                node = len(self._tokens)
                self._tokens.append(token_id)
                self._parents.append(parent)
                self._ends.append(end)
                self._paths.append(path)
            for child, child_end in self._steps[end].inner:
                if self._may_follow(path, child):
                    # Deeper ones first, so that one path is finished before its equals.
                    cost = 1 - depth + self._to_end[child_end]
                    entry = (cost, depth - 1, next(order), node, child, child_end, (*path, child))
                    heapq.heappush(heap, entry)

    def _may_follow(self, path: tuple[int, ...], token_id: int) -> bool:
        return self._pairs is None or self._pairs.extends(path, token_id)

    def _useful(self) -> set[int]:
        """The nodes from which a cover ends or crosses, and those on the way to them."""
        useful: set[int] = set()
        for node in range(len(self._tokens) - 1, -1, -1):
            end = self._ends[node]
            if node in useful or end == len(self._pending) or self._has_crossing(node, end):
                useful.add(node)
                useful.add(self._parents[node])
        useful.discard(ROOT)
        return useful

    def _has_crossing(self, node: int, end: int) -> bool:
        """Whether a crossing token is canonical there, or there are too many to ask."""
        ranks = self._steps[end].crossing
        if self._pairs is None or not 0 < len(ranks) <= _MAX_ASKED:
            return bool(ranks)
        return self._pairs.extends_any(self._left_ids if node == ROOT else self._paths[node], ranks)

    def tree(self) -> CoverTree:
        kept = self._kept()
        number = {ROOT: ROOT, **{node: n for n, node in enumerate(kept)}}
        cut = [
            LeftOut(self._parents[node], self._tokens[node])
            for node in sorted(self._is_useful)
            if node not in number
        ]
        left_out = [
            LeftOut(number[parent], token_id)
            for parent, token_id in (*cut, *self._refused)
            if parent in number
        ]
        ends = [self._ends[node] for node in kept]
        return CoverTree(
            self._pending,
            self._left_ids,
            tuple(self._tokens[node] for node in kept),
            tuple(number[self._parents[node]] for node in kept),
            tuple(ends),
            tuple(self._steps[end].crossing for end in (0, *ends)),
            tuple(left_out),
            self._pairs is not None,
        )

    def _kept(self) -> list[int]:
        """The first useful nodes, with all that lead to the first exact end, or to a cover."""
        kept = sorted(self._is_useful)
        if len(kept) <= self._max_nodes:
            return kept
        node, chosen = self._first_goal(kept), set[int]()
        while node != ROOT:
            chosen.add(node)
            node = self._parents[node]
        for node in kept:
            if len(chosen) >= self._max_nodes:
                break
            chosen.add(node)
        # Parents come first, so none is missing among those that were added in order.
        return sorted(chosen)

    def _first_goal(self, nodes: Sequence[int]) -> int:
        at_end = (node for node in nodes if self._ends[node] == len(self._pending))
        crossing = (node for node in nodes if self._has_crossing(node, self._ends[node]))
        return next(at_end, next(crossing, ROOT))


def _steps(vocabulary: Vocabulary, pending: bytes, start: int) -> _Steps:
    """The tokens that spell what comes next in `pending`, and those that go on past its end."""
    inner, crossing = vocabulary.spelling(pending[start:])
    return _Steps([(token_id, start + length) for token_id, length in inner], crossing)


def _tokens_to_end(steps: Sequence[_Steps]) -> list[int]:
    """The fewest tokens from each place to the cursor; very many where none lead there."""
    fewest = [_NEVER] * (len(steps) - 1) + [0]
    for start in range(len(steps) - 2, -1, -1):
        ways = (1 + fewest[end] for _, end in steps[start].inner)
        fewest[start] = min(min(ways, default=_NEVER), _NEVER)
    return fewest
