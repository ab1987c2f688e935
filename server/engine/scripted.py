"""An engine without a model: logits come from a function of the tokens before.

It is bit-exact, so that what the engine's users promise (the same result cold and warm, drafted
and not) can be tested exactly; tests, demos and contributors without a model use it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from suture.healing import Vocabulary
from suture.server.engine.protocol import Aborted, Batch, Logits, SequenceId, check_batch
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
        return vocabulary.ids_of(rest[:n])[0] if n else end

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
    ) -> None:
        self.vocabulary = vocabulary
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.n_rows = 64
        self.n_evaluated = 0
        self.should_abort: Callable[[], bool] = lambda: False
        self._encode = encode
        self._model = model
        self._next_id = 0
        self._tokens: dict[SequenceId, list[int]] = {}
        self._evaluated: dict[SequenceId, TokenTree] = {}

    def encode(self, piece: bytes) -> list[int]:
        return list(self._encode(piece))

    def open(self) -> SequenceId:
        sequence = SequenceId(self._next_id)
        self._next_id += 1
        self._tokens[sequence] = []
        return sequence

    def tokens(self, sequence: SequenceId) -> Sequence[int]:
        return self._get(sequence)

    def evaluate(self, batch: Batch) -> list[Logits]:
        self._check_batch(batch)
        for sequence, tree in batch:
            self._evaluated.pop(sequence, None)
            for _ in tree.tokens:
                if self.should_abort():
                    raise Aborted("the evaluation was aborted")
        rows = []
        for sequence, tree in batch:
            self.n_evaluated += len(tree)
            self._evaluated[sequence] = tree
            rows.append(self._rows(self._tokens[sequence], tree))
        return rows

    def commit(self, sequence: SequenceId, node: int) -> None:
        tokens = self._get(sequence)
        tree = self._evaluated.pop(sequence, None)
        if tree is None or not 0 <= node < len(tree):
            raise ValueError(f"sequence {sequence} has no evaluated node {node}")
        tokens.extend(tree.tokens[i] for i in tree.path(node))

    def truncate(self, sequence: SequenceId, n_tokens: int) -> int:
        del self._get(sequence)[n_tokens:]
        self._evaluated.pop(sequence, None)
        return len(self._tokens[sequence])

    def release(self, sequence: SequenceId) -> None:
        self._get(sequence)
        del self._tokens[sequence]
        self._evaluated.pop(sequence, None)

    def close(self) -> None:
        self._tokens.clear()
        self._evaluated.clear()

    def _get(self, sequence: SequenceId) -> list[int]:
        try:
            return self._tokens[sequence]
        except KeyError:
            raise ValueError(f"sequence {sequence} is not open") from None

    def _check_batch(self, batch: Batch) -> None:
        check_batch(batch, self.n_batch, self.vocabulary.n_vocab)
        for sequence, _ in batch:
            self._get(sequence)
        held = sum(len(tokens) for tokens in self._tokens.values())
        if held + sum(len(tree) for _, tree in batch) > self.n_ctx:
            raise EngineError(f"no room left in the context of {self.n_ctx} tokens")

    def _rows(self, tokens: list[int], tree: TokenTree) -> Logits:
        rows = [
            self._model([*tokens, *(tree.tokens[i] for i in tree.path(node))])
            for node in tree.wants
        ]
        return np.stack(rows) if rows else np.empty((0, self.vocabulary.n_vocab), np.float32)
