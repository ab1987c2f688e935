"""Which two neighbours byte-pair encoding leaves as they are.

Merging takes the pair of symbols that was learned first, the leftmost of several, until no pair is
known. What happens within two neighbouring tokens does not depend on the other one, up to the first
merge across the *seam* between them. So two tokens stay as they are if no such merge ever comes up,
which is seen by undoing both, the latest merge first, and looking at the two symbols at the seam.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_NEVER_LEARNED = 1 << 40


class Merges:
    """The merges of a byte-level vocabulary.

    `rows` are as in `Vocabulary.merges`, `byte_ids` the 256 tokens of one byte, -1 where there is
    none.
    """

    def __init__(
        self,
        rows: npt.NDArray[np.int32],
        byte_ids: Sequence[int],
        bytes_of: Callable[[int], bytes],
        n_vocab: int,
    ) -> None:
        self._n_vocab = n_vocab
        self._byte_ids = byte_ids
        self._bytes_of = bytes_of
        self._made = rows[:, 2].tolist()
        pairs = rows[:, 0].astype(np.int64) * n_vocab + rows[:, 1]
        ranks = np.flatnonzero((rows[:, :2] >= 0).all(axis=1))[::-1]
        # Of a pair that is listed twice, the earlier rank is the one that counts.
        self._rank: dict[int, int] = dict(zip(pairs[ranks].tolist(), ranks.tolist(), strict=True))
        # By token: its two halves and the rank of the merge that made it, -1 for a byte.
        self._halves: dict[int, tuple[int, int, int] | None] = {
            token_id: (-1, -1, -1) for token_id in byte_ids if token_id >= 0
        }
        self._out_of_order: set[int] = set()

    def make(self, token_id: int) -> bool:
        """Whether merging the token's bytes gives the token."""
        return self._halves_of(token_id) is not None

    def keep_apart(self, left: int, right: int) -> bool:
        """Whether merging the bytes of both tokens at once gives exactly these two."""
        if self._halves_of(left) is None or self._halves_of(right) is None:
            return False
        if left in self._out_of_order or right in self._out_of_order:
            return self.merged(self._bytes_of(left) + self._bytes_of(right)) == [left, right]
        return self._is_never_crossed(left, right)

    def merged(self, data: bytes) -> list[int]:
        """The tokens of these bytes, -1 for a symbol that is no token."""
        symbols = [self._byte_ids[byte] for byte in data]
        ranks = self._ranks(symbols)
        while True:
            best = min(ranks, default=_NEVER_LEARNED)
            if best == _NEVER_LEARNED:
                return symbols
            at = ranks.index(best)
            left, right, made = symbols[at], symbols[at + 1], self._made[best]
            symbols[at : at + 2] = [made]
            # Only the pairs next to it are others now: a token of blanks may have 128 bytes.
            before = max(at - 1, 0)
            ranks[before : at + 2] = self._ranks(symbols[before : at + 2])
            if made not in self._halves:
                self._learn(made, left, right, best)

    def _ranks(self, symbols: Sequence[int]) -> list[int]:
        rank, n_vocab = self._rank.get, self._n_vocab
        # Left and -1 would have the key of another pair.
        return [
            rank(left * n_vocab + right, _NEVER_LEARNED) if right >= 0 else _NEVER_LEARNED
            for left, right in pairwise(symbols)
        ]

    def _is_never_crossed(self, left: int, right: int) -> bool:
        """The walk back from both tokens to the bytes at the seam."""
        left_lasts = right_lasts = _NEVER_LEARNED  # until the merge of this rank
        while True:
            across = self._rank.get(left * self._n_vocab + right)
            # Of equal merges the leftmost comes first: the left token's own, then that across.
            if across is not None and across < left_lasts and across <= right_lasts:
                return False
            _, left_half, left_rank = self._made_of(left)
            right_half, _, right_rank = self._made_of(right)
            if left_rank < 0 and right_rank < 0:
                return True
            if right_rank >= left_rank:
                right, right_lasts = right_half, right_rank
            else:
                left, left_lasts = left_half, left_rank

    def _halves_of(self, token_id: int) -> tuple[int, int, int] | None:
        if token_id not in self._halves:
            if self.merged(self._bytes_of(token_id)) != [token_id]:
                self._halves[token_id] = None
        return self._halves[token_id]

    def _made_of(self, token_id: int) -> tuple[int, int, int]:
        halves = self._halves[token_id]
        assert halves is not None  # the halves of a token that merging makes are made first
        return halves

    def _learn(self, made: int, left: int, right: int, rank: int) -> None:
        """What came about inside a text is what the token's own bytes are merged to."""
        self._halves[made] = (left, right, rank)
        latest = max(self._made_of(half)[2] for half in (left, right))
        if rank < latest or not self._out_of_order.isdisjoint((left, right)):
            self._out_of_order.add(made)
