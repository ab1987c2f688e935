"""An engine without a model: logits come from a function of the tokens before.

It is bit-exact, so that what the engine's users promise (the same result cold and warm, drafted
and not) can be tested exactly; tests, demos and contributors without a model use it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from suture.healing import Vocabulary
from suture.server.engine.abort import AbortFlag
from suture.server.engine.cells import CellCount, Cells
from suture.server.engine.protocol import (
    Aborted,
    Batch,
    Logits,
    Memory,
    SavedSequence,
    SequenceId,
    check_batch,
)
from suture.server.engine.scripted_grammar import TextsGrammar, check_texts
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError

Model = Callable[[Sequence[int]], Logits]
"""The next token's logits, shape (n_vocab,), given all tokens before it."""


def speaking_model(vocabulary: Vocabulary, text: bytes) -> Model:
    """A model that knows one text: it says the longest token with which `text` goes on.

    Where the tokens before are not the beginning of `text`, or are all of it, it ends.
    """
    end = vocabulary.eos_id if vocabulary.eos_id is not None else 0

    def next_token(so_far: bytes) -> int:
        rest = text[len(so_far) :]
        n = vocabulary.longest_prefix(rest) if text.startswith(so_far) else 0
        return vocabulary.ids_of(rest[:n])[-1] if n else end

    def logits(tokens: Sequence[int]) -> Logits:
        row = np.zeros(vocabulary.n_vocab, np.float32)
        row[next_token(b"".join(vocabulary.bytes_of(token) for token in tokens))] = 10.0
        return row

    return logits


def random_model(n_vocab: int, seed: int = 0) -> Model:
    """A model with arbitrary but fixed logits for every context."""

    def logits(tokens: Sequence[int]) -> Logits:
        key = zlib.crc32(np.asarray(tokens, np.int64).tobytes(), seed)
        return np.random.default_rng(key).standard_normal(n_vocab).astype(np.float32) * 3

    return logits


# How many tokens a scripted engine keeps for going on from, where its memory is sliding.
WINDOW = 8


class ScriptedEngine:
    """An `Engine` over a `Model`. `n_evaluated` counts the tokens of all evaluations."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        encode: Callable[[bytes], Sequence[int]],
        model: Model,
        *,
        n_ctx: int = 4096,
        n_batch: int = 512,
        n_sequences: int = 64,
        memory: Memory = "full",
    ) -> None:
        self.vocabulary = vocabulary
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.n_rows = 64
        self.n_sequences = n_sequences
        self.memory: Memory = memory
        self.can_branch = memory in ("full", "sliding")
        self.n_evaluated = 0
        self._encode = encode
        self._model = model
        self._next_id = 0
        self._tokens: dict[SequenceId, list[int]] = {}
        self._cells: dict[SequenceId, Cells] = {}
        self._cell_count = CellCount(n_ctx)
        self._evaluated: dict[SequenceId, TokenTree] = {}

    def encode(self, piece: bytes) -> list[int]:
        return list(self._encode(piece))

    def check_grammar(self, gbnf: str) -> None:
        check_texts(gbnf)

    def grammar(self, gbnf: str) -> TextsGrammar:
        return TextsGrammar.of(self.vocabulary, gbnf)

    @property
    def n_free(self) -> int:
        return self._cell_count.n_free

    def open(self) -> SequenceId:
        if len(self._tokens) == self.n_sequences:
            raise EngineError(f"all {self.n_sequences} sequences are in use")
        sequence = SequenceId(self._next_id)
        self._next_id += 1
        self._tokens[sequence] = []
        self._cells[sequence] = []
        return sequence

    def fork(self, sequence: SequenceId, n_tokens: int) -> SequenceId:
        if 0 < n_tokens < self.shortest(sequence):
            raise ValueError(f"sequence {sequence} cannot be forked at {n_tokens} tokens")
        tokens = self._get(sequence)[:n_tokens]
        fork = self.open()
        self._tokens[fork] = tokens
        self._cells[fork] = self._cells[sequence][:n_tokens]
        self._cell_count.share(self._cells[fork])
        return fork

    def shortest(self, sequence: SequenceId) -> int:
        n_tokens = len(self._get(sequence))
        if self.memory == "full":
            return 0
        return max(n_tokens - WINDOW, 0) if self.memory == "sliding" else n_tokens

    def save(self, sequence: SequenceId) -> SavedSequence:
        tokens = self._get(sequence)
        state = np.asarray(tokens, np.int32).view(np.uint8)
        return SavedSequence(tuple(tokens), state, self.shortest(sequence))

    def load(self, saved: SavedSequence) -> SequenceId:
        if len(saved.tokens) > self.n_free:
            raise EngineError(f"no room left in the context of {self.n_ctx} tokens")
        sequence = self.open()
        self._extend(sequence, saved.tokens)
        return sequence

    def only_here(self, sequence: SequenceId) -> int:
        self._get(sequence)
        return self._cell_count.n_only(self._cells[sequence])

    def tokens(self, sequence: SequenceId) -> Sequence[int]:
        return self._get(sequence)

    def evaluate(self, batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
        self._check_batch(batch)
        for sequence, tree in batch:
            self._evaluated.pop(sequence, None)
            for _ in tree.tokens:
                if abort is not None and abort.is_set:
                    raise Aborted("the evaluation was aborted")
        rows = []
        for sequence, tree in batch:
            self.n_evaluated += len(tree)
            self._evaluated[sequence] = tree
            rows.append(self._rows(self._tokens[sequence], tree))
        return rows

    def commit(self, sequence: SequenceId, node: int) -> None:
        self._get(sequence)
        tree = self._evaluated.pop(sequence, None)
        if tree is None or not 0 <= node < len(tree):
            raise ValueError(f"sequence {sequence} has no evaluated node {node}")
        path = tree.path(node)
        kept = path if self.can_branch else path[: tree.stem_length()]
        self._extend(sequence, [tree.tokens[i] for i in kept])

    def truncate(self, sequence: SequenceId, n_tokens: int) -> int:
        if n_tokens < self.shortest(sequence):
            n_tokens = 0
        self._cell_count.drop(self._cells[sequence][n_tokens:])
        del self._tokens[sequence][n_tokens:]
        del self._cells[sequence][n_tokens:]
        self._evaluated.pop(sequence, None)
        return len(self._tokens[sequence])

    def release(self, sequence: SequenceId) -> None:
        self._get(sequence)
        self._cell_count.drop(self._cells.pop(sequence))
        del self._tokens[sequence]
        self._evaluated.pop(sequence, None)

    def close(self) -> None:
        self._tokens.clear()
        self._evaluated.clear()

    def _extend(self, sequence: SequenceId, tokens: Sequence[int]) -> None:
        self._tokens[sequence].extend(tokens)
        self._cells[sequence].extend(self._cell_count.take(len(tokens)))

    def _get(self, sequence: SequenceId) -> list[int]:
        try:
            return self._tokens[sequence]
        except KeyError:
            raise ValueError(f"sequence {sequence} is not open") from None

    def _check_batch(self, batch: Batch) -> None:
        check_batch(batch, self.n_batch, self.vocabulary.n_vocab)
        for sequence, _ in batch:
            self._get(sequence)
        if sum(len(tree) for _, tree in batch) > self.n_free:
            raise EngineError(f"no room left in the context of {self.n_ctx} tokens")

    def _rows(self, tokens: list[int], tree: TokenTree) -> Logits:
        rows = [
            self._model([*tokens, *(tree.tokens[i] for i in tree.path(node))])
            for node in tree.wants
        ]
        return np.stack(rows) if rows else np.empty((0, self.vocabulary.n_vocab), np.float32)
