"""How likely each cover is, given that the text goes on with the pending bytes.

A cover's weight is the model's own joint probability of its tokens: the *prior* of its node times
its last token's. An exact end weighs what its node does times the share of what may follow there,
which is canonical behind the pending bytes or ends the text. All weights together are the
*evidence*, the probability that the text goes on with the pending bytes; drawing a cover by weight
and going on from it is drawing from the model given these bytes.

Exact: the weights of crossing covers. Whether one is canonical is asked when it matters: refused
covers weigh nothing, so to draw, ask, and draw again if refused is to draw from the canonical ones.

Bounded, by `tv_bound` (C2): what the tree left out, nodes without a row, tokens below a threshold
where very many cross, and at an exact end the followers that were not asked, which are taken for
canonical.

C2  `tv_bound` is never below the total variation distance to the posterior of all covers.
C3  Greedy compares covers by their overhang, each exact end with its best canonical next token.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from suture.healing.canonical import CanonicalPairs
from suture.healing.covers import ROOT, Cover, CoverTree
from suture.healing.healer import HealingError
from suture.healing.vocabulary import TokenIds, Vocabulary

Row: TypeAlias = npt.NDArray[np.floating]
"""Log probabilities by token id."""
Real = TypeVar("Real", np.float32, np.float64)

# Wider ranges of crossing tokens are not gathered but thresholded, in nats below certainty.
_MAX_GATHERED = 4096
_THRESHOLD = -16.0
# What the threshold may leave out of a range, relative to what it finds there.
_MAX_BELOW = 1e-3
# Float32 log probabilities add up to 1 only so far.
_ROUNDING = 1e-6
# Followers of an exact end are asked, the likeliest first, until the rest is less than this.
_MAX_ASKED = 64
_MAX_UNASKED = 1e-4
# The bound is made from at least so much of the evidence, if asking `_MAX_ASKED` covers gives it.
_MOST = 0.9
# Rows are put in order down to here first, and farther only if more is asked for.
_STAGES = (-8.0, -14.0, -math.inf)


def log_softmax_row(row: npt.NDArray[Real]) -> npt.NDArray[Real]:
    """Log probabilities of a row of logits, over the whole vocabulary; ``-inf`` stays so.

    Raises `ValueError` where no logit is finite, or one is NaN or infinite.
    """
    highest = row.max()
    if not np.isfinite(highest):
        raise ValueError("a row of logits needs a highest one")
    shifted: npt.NDArray[Real] = row - highest
    shifted -= np.log(np.exp(shifted).sum(dtype=np.float64)).astype(row.dtype)
    return shifted


@dataclass(frozen=True, slots=True)
class Group:
    """All covers with one overhang, as greedy compares them; `cover` is the best of them.

    `next_id` is what follows where that is an exact end: its piece, or nothing where it ends the
    text, is the overhang. `log_weight` is not normalised.
    """

    overhang: bytes
    log_weight: float
    cover: Cover
    next_id: int | None


@dataclass(frozen=True, slots=True)
class _Crossing:
    """Candidates of one node: their ids, and the number of the first."""

    node: int
    start: int
    ids: TokenIds


class Posterior:
    """The covers of a tree, weighed by log probabilities.

    `rows` are those of the root and the nodes, over the full vocabulary, after bias and penalties;
    nodes may lack one, and those behind them are left out then. `end_ids` end a text without adding
    to it. `banned_ids` may spell pending bytes, and are neither what crosses the cursor nor what
    follows an exact end: the posterior is that of the other covers. Raises `HealingError` where no
    cover has any probability, `KeyError` without the root's row.
    """

    def __init__(
        self,
        tree: CoverTree,
        rows: Mapping[int, Row],
        vocabulary: Vocabulary,
        pairs: CanonicalPairs | None,
        end_ids: Collection[int] = (),
        banned_ids: Collection[int] = (),
        *,
        max_gathered: int = _MAX_GATHERED,
        threshold: float = _THRESHOLD,
        max_below: float = _MAX_BELOW,
        max_asked: int = _MAX_ASKED,
        max_unasked: float = _MAX_UNASKED,
    ) -> None:
        self.tree = tree
        self.rows = rows
        self._vocabulary = vocabulary
        self._pairs = pairs if tree.is_filtered else None
        self._end_ids = frozenset(end_ids).difference(banned_ids)
        self._banned_ids = frozenset(banned_ids)
        self._max_gathered = max_gathered
        self._threshold = threshold
        self._max_below = max_below
        self._max_asked = max_asked
        self._max_unasked = max_unasked
        self.log_priors = _log_priors(tree, rows)
        self._log_left_out = [*_left_out_masses(tree, rows, self.log_priors)]
        self._log_unasked: list[float] = []
        self._contexts: dict[int, tuple[int, ...]] = {}
        self._crossing: list[_Crossing] = []
        self._ends: list[int] = []
        self.log_weights = self._weigh()
        self._asked: dict[int, bool] = {}
        if not (self.log_weights > -np.inf).any():
            raise HealingError(f"the model gives {tree.pending!r} no probability")

    # Candidates

    def _weigh(self) -> npt.NDArray[np.float64]:
        """A weight for each candidate; -inf where it has no probability or was refused."""
        parts: list[npt.NDArray[np.float64]] = []
        log_found = -math.inf
        n_candidates = 0
        # Small ranges first: what is found there says what the wide ones may leave out.
        at = sorted(zip(self.tree.wants, self.tree.crossing, strict=True), key=_width)
        for node, ranks in at:
            if not ranks or node not in self.rows or not self._has_prior(node):
                continue
            ids = self._crossing_ids(node, ranks, log_found)
            self._crossing.append(_Crossing(node, n_candidates, ids))
            parts.append(self.rows[node].take(ids).astype(np.float64) + self._prior(node))
            log_found = max(log_found, float(parts[-1].max(initial=-math.inf)))
            n_candidates += len(ids)
        self._starts = [crossing.start for crossing in self._crossing]
        self.n_crossing = n_candidates
        self._ends = [node for node in self.tree.exact_ends if self._has_prior(node)]
        at_ends = [self._log_exact_end(node, log_found) for node in self._ends]
        parts.append(np.array(at_ends, np.float64))
        return np.concatenate(parts)

    def _crossing_ids(self, node: int, ranks: range, log_found: float) -> TokenIds:
        """The tokens of these ranks, but for those that hardly matter where there are very many.

        `log_found` is the weight of a candidate elsewhere.
        """
        gathered = self._vocabulary.sorted_ids[ranks.start : ranks.stop]
        if len(ranks) <= self._max_gathered:
            return gathered
        row, prior = self.rows[node], self._prior(node)
        likely = np.flatnonzero(row >= self._threshold)
        at = self._vocabulary.rank.take(likely)
        is_there = (at >= ranks.start) & (at < ranks.stop)
        probs = np.exp(row.take(likely), dtype=np.float64)
        below = min(
            max(0.0, 1.0 - float(probs.sum())) + _ROUNDING,
            len(ranks) * math.exp(self._threshold),
        )
        found = float(probs[is_there].sum()) + math.exp(min(log_found - prior, 50.0))
        if below > self._max_below * found:
            return gathered
        self._log_left_out.append(prior + math.log(below))
        return likely[is_there]

    def _log_exact_end(self, node: int, log_found: float) -> float:
        prior = self._prior(node)
        if node not in self.rows:
            self._log_unasked.append(prior)
            return prior
        # What is light beside another candidate need not be known as well.
        lightness = math.exp(min(max(0.0, log_found - prior), 50.0))
        share, unasked = self._canonical_share(node, self._max_unasked * lightness)
        if unasked > 0.0:
            self._log_unasked.append(prior + math.log(unasked))
        return prior + math.log(share) if share > 0.0 else -math.inf

    def _canonical_share(self, node: int, max_unasked: float) -> tuple[float, float]:
        """The mass of what may follow a node, and how much of that was not asked."""
        if self._pairs is None:
            return self._share_with_text(node), 0.0
        share, unasked = 0.0, 1.0
        for n_asked, (token_id, log_prob) in enumerate(self.likeliest(node)):
            if n_asked == self._max_asked or unasked <= max_unasked:
                unasked = max(_ROUNDING, unasked)
                return share + unasked, unasked
            prob = math.exp(log_prob)
            unasked -= prob
            share += prob if self.may_follow(node, token_id) else 0.0
        return share, 0.0

    def _share_with_text(self, node: int) -> float:
        """The mass of all tokens but those that neither add to a text nor end it."""
        probs = np.exp(self.rows[node], dtype=np.float64)
        silent_ids = (i for i in self._vocabulary.silent_ids if i not in self._end_ids)
        probs[[*silent_ids, *self._banned_ids]] = 0.0
        return float(probs.sum())

    def likeliest(self, node: int) -> Iterator[tuple[int, float]]:
        """The possible tokens of a node's row with their log probabilities, best first."""
        row = self.rows[node]
        is_later = None
        for lowest in _STAGES:
            is_here = row > lowest
            ids = np.flatnonzero(is_here if is_later is None else is_here & is_later)
            log_probs = row.take(ids)
            for at in _descending(log_probs):
                yield ids[at].item(), float(log_probs[at])
            is_later = ~is_here

    def _has_prior(self, node: int) -> bool:
        return self._prior(node) > -math.inf

    def _prior(self, node: int) -> float:
        return self.log_priors.get(node, -math.inf)

    def __len__(self) -> int:
        """How many candidates there are."""
        return len(self.log_weights)

    def cover(self, index: int) -> Cover:
        """What a candidate stands for."""
        node, token_id = self._at(index)
        return Cover(node, token_id, b"" if token_id is None else self._overhang(node, token_id))

    def _at(self, index: int) -> tuple[int, int | None]:
        if index >= self.n_crossing:
            return self._ends[index - self.n_crossing], None
        crossing = self._crossing[bisect_right(self._starts, index) - 1]
        return crossing.node, crossing.ids[index - crossing.start].item()

    def _overhang(self, node: int, token_id: int) -> bytes:
        n_pending = len(self.tree.pending) - self.tree.end_of(node)
        return self._vocabulary.bytes_of(token_id)[n_pending:]

    # What is canonical

    def is_canonical(self, index: int) -> bool:
        """Whether the tokenizer could make a candidate; one that it could not weighs nothing more.

        An exact end is: its weight has only what may follow it.
        """
        known = self._asked.get(index)
        if known is None:
            node, token_id = self._at(index)
            known = token_id is None or self._extends(node, token_id)
            self._asked[index] = known
            if not known:
                self.log_weights[index] = -np.inf
        return known

    def ask_best(self, n_best: int) -> npt.NDArray[np.intp]:
        """The `n_best` best candidates, best first, all canonical: those on the way are refused."""
        best: list[int] = []
        for index in _descending(self.log_weights.copy()):
            if len(best) == n_best or self.log_weights[index] == -np.inf:
                break
            if self.is_canonical(index):
                best.append(index)
        return np.array(best, np.intp)

    def ask_until(self, n_most: int, max_unasked: float) -> None:
        """Ask about crossing covers, best first, until of the evidence no more than this share is
        not asked yet, or `n_most` were."""
        log_weights = self.log_weights[: self.n_crossing].copy()
        unasked = np.exp(log_weights - self.log_evidence)
        n_unasked = float(unasked.sum())
        for n_asked, index in enumerate(_descending(log_weights)):
            if n_asked == n_most or n_unasked <= max_unasked:
                return
            self.is_canonical(index)
            n_unasked -= float(unasked[index])

    def may_follow(self, node: int, token_id: int) -> bool:
        """Whether a token may be drawn from a node's row, having committed the node."""
        if token_id in self._end_ids:
            return True
        return bool(self._vocabulary.bytes_of(token_id)) and self._extends(node, token_id)

    def _extends(self, node: int, token_id: int) -> bool:
        if token_id in self._banned_ids:
            return False
        if self._pairs is None:
            return True
        context = self._contexts.get(node)
        if context is None:
            context = self._contexts[node] = self.tree.context(node)
        return self._pairs.extends(context, token_id)

    # Totals

    @property
    def log_evidence(self) -> float:
        """Log probability that the text goes on with the pending bytes, as far as is known.

        Covers that were not asked yet count as canonical, those left out do not count.
        """
        return _log_sum(self.log_weights)

    @property
    def tv_bound(self) -> float:
        """Upper bound of the distance to the posterior of all covers, in total variation.

        0 where nothing was left out. Else the best candidates are asked, and those not asked are
        taken for refused.
        """
        kept, left_out, unasked = self._masses()
        # By how much the kept weights are too high and by how much others are missing do not add
        # up: the larger one of the two is the distance.
        too_high = (unasked / kept if kept else 1.0) if unasked else 0.0
        return min(1.0, max(too_high, self._missing(kept, left_out, unasked)))

    @property
    def draw_bound(self) -> float:
        """The same for who asks about each follower of an exact end before it is taken."""
        return min(1.0, self._missing(*self._masses()))

    def _missing(self, kept: float, left_out: float, unasked: float) -> float:
        return left_out / (max(0.0, kept - unasked) + left_out) if left_out else 0.0

    def _masses(self) -> tuple[float, float, float]:
        """What is kept, what was left out, and what of the kept was not asked, on one scale."""
        log_left_out, log_unasked = map(_log_sum, (self._log_left_out, self._log_unasked))
        if log_left_out == log_unasked == -math.inf:
            return 1.0, 0.0, 0.0
        log_masses = (self._log_certain(), log_left_out, log_unasked)
        scale = max(log_masses)
        kept, left_out, unasked = (math.exp(log_mass - scale) for log_mass in log_masses)
        return kept, left_out, unasked

    def _log_certain(self) -> float:
        """The weight of covers known to be canonical, once the best were asked: of most of all."""
        highest = float(self.log_weights.max())
        if highest == -math.inf:
            return -math.inf
        weights = np.exp(self.log_weights - highest)
        total, certain = float(weights.sum()), float(weights[self.n_crossing :].sum())
        for n_asked, index in enumerate(_descending(weights[: self.n_crossing])):
            if n_asked == self._max_asked or certain >= _MOST * total:
                break
            if self.is_canonical(index):
                certain += float(weights[index])
            else:
                total -= float(weights[index])
        return highest + math.log(certain) if certain > 0.0 else -math.inf

    # Greedy

    def best_groups(self) -> Iterator[Group]:
        """The groups of canonical covers with equal overhang, the likeliest first (C3).

        An exact end is in the group of its best canonical next token; once that group was passed
        over, in that of the next best.
        """
        yield from _Groups(self)


def _width(node_and_ranks: tuple[int, range]) -> int:
    return len(node_and_ranks[1])


def _log_priors(tree: CoverTree, rows: Mapping[int, Row]) -> dict[int, float]:
    """Of the root and of every node whose parent has a row."""
    priors = {ROOT: 0.0}
    for node, (parent, token_id) in enumerate(zip(tree.parents, tree.tokens, strict=True)):
        if parent in priors and parent in rows:
            priors[node] = priors[parent] + float(rows[parent][token_id])
    return priors


def _left_out_masses(
    tree: CoverTree, rows: Mapping[int, Row], priors: Mapping[int, float]
) -> Iterator[float]:
    """Log masses, at most, of what stands behind tokens left out, and behind nodes without row."""
    for parent, token_id in tree.left_out:
        if parent in priors and parent in rows:
            yield priors[parent] + float(rows[parent][token_id])
    for node in tree.wants:
        if node in priors and node not in rows and node not in tree.exact_ends:
            yield priors[node]


def _log_sum(log_masses: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Log of the sum; -inf for none."""
    masses = np.asarray(log_masses, np.float64)
    highest = float(masses.max(initial=-math.inf))
    if highest == -math.inf:
        return -math.inf
    return highest + math.log(float(np.exp(masses - highest).sum()))


def _best(values: npt.NDArray[np.floating], n_best: int) -> npt.NDArray[np.intp]:
    """Where the highest are, highest first, the first of equals first."""
    if len(values) > 4 * n_best:
        # All that equal the last one, so that which of them are taken does not depend on chance.
        lowest = np.partition(values, len(values) - n_best)[len(values) - n_best]
        chosen = np.flatnonzero(values >= lowest)
    else:
        chosen = np.arange(len(values))
    order = np.argsort(-values[chosen], kind="stable")
    return chosen[order[:n_best]]


class _Groups:
    """The groups of a posterior, found in the order of their likeliest member.

    No group weighs more than that many times its likeliest member as it can have members, so the
    best of those found is the best of all once what is still to come is light enough.
    """

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior
        self._members = _Members(posterior)
        self._heap: list[tuple[float, int, Group]] = []
        self._latest: dict[bytes, Group | None] = {}
        self._yielded: set[bytes] = set()

    def __iter__(self) -> Iterator[Group]:
        for overhang in self._members.overhangs_at_ends():
            self._weigh(overhang)
        for overhang, lightest in self._members.descending():
            yield from self._heavier(lightest)
            if overhang not in self._latest:
                self._weigh(overhang)
        yield from self._heavier(-math.inf)

    def _weigh(self, overhang: bytes) -> None:
        group = self._members.group(overhang)
        self._latest[overhang] = group
        if group is not None:
            heapq.heappush(self._heap, (-group.log_weight, len(self._latest), group))

    def _heavier(self, log_weight: float) -> Iterator[Group]:
        """Those that nothing to come can outweigh."""
        while self._heap and -self._heap[0][0] >= log_weight:
            *_, group = heapq.heappop(self._heap)
            if self._latest[group.overhang] is not group:
                continue
            yield group
            self._yielded.add(group.overhang)
            for overhang in self._members.pass_over(self._yielded):
                self._weigh(overhang)


class _Members:
    """What belongs to an overhang: crossing covers, and exact ends by what may follow them."""

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior
        tree = posterior.tree
        self._tails = {
            crossing.node: tree.pending[tree.end_of(crossing.node) :]
            for crossing in posterior._crossing
        }
        n_most = len(self._tails) * posterior._vocabulary.n_most_alike
        self._log_n_most = math.log(n_most) if n_most else 0.0
        self._followers = {
            node: self._canonical_followers(node)
            for node in posterior._ends
            if node in posterior.rows
        }
        # By exact end: the best canonical next token, its overhang and the log weight of both.
        self._best = {node: next(ids, None) for node, ids in self._followers.items()}

    def overhangs_at_ends(self) -> list[bytes]:
        """Of each exact end's best next token."""
        return list(dict.fromkeys(best[1] for best in self._best.values() if best is not None))

    def descending(self) -> Iterator[tuple[bytes, float]]:
        """Overhangs of crossing covers, and what neither their groups nor later ones outweigh.

        In the order of the covers' own weights, so an overhang may come several times.
        """
        posterior = self._posterior
        log_weights = posterior.log_weights[: posterior.n_crossing]
        for index in _descending(log_weights):
            log_weight = float(log_weights[index])
            if log_weight == -math.inf:
                return
            yield posterior.cover(index).overhang, log_weight + self._log_n_most

    def group(self, overhang: bytes) -> Group | None:
        """All canonical members together; None if there are none."""
        members = [*self._crossing(overhang), *self._at_ends(overhang)]
        if not members:
            return None
        total = _log_sum([log_weight for log_weight, _, _ in members])
        _, cover, next_id = max(members, key=lambda member: member[0])
        return Group(overhang, total, cover, next_id)

    def pass_over(self, refused: Collection[bytes]) -> list[bytes]:
        """The overhangs of exact ends that go on to their next best token, after others refused."""
        moved = []
        for node, best in self._best.items():
            while best is not None and best[1] in refused:
                best = self._best[node] = next(self._followers[node], None)
                if best is not None and best[1] not in refused:
                    moved.append(best[1])
        return moved

    def _crossing(self, overhang: bytes) -> Iterator[tuple[float, Cover, None]]:
        posterior = self._posterior
        if not overhang:
            return
        for node, tail in self._tails.items():
            for token_id in posterior._vocabulary.ids_of(tail + overhang):
                if posterior._vocabulary.rank[token_id] < 0:
                    continue
                log_weight = posterior._prior(node) + float(posterior.rows[node][token_id])
                if log_weight > -math.inf and posterior._extends(node, token_id):
                    yield log_weight, Cover(node, token_id, overhang), None

    def _at_ends(self, overhang: bytes) -> Iterator[tuple[float, Cover, int]]:
        for node, best in self._best.items():
            if best is not None and best[1] == overhang:
                yield best[2], Cover(node, None, b""), best[0]

    def _canonical_followers(self, node: int) -> Iterator[tuple[int, bytes, float]]:
        """What may follow an exact end, the likeliest first."""
        posterior = self._posterior
        prior = posterior._prior(node)
        for token_id, log_prob in posterior.likeliest(node):
            if posterior.may_follow(node, token_id):
                is_end = token_id in posterior._end_ids
                piece = b"" if is_end else posterior._vocabulary.bytes_of(token_id)
                yield token_id, piece, prior + log_prob


def _descending(values: npt.NDArray[np.floating]) -> Iterator[int]:
    """Where the values stand, highest first; all are put in order only if the first do not do."""
    n_done = 0
    for n_best in (64, 1024, len(values)):
        yield from _best(values, n_best)[n_done:].tolist()
        n_done = n_best
