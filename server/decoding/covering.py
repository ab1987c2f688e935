"""The first draw of a healed generation: a cover of the given-back bytes, by its probability.

The tokens that covers are made of stand in the tree that the prompt's end is evaluated in, so there
is no evaluation more. A row that an earlier tree of the same prompt had is not wanted again: while
one types inside a word the prompt's end stays where it is, and its covers grow by a node.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from suture.healing import CanonicalPairs, Vocabulary
from suture.healing.covers import MAX_NODES, ROOT, Cover, CoverTree, cover_tree
from suture.healing.healer import HealingError
from suture.healing.posterior import Posterior, Row, log_softmax_row
from suture.server.decoding.candidates import Logits
from suture.server.decoding.sampling import Sampler
from suture.server.decoding.scores import CoverScores, score_of
from suture.server.engine.tree import TokenTree
from suture.server.prompt.plan import PromptPlan
from suture.server.request import HealingLevel, ScoredToken

Path = tuple[int, ...]

# Of 152k float32 logits each.
_MAX_ROWS = 24
# What a grammar refuses is drawn again.
_MAX_DRAWS = 64
# Each is an evaluation of its own where a memory cannot branch.
MAX_PATHS = 5


class NodeRows:
    """The rows of the last trees' nodes below the root, by prompt and path; the oldest go first."""

    def __init__(self, max_rows: int = _MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows: collections.OrderedDict[tuple[int, ...], dict[Path, Logits]] = (
            collections.OrderedDict()
        )

    def of(self, prompt_ids: tuple[int, ...]) -> Mapping[Path, Logits]:
        """Those of one prompt, by the tokens that lead to their nodes."""
        return self._rows.get(prompt_ids, {})

    def keep(self, prompt_ids: tuple[int, ...], rows: Mapping[Path, Logits]) -> None:
        """Remember the rows of a prompt's last tree; of the trees before it, as many as may be."""
        before = self._rows.pop(prompt_ids, {})
        older = {path: row for path, row in before.items() if path not in rows}
        n_older = max(self._max_rows - len(rows), 0)
        self._rows[prompt_ids] = {**dict([*older.items()][-n_older:] if n_older else ()), **rows}
        while len(self._rows) > 1 and sum(map(len, self._rows.values())) > self._max_rows:
            self._rows.popitem(last=False)


class Coverings:
    """What the covers of all prompts of a model are made with; for the engine's thread.

    `can_branch` says whether a tree is evaluated at once. Else its paths are, one after the other,
    and a tree of more than `MAX_PATHS` is made again of so many nodes. `observe` sees each
    posterior before a cover is drawn from it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        pairs: CanonicalPairs,
        rows: NodeRows | None = None,
        observe: Callable[[Posterior], None] | None = None,
        can_branch: bool = True,
    ) -> None:
        self.vocabulary = vocabulary
        self.pairs = pairs
        self.can_branch = can_branch
        self.rows = NodeRows() if rows is None else rows
        self.observe = observe

    def observed(self, observe: Callable[[Posterior], None]) -> Coverings:
        """The same, for somebody who wants to know what a cover is drawn from."""
        return Coverings(self.vocabulary, self.pairs, self.rows, observe, self.can_branch)

    def of(self, plan: PromptPlan, ends: frozenset[int]) -> Covering:
        """The covers of one prompt; `ends` are the tokens without text that may come in it."""
        return Covering(plan, self, ends)


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A cover that was drawn: the path to a node of the covers, and the token behind it.

    `overhang` is what that token says past the cursor. It is None at an exact end: there the token
    is all new, and where it is None too, one is to be drawn from `Covering.row_behind`. `logprob`
    is the cover's, in nats, without what is new behind an exact end.
    """

    node: int
    path: tuple[int, ...]
    token_id: int | None
    overhang: bytes | None
    logprob: float


class Covering:
    """The covers of one prompt's pending bytes.

    Of the tree made last, `root` is the node that they stand on, and `n_evaluated` are their own.
    Calls come in this order: `tree`, again where it was not evaluated, then `draws`, then the rest.
    """

    def __init__(self, plan: PromptPlan, coverings: Coverings, ends: frozenset[int]) -> None:
        self.root = 0
        self.n_evaluated = 0
        self._plan = plan
        self._can_branch = coverings.can_branch
        self._vocabulary = coverings.vocabulary
        self._pairs = coverings.pairs
        self._known = coverings.rows
        self._observe = coverings.observe
        self._ends = ends
        self._covers: CoverTree | None = None
        self._nodes: dict[int, int] = {}
        self._wanted: list[int] = []
        self._rows: dict[int, Logits] = {}
        self._posterior: Posterior | None = None
        self._scores: CoverScores | None = None

    @property
    def is_clean(self) -> bool:
        """Whether no token crosses the cursor, so that there is nothing to heal (C3)."""
        covers = self._covers_here()
        return not any(covers.crossing) and len(covers.exact_ends) == 1

    @property
    def level(self) -> HealingLevel:
        """How what is drawn is healed: with its tree at once, or path by path."""
        return "exact" if self._can_branch else "exact_seq"

    @property
    def tv_bound(self) -> float:
        """How far the draws' distribution may be from the exact one, before a grammar's say."""
        return 1.0 if self._posterior is None else self._posterior.draw_bound

    @property
    def log_evidence(self) -> float:
        """Log probability, before biases and penalties, that the text goes on with the pending
        bytes."""
        return self._scores_here().log_evidence

    def tree(self, tokens: Sequence[int]) -> TokenTree:
        """The prompt's last tokens, and on them what is not known yet of the covers."""
        covers = self._covers_here()
        # The prompt's last token is evaluated anyway. Its row is asked for even if it is known, so
        # that no node of the covers is taken for a part of the prompt.
        remembered = self._known.of(self._plan.kept_ids)
        nodes = [node for node in covers.wants if node != ROOT]
        known = {node: remembered.get(covers.path(node)) for node in nodes}
        self._rows = {node: row for node, row in known.items() if row is not None}
        self._wanted = [ROOT, *(node for node, row in known.items() if row is None)]
        needed = {at for node in self._wanted for at in _way_to(node, covers)}
        self.root = len(tokens) - 1
        self._nodes = {ROOT: self.root}
        ids, parents = list(tokens), list(range(-1, self.root))
        for node in sorted(needed - {ROOT}):
            self._nodes[node] = len(ids)
            ids.append(covers.tokens[node])
            parents.append(self._nodes[covers.parents[node]])
        self.n_evaluated = len(ids) - len(tokens)
        wants = tuple(self._nodes[node] for node in self._wanted)
        return TokenTree(tuple(ids), tuple(parents), wants)

    def draws(
        self,
        rows: Logits,
        sampler: Sampler,
        history: Sequence[int],
        banned_ids: Collection[int] = (),
    ) -> Iterator[Drawn]:
        """Covers drawn one after the other from the rows of the tree, none twice.

        After those that are likely the exact ends come again, for which no grammar refuses what
        stands before the cursor. `banned_ids` may spell pending bytes and nothing else.
        """
        self._remember(rows)
        covers = self._covers_here()
        scored = {
            node: _scored(sampler.penalized(row, [*history, *covers.path(node)]))
            for node, row in self._rows.items()
        }
        try:
            posterior = Posterior(
                covers, scored, self._vocabulary, self._pairs, self._ends, banned_ids
            )
        except HealingError:
            return
        self._posterior = posterior
        if self._observe is not None:
            self._observe(posterior)
        order = iter(()) if self.is_clean else _in_order(posterior, sampler)
        for cover, next_id in islice(order, _MAX_DRAWS):
            yield self._drawn(cover, next_id, posterior, scored)
        for node in covers.exact_ends:
            if posterior.log_priors.get(node, -np.inf) > -np.inf:
                yield self._drawn(Cover(node, None, b""), None, posterior, scored)

    def row_behind(self, drawn: Drawn) -> Logits:
        """The raw logits behind an exact end, of what may stand there, as far as it is likely."""
        row = self._rows[drawn.node].copy()
        posterior = self._posterior
        if posterior is None or self.is_clean:
            return row
        for token_id, _ in islice(posterior.likeliest(drawn.node), _MAX_DRAWS):
            if not posterior.may_follow(drawn.node, token_id):
                row[token_id] = -np.inf
        return row

    def score(self, drawn: Drawn, token_id: int, n_top: int) -> ScoredToken:
        """How likely the model thinks the drawn cover, with this token behind an exact end.

        Given the pending bytes, before biases and penalties, as far as the tree has covers.
        """
        if self.is_clean:
            return score_of(self._rows[drawn.node], token_id, self._vocabulary, n_top)
        return self._scores_here().score(drawn.node, token_id, n_top)

    def kept(self, drawn: Drawn) -> int:
        """The last node of the tree that is on the way to a cover's last token."""
        way = (ROOT, *_way_to(drawn.node, self._covers_here()))
        return [self._nodes[node] for node in way if node in self._nodes][-1]

    def _drawn(
        self, cover: Cover, next_id: int | None, posterior: Posterior, scored: Mapping[int, Row]
    ) -> Drawn:
        node, token_id = cover.node, cover.token_id
        path, logprob = self._covers_here().path(node), posterior.log_priors[node]
        if token_id is None:
            return Drawn(node, path, next_id, None, logprob)
        logprob += float(scored[node][token_id])
        return Drawn(node, path, token_id, cover.overhang, logprob)

    def _remember(self, rows: Logits) -> None:
        covers = self._covers_here()
        for node, row in zip(self._wanted, rows, strict=True):
            # The engine's next evaluation overwrites its own.
            self._rows[node] = row.copy()
        below = {covers.path(node): row for node, row in self._rows.items() if node != ROOT}
        self._known.keep(self._plan.kept_ids, below)

    def _scores_here(self) -> CoverScores:
        if self._scores is None:
            self._scores = CoverScores(
                self._covers_here(), self._rows, self._vocabulary, self._pairs, self._ends
            )
        return self._scores

    def _covers_here(self) -> CoverTree:
        if self._covers is None:
            covers = self._cover_tree()
            if not self._can_branch and covers.n_leaves > MAX_PATHS:
                covers = self._cover_tree(MAX_PATHS)
            self._covers = covers
        return self._covers

    def _cover_tree(self, max_nodes: int = MAX_NODES) -> CoverTree:
        plan = self._plan
        return cover_tree(plan.pending, plan.left_ids, self._vocabulary, self._pairs, max_nodes)


def _way_to(node: int, covers: CoverTree) -> list[int]:
    """The nodes from a first one down to `node`."""
    way = []
    while node != ROOT:
        way.append(node)
        node = covers.parents[node]
    return way[::-1]


def _scored(row: Logits) -> Row:
    """Log probabilities of a row; where all is banned, nothing has any."""
    return log_softmax_row(row) if row.max() > -np.inf else row


def _in_order(posterior: Posterior, sampler: Sampler) -> Iterator[tuple[Cover, int | None]]:
    """Covers as they are drawn one after the other, exact ends with the token behind them.

    An exact end is drawn with each of its followers apart: who refuses one refuses no other.
    """
    if sampler.is_greedy:
        for group in posterior.best_groups():
            yield group.cover, group.next_id
        return
    posterior.ask_best(_MAX_DRAWS)
    parts = [posterior.log_weights[: posterior.n_crossing]]
    ends = [posterior.cover(index) for index in range(posterior.n_crossing, len(posterior))]
    ends = [end for end in ends if end.node in posterior.rows]
    for end in ends:
        parts.append(posterior.rows[end.node].astype(np.float64) + posterior.log_priors[end.node])
        for token_id, _ in islice(posterior.likeliest(end.node), _MAX_DRAWS):
            if not posterior.may_follow(end.node, token_id):
                parts[-1][token_id] = -np.inf
    weights = np.concatenate(parts).astype(np.float32)
    while np.isfinite(weights.max()):
        index = sampler.pick_index(weights)
        weights[index] = -np.inf
        if index < posterior.n_crossing:
            if posterior.is_canonical(index):
                yield posterior.cover(index), None
            continue
        at, token_id = divmod(index - posterior.n_crossing, len(posterior.rows[ROOT]))
        if posterior.may_follow(ends[at].node, token_id):
            yield ends[at], token_id
