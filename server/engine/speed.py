"""How fast this machine reads a prompt with this model: what prompts are sized by."""

from __future__ import annotations

import time
from collections.abc import Callable

from suture.server.engine.protocol import Engine, SequenceId
from suture.server.engine.runs import PREFILL_CHUNK
from suture.server.engine.tree import TokenTree

MAX_CHUNKS = 4
ENOUGH_S = 1.5


def _always() -> bool:
    return True


def measure_prefill(engine: Engine, may_go_on: Callable[[], bool] = _always) -> float:
    """Prompt tokens evaluated per second, in chunks as the scheduler makes them.

    It also warms the model up. The best of some chunks counts, as what else runs on the machine
    only ever slows one down; that takes a second or two. Must be called on the engine's thread.
    `may_go_on` is asked between chunks.
    """
    warm_up(engine)
    may_go_on()
    chunk = _chunk(engine, PREFILL_CHUNK)
    sequence = engine.open()
    try:
        elapsed = [_evaluate(engine, sequence, chunk)]
        while len(elapsed) < MAX_CHUNKS and sum(elapsed) < ENOUGH_S and may_go_on():
            elapsed.append(_evaluate(engine, sequence, chunk))
    finally:
        engine.release(sequence)
    return len(chunk) / max(min(elapsed), 1e-6)


def warm_up(engine: Engine) -> None:
    """Have the weights in memory before the first request. On the engine's thread."""
    sequence = engine.open()
    try:
        # A single token is read with all the weights, as a long prompt is.
        _evaluate(engine, sequence, _chunk(engine, 1))
    finally:
        engine.release(sequence)


def _chunk(engine: Engine, n: int) -> TokenTree:
    """As many tokens, or as few as the engine takes, from all over the vocabulary."""
    ids = engine.vocabulary.sorted_ids
    n = min(n, engine.n_batch, engine.n_ctx // (MAX_CHUNKS + 1))
    return TokenTree.chain([int(ids[i * len(ids) // n]) for i in range(n)])


def _evaluate(engine: Engine, sequence: SequenceId, chunk: TokenTree) -> float:
    started = time.perf_counter()
    engine.evaluate([(sequence, chunk)])
    engine.commit(sequence, len(chunk) - 1)
    return time.perf_counter() - started
