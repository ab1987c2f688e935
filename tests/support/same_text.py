"""Whether two engines say the same of one model, their arithmetic apart."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

# In nats: by how much a log probability may differ. llama.cpp keeps keys and values in half
# precision and adds up in it.
NOISE = 0.15
# Between the best token and the next one: engines that differ there are at a tie.
TIE = 2 * NOISE

Record = Callable[[str, object], None]


def assert_same_text(theirs: bytes, ours: dict[str, Any], record: Record) -> None:
    """That a text begins with that of our own answer, or parts from it where ours was at a tie.

    `ours` is an answer of `/completion` or `/infill` at temperature 0 with `n_probs` 2.
    """
    same = theirs.startswith(ours["content"].encode())
    record("the same text", int(same))
    record("another one at a tie", int(not same))
    if not same:
        assert margin_where_they_part(theirs, ours) < TIE, (theirs.decode(), ours["content"])


def margin_where_they_part(theirs: bytes, ours: dict[str, Any]) -> float:
    """By how much our engine preferred the token at which the texts begin to differ."""
    spelled = b""
    for entry in ours["completion_probabilities"]:
        spelled += bytes(entry["bytes"])
        if not theirs.startswith(spelled):
            best, *others = (float(one["logprob"]) for one in entry["top_logprobs"])
            return best - max(others, default=-inf)
    raise AssertionError(f"{theirs!r} does not part from {ours['content']!r} at a token")
