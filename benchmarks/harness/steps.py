"""What evaluations of so many tokens at once cost: what drafts are paid with."""

from __future__ import annotations

import time
from pathlib import Path

from suture.server.engine.llama import LlamaEngine
from suture.server.engine.protocol import SequenceId
from suture.server.engine.tree import TokenTree

N_BEFORE = 256


def step_costs(path: Path, n_threads: int, n_most: int, n_rounds: int) -> dict[int, float]:
    """Seconds for each number of tokens up to `n_most`, a row for each of them; the best of the
    rounds, behind `N_BEFORE` tokens."""
    engine = LlamaEngine(path, n_threads=n_threads, n_ctx=2 * N_BEFORE)
    try:
        sequence = engine.open()
        ids = [int(i) for i in engine.vocabulary.sorted_ids[: N_BEFORE + n_most]]
        engine.evaluate([(sequence, TokenTree.chain(ids[:N_BEFORE]))])
        engine.commit(sequence, N_BEFORE - 1)
        costs = dict.fromkeys(range(1, n_most + 1), float("inf"))
        for _ in range(n_rounds):
            for n_tokens in costs:
                elapsed = _step(engine, sequence, ids[-n_tokens:])
                costs[n_tokens] = min(costs[n_tokens], elapsed)
        return costs
    finally:
        engine.close()


def _step(engine: LlamaEngine, sequence: SequenceId, ids: list[int]) -> float:
    tree = TokenTree.chain(ids, wants=range(len(ids)))
    started = time.perf_counter()
    engine.evaluate([(sequence, tree)])
    elapsed = time.perf_counter() - started
    engine.truncate(sequence, N_BEFORE)
    return elapsed
