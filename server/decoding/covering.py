"""The first draw of a healed generation: a cover of the given-back bytes, by its probability.

The tokens that covers are made of stand in the tree that the prompt's end is evaluated in, so there
is no evaluation more. A row that an earlier tree of the same prompt had is not wanted again: while
one types inside a word the prompt's end stays where it is, and its covers grow by a node.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from suture.healing import CanonicalPairs, Vocabulary
from suture.healing.covers import ROOT, Cover, CoverTree, cover_tree
from suture.healing.healer import HealingError
from suture.healing.posterior import Posterior, Row, log_softmax_row
from suture.server.decoding.candidates import Logits, log_total
from suture.server.decoding.sampling import Sampler
from suture.server.engine.tree import TokenTree
from suture.server.prompt.plan import PromptPlan

# Of 152k float32 logits each.
_MAX_ROWS = 24
# Nodes that weigh less beside the best cover known are not evaluated: each costs what a token does.
_MIN_SHARE = 1e-3
_MAX_GATHERED = 4096
# What a grammar refuses is drawn again.
_MAX_DRAWS = 64


class NodeRows:
    """The rows of the last trees' nodes, by prompt and path; the oldest are forgotten."""

    def __init__(self, max_rows: int = _MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows: collections.OrderedDict[tuple[tuple[int, ...], tuple[int, ...]], Logits] = (
            collections.OrderedDict()
        )

    def find(self, prompt_ids: tuple[int, ...], path: tuple[int, ...]) -> Logits | None:
        return self._rows.get((prompt_ids, path))

    def keep(self, prompt_ids: tuple[int, ...], path: tuple[int, ...], row: Logits) -> None:
        self._rows[prompt_ids, path] = row
        self._rows.move_to_end((prompt_ids, path))
        while len(self._rows) > self._max_rows:
            self._rows.popitem(last=False)


class Coverings:
    """What the covers of all prompts of a model are made with; for the engine's thread.

    `observe` sees each posterior before a cover is drawn from it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        pairs: CanonicalPairs,
        rows: NodeRows | None = None,
        observe: Callable[[Posterior], None] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.pairs = pairs
        self.rows = NodeRows() if rows is None else rows
        self.observe = observe

    def observed(self, observe: Callable[[Posterior], None]) -> Coverings:
        """The same, for somebody who wants to know what a cover is drawn from."""
        return Coverings(self.vocabulary, self.pairs, self.rows, observe)

    def of(self, plan: PromptPlan, ends: frozenset[int]) -> Covering:
        """The covers of one prompt; `ends` are tokens that may end its text."""
        return Covering(plan, self, ends)


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A cover that was drawn: `path` ends at the tree node `node`, and `token_id` is behind it.

    At an exact end `token_id` is None, and what comes next is to be drawn from `row`, raw logits
    without the tokens that the tokenizer would not put there. `logprob` is the cover's, in nats.
    """

    node: int
    path: tuple[int, ...]
    token_id: int | None
    row: Logits
    logprob: float
    tv_bound: float


class Covering:
    """The covers of one prompt's pending bytes.

    Of the tree made last, `root` is the node that they stand on, and `n_evaluated` are their own.
    """

    def __init__(self, plan: PromptPlan, coverings: Coverings, ends: frozenset[int]) -> None:
        self.root = 0
        self.n_evaluated = 0
        self._plan = plan
        self._vocabulary = coverings.vocabulary
        self._pairs = coverings.pairs
        self._known = coverings.rows
        self._observe = coverings.observe
        self._ends = ends
        self._covers: CoverTree | None = None
        self._nodes: dict[int, int] = {}
        self._wanted: list[int] = []
        self._rows: dict[int, Logits] = {}

    def tree(self, tokens: Sequence[int]) -> TokenTree:
        """The prompt's last tokens, and on them what is not known yet of the covers."""
        covers = self._covers_here()
        prompt_ids = self._plan.kept_ids
        known = {node: self._known.find(prompt_ids, covers.path(node)) for node in covers.wants}
        self._rows = {node: row for node, row in known.items() if row is not None}
        weak = self._weak(covers)
        self._wanted = [node for node, row in known.items() if row is None and node not in weak]
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

    def _weak(self, covers: CoverTree) -> set[int]:
        """Nodes of which the rows known say that hardly any cover goes over them.

        What they weigh counts into the bound. The way to the exact end is never weak.
        """
        totals = {node: log_total(row) for node, row in self._rows.items()}
        priors, best = {ROOT: 0.0}, -np.inf
        for node, ranks in zip(covers.wants, covers.crossing, strict=True):
            if node != ROOT and (parent := covers.parents[node]) in totals and parent in priors:
                log_p = self._rows[parent][covers.tokens[node]] - totals[parent]
                priors[node] = priors[parent] + float(log_p)
            if node in totals and node in priors and 0 < len(ranks) <= _MAX_GATHERED:
                ids = self._vocabulary.sorted_ids[ranks.start : ranks.stop]
                log_p = self._rows[node].take(ids).max() - totals[node]
                best = max(best, priors[node] + float(log_p))
        on_way = {at for end in covers.exact_ends[:1] for at in _way_to(end, covers)}
        least = best + np.log(_MIN_SHARE)
        weak = {node for node, prior in priors.items() if prior < least and node not in on_way}
        for node in range(len(covers.tokens)):
            if covers.parents[node] in weak and node not in on_way:
                weak.add(node)
        return weak

    def draw(
        self,
        rows: Logits,
        sampler: Sampler,
        history: Sequence[int],
        may_go_on: Callable[[bytes], bool],
    ) -> Drawn | None:
        """A cover, drawn from the rows of the tree; None where `may_go_on` takes none of them.

        It is asked about what a cover says past the cursor, and goes on behind what it takes.
        """
        covers = self._covers_here()
        self._remember(rows)
        scored = {
            node: log_softmax_row(sampler.penalized(row, [*history, *covers.path(node)]))
            for node, row in self._rows.items()
        }
        try:
            posterior = Posterior(covers, scored, self._vocabulary, self._pairs, self._ends)
        except HealingError:
            return None
        if self._observe is not None:
            self._observe(posterior)
        for cover in islice(_in_order(posterior, sampler), _MAX_DRAWS):
            if may_go_on(cover.overhang):
                return self._drawn(cover, posterior, scored)
        return None

    def _drawn(self, cover: Cover, posterior: Posterior, scored: Mapping[int, Row]) -> Drawn:
        covers = self._covers_here()
        logprob = posterior.log_priors[cover.node]
        row = self._rows[cover.node]
        if cover.token_id is None:
            row = _canonical(row, cover.node, posterior)
        else:
            logprob += float(scored[cover.node][cover.token_id])
        evaluated = [node for node in (ROOT, *_way_to(cover.node, covers)) if node in self._nodes]
        return Drawn(
            node=self._nodes[evaluated[-1]],
            path=covers.path(cover.node),
            token_id=cover.token_id,
            row=row,
            logprob=logprob,
            tv_bound=posterior.tv_bound,
        )

    def _remember(self, rows: Logits) -> None:
        covers, prompt_ids = self._covers_here(), self._plan.kept_ids
        for node, row in zip(self._wanted, rows, strict=True):
            # The engine's next evaluation overwrites its own.
            self._rows[node] = row.copy()
        for node, row in self._rows.items():
            self._known.keep(prompt_ids, covers.path(node), row)

    def _covers_here(self) -> CoverTree:
        if self._covers is None:
            plan = self._plan
            self._covers = cover_tree(plan.pending, plan.left_ids, self._vocabulary, self._pairs)
        return self._covers


def _way_to(node: int, covers: CoverTree) -> list[int]:
    """The nodes from a first one down to `node`."""
    way = []
    while node != ROOT:
        way.append(node)
        node = covers.parents[node]
    return way[::-1]


def _in_order(posterior: Posterior, sampler: Sampler) -> Iterator[Cover]:
    """Covers as they are drawn one after the other, none twice."""
    if sampler.is_greedy:
        for group in posterior.best_groups():
            yield group.cover
        return
    posterior.ask_best(_MAX_DRAWS)
    weights = posterior.log_weights.astype(np.float32)
    while np.isfinite(weights.max()):
        index = sampler.pick_index(weights)
        weights[index] = -np.inf
        if posterior.is_canonical(index):
            yield posterior.cover(index)


def _canonical(row: Logits, node: int, posterior: Posterior) -> Logits:
    """The row without what no tokenizer puts behind the node, as far as it is likely."""
    row = row.copy()
    best = np.argpartition(row, -_MAX_DRAWS)[-_MAX_DRAWS:] if len(row) > _MAX_DRAWS else None
    for token_id in range(len(row)) if best is None else best.tolist():
        if not posterior.may_follow(node, token_id):
            row[token_id] = -np.inf
    return row
