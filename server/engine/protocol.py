"""The engine's one primitive: evaluate a tree of tokens on top of a sequence, commit one path.

Prefill, cover trees, drafts and several candidates are all trees. A chain is the tree whose
nodes each have the node before them as parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

import numpy as np
import numpy.typing as npt

from suture.healing.vocabulary import Vocabulary

SequenceId = NewType("SequenceId", int)
Logits = npt.NDArray[np.float32]

ROOT = -1


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Tokens to evaluate on top of what a sequence holds.

    `parents[i]` is the index of node i's parent, smaller than i, or `ROOT` for a node that
    follows the sequence's last token. `wants` are the nodes whose logits rows are returned,
    in that order.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    wants: tuple[int, ...]

    @classmethod
    def chain(cls, tokens: Sequence[int], *, wants_last: bool = True) -> TokenTree:
        """One path: each token follows the one before it."""
        n = len(tokens)
        return cls(tuple(tokens), tuple(range(-1, n - 1)), (n - 1,) if wants_last and n else ())


class Engine(Protocol):
    """What drives a model. Every method must be called on the engine's one thread.

    `n_batch` is the most tokens one `evaluate` may hold, over all its trees.
    """

    vocabulary: Vocabulary
    n_ctx: int
    n_batch: int

    def open(self) -> SequenceId:
        """A new, empty sequence."""
        ...

    def tokens(self, sequence: SequenceId) -> Sequence[int]:
        """The committed tokens of a sequence."""
        ...

    def evaluate(self, batch: Sequence[tuple[SequenceId, TokenTree]]) -> list[Logits]:
        """One decode for all trees; for each an array of shape (len(wants), n_vocab).

        The rows are views that the next `evaluate` overwrites. On `EngineError` (and on
        `Aborted`) every sequence of the batch is what it was before.
        """
        ...

    def commit(self, sequence: SequenceId, node: int) -> None:
        """Keep the path from the root to `node` of the tree evaluated last, drop the rest."""
        ...

    def truncate(self, sequence: SequenceId, n_tokens: int) -> None:
        """Cut a sequence back to its first `n_tokens` committed tokens."""
        ...

    def close(self, sequence: SequenceId) -> None:
        """Free a sequence."""
        ...
