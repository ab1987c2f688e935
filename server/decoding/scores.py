"""How likely the model itself thinks a token, whatever was done to draw it.

Scores are of the model's own rows, before biases, bans, penalties and samplers. What is drawn at
the cursor is scored *given the bytes before it*, so that the scores of a text add up to its log
probability, given these bytes and cut into these tokens:

a cover         its joint log probability less the evidence; an exact end with the token behind it
recursive rule  the probability among the allowed tokens; that of tokens which say nothing new
                counts for the first one that does
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from suture.healing import CanonicalPairs, CoverTree, Posterior, Vocabulary, log_softmax_row
from suture.healing.healer import Constraint
from suture.healing.vocabulary import TokenIds
from suture.server.decoding.candidates import Logits
from suture.server.request import Alternative, ScoredToken

# Scores are only made where they are asked for: there is time to make them exact.
_MAX_ASKED = 1024
_MAX_UNASKED = 1e-6


def said_by(token_id: int, vocabulary: Vocabulary) -> bytes:
    """The bytes of a token, or its own text where it has none: of an end or a sentinel."""
    return vocabulary.bytes_of(token_id) or vocabulary.text_of(token_id).encode()


def score_of(row: Logits, token_id: int, vocabulary: Vocabulary, n_top: int) -> ScoredToken:
    """The score of a token that stands where `row` is the model's."""
    log_probs = log_softmax_row(row)
    best = _best(log_probs, n_top)
    top = (Alternative(i, said_by(i, vocabulary), float(log_probs[i])) for i in best)
    logprob = float(log_probs[token_id])
    return ScoredToken(token_id, said_by(token_id, vocabulary), logprob, top=tuple(top))


def score_under(
    constraint: Constraint,
    pending: bytes,
    row: Logits,
    token_id: int,
    vocabulary: Vocabulary,
    n_top: int,
) -> ScoredToken:
    """The score of a token that says pending bytes again, among those that the rule allows."""
    ids, logits = constraint.apply(row, vocabulary)
    log_probs = log_softmax_row(logits)
    [at] = np.flatnonzero(ids == token_id)[:1]
    top = (
        Alternative(i, new, float(log_prob))
        for i, log_prob in _in_order(ids, log_probs)
        if (new := _overhang(i, pending, vocabulary))
    )
    overhang = _overhang(token_id, pending, vocabulary)
    return ScoredToken(token_id, overhang, float(log_probs[at]), top=tuple(islice(top, n_top)))


class CoverScores:
    """The scores of the covers of a tree by the model's own rows; `end_ids` as for `Posterior`."""

    def __init__(
        self,
        tree: CoverTree,
        rows: Mapping[int, Logits],
        vocabulary: Vocabulary,
        pairs: CanonicalPairs,
        end_ids: frozenset[int],
    ) -> None:
        self._vocabulary = vocabulary
        self._posterior = Posterior(
            tree,
            {node: log_softmax_row(row) for node, row in rows.items()},
            vocabulary,
            pairs,
            end_ids,
            max_asked=_MAX_ASKED,
            max_unasked=_MAX_UNASKED,
            max_below=_MAX_UNASKED,
        )
        self._posterior.ask_until(_MAX_ASKED, _MAX_UNASKED)

    @property
    def log_evidence(self) -> float:
        """Log probability that the text goes on with the pending bytes."""
        return self._posterior.log_evidence

    def score(self, node: int, token_id: int, n_top: int) -> ScoredToken:
        """The score of the cover that ends with this token behind `node`, or of the exact end
        there with the token behind it."""
        top = sorted(self._candidates(n_top), key=lambda one: -one.logprob)[:n_top]
        prior = self._posterior.log_priors[node]
        logprob = prior + float(self._posterior.rows[node][token_id]) - self.log_evidence
        return ScoredToken(token_id, self._new(node, token_id), logprob, top=tuple(top))

    def _candidates(self, n_top: int) -> Iterator[Alternative]:
        """The best of the crossing covers, and of what may follow each exact end."""
        posterior, log_evidence = self._posterior, self.log_evidence
        if n_top == 0:
            return
        for index in posterior.ask_best(n_top + len(posterior) - posterior.n_crossing).tolist():
            cover = posterior.cover(index)
            if cover.token_id is not None:
                logprob = float(posterior.log_weights[index]) - log_evidence
                yield Alternative(cover.token_id, cover.overhang, logprob)
        for node in posterior.tree.exact_ends:
            prior = posterior.log_priors.get(node)
            if prior is None or node not in posterior.rows:
                continue
            likeliest = islice(posterior.likeliest(node), _MAX_ASKED)
            followers = (one for one in likeliest if posterior.may_follow(node, one[0]))
            for token_id, log_prob in islice(followers, n_top):
                new = said_by(token_id, self._vocabulary)
                yield Alternative(token_id, new, prior + log_prob - log_evidence)

    def _new(self, node: int, token_id: int) -> bytes:
        tree = self._posterior.tree
        return said_by(token_id, self._vocabulary)[len(tree.pending) - tree.end_of(node) :]


def _best(log_probs: Logits, n_best: int) -> list[int]:
    if n_best == 0:
        return []
    n_best = min(n_best, len(log_probs))
    best = np.argpartition(log_probs, len(log_probs) - n_best)[len(log_probs) - n_best :]
    ids: list[int] = best[np.lexsort((best, -log_probs[best]))].tolist()
    return ids


def _in_order(ids: TokenIds, log_probs: Logits) -> Iterator[tuple[int, float]]:
    for at in np.argsort(-log_probs, kind="stable"):
        yield ids[at].item(), log_probs[at]


def _overhang(token_id: int, pending: bytes, vocabulary: Vocabulary) -> bytes:
    return vocabulary.bytes_of(token_id)[len(pending) :]
