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
        ordered = sorted(contexts)
        low, high = ordered[0], ordered[-1]
        # The last of the shared tokens may have its row wanted.
        head = low[: max(common_length(low, high) - 1, 0)]
        # As much again as may be wanted on top of it is evaluated together with the rows.
        room = self._engine.n_batch - sum(len(context) - len(head) for context in ordered)
        sequence = self.start(low[: len(head) + 1], max(room, 0))
        try:
            found: dict[Ids, Row] = {}
            for first in range(0, len(ordered), self._engine.n_rows):
                group = ordered[first : first + self._engine.n_rows]
                found |= self._evaluate(sequence, head, group)
        except BaseException:
            self.kv.discard(sequence)
            raise
        self.kv.finish(sequence)
        return found

    def start(self, prompt_ids: Sequence[int], n_left: int = 0) -> SequenceId:
        """A sequence that holds the prompt but for its last token, and up to `n_left` before it."""
        engine, head = self._engine, prompt_ids[:-1]
        sequence = self.kv.start(prompt_ids)
        try:
            while (at := len(engine.tokens(sequence))) < len(head) - n_left:
                chunk = head[at : at + engine.n_batch]
                self.kv.make_room(len(chunk))
                engine.evaluate([(sequence, TokenTree.chain(chunk, wants=()))])
                engine.commit(sequence, len(chunk) - 1)
        except BaseException:
            self.kv.discard(sequence)
            raise
        return sequence

    def _evaluate(self, sequence: SequenceId, head: Ids, contexts: Sequence[Ids]) -> dict[Ids, Row]:
        """The rows of contexts that begin with `head`, which the sequence holds afterwards."""
        n_known = len(self._engine.tokens(sequence))
        node_of: dict[Ids, int] = {(): -1}
        tokens: list[int] = []
        parents: list[int] = []
        for context in contexts:
            path = context[n_known:]
            for end in range(1, len(path) + 1):
                if path[:end] not in node_of:
                    parents.append(node_of[path[: end - 1]])
                    node_of[path[:end]] = len(tokens)
                    tokens.append(path[end - 1])
        wants = tuple(node_of[context[n_known:]] for context in contexts)
        self.kv.make_room(len(tokens))
        [rows] = self._engine.evaluate(
            [(sequence, TokenTree(tuple(tokens), tuple(parents), wants))]
        )
        found = {context: self._log_probs(row) for context, row in zip(contexts, rows, strict=True)}
        if n_known < len(head):
            self._engine.commit(sequence, node_of[head[n_known:]])
        return found

    def _log_probs(self, row: Row) -> Row:
        row[self._banned_ids] = -np.inf
        return log_softmax_row(row)
