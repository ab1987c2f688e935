"""What the model says behind some texts: one tree for all of them, on what the cache holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from suture.healing.posterior import Row, log_softmax_row
from suture.server.engine.kv import KvCache, common_length
from suture.server.engine.protocol import Engine, SequenceId
from suture.server.engine.tree import TokenTree

Ids = tuple[int, ...]


class Rows:
    """Log probabilities of the next token, by the tokens before it; on the engine's thread.

    `banned_ids` are what is never drawn, and has no probability.
    """

    def __init__(self, engine: Engine, banned_ids: Iterable[int]) -> None:
        self._engine = engine
        self._banned_ids = np.fromiter(banned_ids, np.intp)
        self.kv = KvCache(engine)

    def behind(self, contexts: Collection[Ids]) -> dict[Ids, Row]:
        """A row for each context; what they share at their beginning is evaluated once."""
        low, high = min(contexts), max(contexts)
        # The last of the shared tokens may have its row wanted.
        head = low[: max(common_length(low, high) - 1, 0)]
        sequence = self.start(low[: len(head) + 1])
        try:
            found: dict[Ids, Row] = {}
            ordered = sorted(contexts)
            for first in range(0, len(ordered), self._engine.n_rows):
                group = ordered[first : first + self._engine.n_rows]
                found |= self._evaluate(sequence, len(head), group)
        except BaseException:
            self.kv.discard(sequence)
            raise
        self.kv.finish(sequence)
        return found

    def start(self, prompt_ids: Sequence[int]) -> SequenceId:
        """A sequence that holds the prompt but for its last token."""
        engine, head = self._engine, prompt_ids[:-1]
        sequence = self.kv.start(prompt_ids)
        try:
            while n_known := len(head) - len(engine.tokens(sequence)):
                at = len(head) - n_known
                chunk = head[at : at + engine.n_batch]
                self.kv.make_room(len(chunk))
                engine.evaluate([(sequence, TokenTree.chain(chunk, wants=()))])
                engine.commit(sequence, len(chunk) - 1)
        except BaseException:
            self.kv.discard(sequence)
            raise
        return sequence

    def _evaluate(
        self, sequence: SequenceId, n_head: int, contexts: Sequence[Ids]
    ) -> dict[Ids, Row]:
        node_of: dict[Ids, int] = {(): -1}
        tokens: list[int] = []
        parents: list[int] = []
        for context in contexts:
            path = context[n_head:]
            for end in range(1, len(path) + 1):
                if path[:end] not in node_of:
                    parents.append(node_of[path[: end - 1]])
                    node_of[path[:end]] = len(tokens)
                    tokens.append(path[end - 1])
        wants = tuple(node_of[context[n_head:]] for context in contexts)
        self.kv.make_room(len(tokens))
        [rows] = self._engine.evaluate(
            [(sequence, TokenTree(tuple(tokens), tuple(parents), wants))]
        )
        return {context: self._log_probs(row) for context, row in zip(contexts, rows, strict=True)}

    def _log_probs(self, row: Row) -> Row:
        row[self._banned_ids] = -np.inf
        return log_softmax_row(row)
