"""The recursive constraint: which tokens may come next while bytes are pending.

Two kinds may: tokens whose piece starts with the pending bytes (they finish healing and may run
past the cursor), and tokens whose piece is a proper prefix of them (they advance, and what
remains is pending). This is the published rule. It renormalises at each step, so it is not the
model's distribution given the bytes; it is the fallback of the exact covers.

With ``na`` pending, ``name`` finishes, ``na`` too, ``n`` leaves ``a`` pending, ``x`` raises.

H1  a token outside the two sets raises, and so does end-of-generation while bytes are pending.
H2  the bytes of the consumed tokens start with the pending bytes; `consume` says how many of a
    token's bytes are pending ones and not new.
H3  the constraint comes before any sampler that truncates: `Constraint.apply` gives the allowed
    tokens with their raw logits.
H4  tokens that only re-emit pending bytes count neither for max_tokens nor for min_tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suture.healing.vocabulary import TokenIds, Vocabulary


class HealingError(ValueError):
    """A token may not come here, or no tokens spell the pending bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """The allowed tokens: ranks ``lo`` to ``hi`` (exclusive), and some shorter tokens' ids."""

    lo: int
    hi: int
    prefix_ids: TokenIds
    rank: npt.NDArray[np.int32]

    def allows(self, token_id: int) -> bool:
        """Whether the token may come next. False outside the vocabulary."""
        if not 0 <= token_id < len(self.rank):
            return False
        return self.lo <= self.rank[token_id] < self.hi or token_id in self.prefix_ids.tolist()

    def apply(
        self, logits: npt.NDArray[np.float32], vocabulary: Vocabulary
    ) -> tuple[TokenIds, npt.NDArray[np.float32]]:
        """The allowed ids and their logits: a gather, never a mask over the vocabulary."""
        ids = vocabulary.sorted_ids[self.lo : self.hi]
        if self.prefix_ids.size:
            ids = np.concatenate((self.prefix_ids, ids))
        return ids, logits.take(ids)


class TokenHealer:
    """Bytes that must come again, and what has come of them so far.

    Raises `HealingError` if no tokens spell `pending`, which happens only in vocabularies that
    lack single bytes.
    """

    def __init__(self, vocabulary: Vocabulary, pending: bytes) -> None:
        if not coverable(vocabulary, pending):
            raise HealingError(f"no tokens of the vocabulary spell {pending!r}")
        self._vocabulary = vocabulary
        self.pending = pending

    @property
    def done(self) -> bool:
        """Whether all pending bytes have come; from then on nothing is constrained."""
        return not self.pending

    def constraint(self) -> Constraint:
        """The tokens that may come next; every drawable one when done."""
        vocabulary, pending = self._vocabulary, self.pending
        extending = vocabulary.extending(pending)
        prefix_ids = vocabulary.proper_prefixes(pending)
        if not _has_single_bytes(vocabulary, pending):
            lengths = [len(vocabulary.bytes_of(token_id)) for token_id in prefix_ids.tolist()]
            open_ends = _coverable_starts(vocabulary, pending)
            prefix_ids = prefix_ids[[open_ends[length] for length in lengths]]
        return Constraint(extending.start, extending.stop, prefix_ids, vocabulary.rank)

    def consume(self, token_id: int) -> int:
        """Takes a token and returns how many of its bytes are pending ones, 0 when done.

        Raises `HealingError` for a token that the constraint does not allow.
        """
        if self.done:
            return 0
        vocabulary, pending = self._vocabulary, self.pending
        if not 0 <= token_id < vocabulary.n_vocab or vocabulary.rank[token_id] < 0:
            raise HealingError(f"token {token_id} has no text, and {pending!r} is pending")
        piece = vocabulary.bytes_of(token_id)
        if piece.startswith(pending):
            self.pending = b""
            return len(pending)
        rest = pending[len(piece) :]
        if not pending.startswith(piece) or not coverable(vocabulary, rest):
            raise HealingError(f"token {token_id} ({piece!r}) does not spell {pending!r}")
        self.pending = rest
        return len(piece)


def coverable(vocabulary: Vocabulary, pending: bytes) -> bool:
    """Whether some tokens, the last of which may run over, spell `pending`."""
    return _has_single_bytes(vocabulary, pending) or _coverable_starts(vocabulary, pending)[0]


def _has_single_bytes(vocabulary: Vocabulary, pending: bytes) -> bool:
    return vocabulary.single_bytes.issuperset(pending)


def _coverable_starts(vocabulary: Vocabulary, pending: bytes) -> list[bool]:
    """For each offset, whether the bytes from there on can be spelled."""
    starts = [False] * len(pending) + [True]
    for start in range(len(pending) - 1, -1, -1):
        rest = pending[start:]
        pieces = map(vocabulary.bytes_of, vocabulary.proper_prefixes(rest).tolist())
        starts[start] = bool(vocabulary.extending(rest)) or any(
            starts[start + len(piece)] for piece in pieces
        )
    return starts
