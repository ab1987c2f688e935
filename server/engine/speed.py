"""How fast this machine reads a prompt with this model: what prompts are sized by."""

from __future__ import annotations

import time

from suture.server.engine.protocol import Engine, SequenceId
from suture.server.engine.scheduler import PREFILL_CHUNK
from suture.server.engine.tree import TokenTree


def measure_prefill(engine: Engine) -> float:
    """Prompt tokens evaluated per second, in chunks as the scheduler makes them.

    It also warms the model up: the first chunk pages the weights in and is not counted. Costs
    about two chunks' time; must be called on the engine's thread.
    """
    ids = engine.vocabulary.sorted_ids
    n = min(PREFILL_CHUNK, engine.n_batch, engine.n_ctx // 2)
    chunk = TokenTree.chain([int(ids[i * len(ids) // n]) for i in range(n)])
    sequence = engine.open()
    try:
        elapsed = [_evaluate(engine, sequence, chunk) for _ in range(2)]
    finally:
        engine.release(sequence)
    return n / max(elapsed[1], 1e-6)


def _evaluate(engine: Engine, sequence: SequenceId, chunk: TokenTree) -> float:
    started = time.perf_counter()
    engine.evaluate([(sequence, chunk)])
    engine.commit(sequence, len(chunk) - 1)
    return time.perf_counter() - started
