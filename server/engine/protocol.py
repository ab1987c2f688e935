"""The engine's one primitive: evaluate a tree of tokens on top of a sequence, commit one path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NewType, Protocol

import numpy as np
import numpy.typing as npt

from suture.healing import Vocabulary
from suture.server.decoding.grammar import Grammar
from suture.server.engine.abort import AbortFlag
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError

SequenceId = NewType("SequenceId", int)
Logits = npt.NDArray[np.float32]


Batch = Sequence[tuple[SequenceId, TokenTree]]

Memory = Literal["full", "sliding", "recurrent", "hybrid"]
"""What a model remembers of a text: every token, in some layers the last ones only, a state in
place of the tokens, or both of these. A state is of a whole text and cannot be cut back."""


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
    """The evaluation's flag was set; every sequence is what it was before the call."""


@dataclass(frozen=True, slots=True)
class SavedSequence:
    """A sequence outside the cache: its tokens, and what `Engine.load` needs besides.

    `shortest` is what `Engine.shortest` will say of it once it is loaded.
    """

    tokens: tuple[int, ...]
    state: npt.NDArray[np.uint8]
    shortest: int


class Engine(Protocol):
    """What drives a model. All but `encode` and `check_grammar` is for the engine's one thread.

    `n_ctx` is the most tokens that all sequences together may hold, where sequences that were
    forked share theirs, and `n_free` how many more fit. `n_sequences` are the most sequences
    that may be open, `n_batch` the most tokens that one `evaluate` may hold over all its trees,
    `n_rows` the most rows it may return. `can_branch` is false where the memory is recurrent or
    hybrid: a tree has one first token then, its paths are evaluated one after the other, on copies
    of the state at its stem's end, and the stem is what is committed, as a whole.
    """

    vocabulary: Vocabulary
    n_ctx: int
    n_batch: int
    n_rows: int
    n_sequences: int
    memory: Memory
    can_branch: bool

    @property
    def n_free(self) -> int: ...

    def encode(self, piece: bytes) -> list[int]:
        """Token ids of plain text bytes: no special is parsed, none added. Any thread."""
        ...

    def check_grammar(self, gbnf: str) -> None:
        """Raise `InvalidRequest`, with the reason, for what is not a grammar. Any thread."""
        ...

    def grammar(self, gbnf: str) -> Grammar:
        """A grammar that was checked, before its first token; to be closed before the engine."""
        ...

    def open(self) -> SequenceId:
        """A new, empty sequence. Raises `EngineError` when none is left."""
        ...

    def fork(self, sequence: SequenceId, n_tokens: int) -> SequenceId:
        """A new sequence that begins with the first `n_tokens` tokens of another, at no cost.

        Raises `EngineError` when no sequence is left, `ValueError` for fewer than `shortest`.
        """
        ...

    def shortest(self, sequence: SequenceId) -> int:
        """The fewest tokens, but none, that a sequence may be forked at or cut back to."""
        ...

    def save(self, sequence: SequenceId) -> SavedSequence:
        """A copy of what a sequence holds, to be loaded again; the sequence stays open."""
        ...

    def load(self, saved: SavedSequence) -> SequenceId:
        """A new sequence that holds what was saved. Raises `EngineError` where there is no room."""
        ...

    def only_here(self, sequence: SequenceId) -> int:
        """How many tokens would be free if the sequence were released: those it does not share."""
        ...

    def tokens(self, sequence: SequenceId) -> Sequence[int]:
        """The committed tokens of a sequence; not to be changed by the caller."""
        ...

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        """One decode for all trees; for each an array of shape (len(wants), n_vocab).

        Where the memory cannot branch, one for all stems, and one more for each path on a stem.
        `abort` may be set by any thread meanwhile; where an evaluation cannot be interrupted (on a
        GPU, or a state half made) it is not looked at.

        The rows are the caller's to change, and the next `evaluate` may overwrite them. What
        was evaluated but not committed before is dropped. Raises `ValueError` for a batch that
        the engine cannot take, before anything is touched; `Aborted` or `EngineError` leave
        every sequence as it was, or empty where its memory does not allow that.
        """
        ...

    def commit(self, sequence: SequenceId, node: int) -> None:
        """Keep the path from the root to `node` of the tree evaluated last, drop the rest.

        Where the memory cannot branch no more than the tree's stem is kept: what stands on it is
        to be evaluated again.
        """
        ...

    def truncate(self, sequence: SequenceId, n_tokens: int) -> int:
        """Cut a sequence back to its first `n_tokens` tokens; how many are left.

        It is emptied where these are fewer than `shortest`.
        """
        ...

    def release(self, sequence: SequenceId) -> None:
        """Free a sequence and what it holds."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...
