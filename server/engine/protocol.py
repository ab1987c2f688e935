"""The engine's one primitive: evaluate a tree of tokens on top of a sequence, commit one path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NewType, Protocol

import numpy as np
import numpy.typing as npt

from suture.healing import Vocabulary
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError

SequenceId = NewType("SequenceId", int)
Logits = npt.NDArray[np.float32]


Batch = Sequence[tuple[SequenceId, TokenTree]]


def check_batch(batch: Batch, n_batch: int, n_vocab: int) -> None:
    """Raise `ValueError` for a batch that no engine can take: empty, too large, or no trees."""
    n_tokens = sum(len(tree) for _, tree in batch)
    if not 1 <= n_tokens <= n_batch or any(len(tree) == 0 for _, tree in batch):
        raise ValueError(f"a batch holds 1 to {n_batch} tokens, not {n_tokens}")
    if len({sequence for sequence, _ in batch}) != len(batch):
        raise ValueError("a batch holds one tree for each sequence")
    for _, tree in batch:
        tree.check(n_vocab)


class Aborted(EngineError):
    """`should_abort` said yes; every sequence is what it was before the call.

    One whose architecture cannot be cut back (a recurrent one) is emptied.
    """


class Engine(Protocol):
    """What drives a model. Every method but `encode` must be called on the engine's one thread.

    `n_ctx` is the most tokens that all sequences together may hold, `n_batch` the most that one
    `evaluate` may hold over all its trees, `n_rows` the most rows it may return.
    `should_abort` is asked many times during an evaluation, on the engine's thread; where the
    backend cannot be interrupted (a GPU) it is not asked.
    """

    vocabulary: Vocabulary
    n_ctx: int
    n_batch: int
    n_rows: int
    should_abort: Callable[[], bool]

    def encode(self, piece: bytes) -> list[int]:
        """Token ids of plain text bytes: no special is parsed, none added. Any thread."""
        ...

    def open(self) -> SequenceId:
        """A new, empty sequence. Raises `EngineError` when none is left."""
        ...

    def tokens(self, sequence: SequenceId) -> Sequence[int]:
        """The committed tokens of a sequence; not to be changed by the caller."""
        ...

    def evaluate(self, batch: Batch) -> list[Logits]:
        """One decode for all trees; for each an array of shape (len(wants), n_vocab).

        The rows are the caller's to change, and the next `evaluate` may overwrite them. What
        was evaluated but not committed before is dropped. Raises `ValueError` for a batch that
        the engine cannot take, before anything is touched; `Aborted` or `EngineError` leave
        every sequence of the batch as it was.
        """
        ...

    def commit(self, sequence: SequenceId, node: int) -> None:
        """Keep the path from the root to `node` of the tree evaluated last, drop the rest."""
        ...

    def truncate(self, sequence: SequenceId, n_tokens: int) -> int:
        """Cut a sequence back to its first `n_tokens` tokens or fewer; how many are left.

        An architecture that cannot be cut anywhere (a recurrent one) is emptied.
        """
        ...

    def release(self, sequence: SequenceId) -> None:
        """Free a sequence and what it holds."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...
