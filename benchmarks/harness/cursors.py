"""Cursors in programs, by how many tokens before them are not the finished text's."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from harness.texts import human_eval_programs
from suture.healing import Encode, Vocabulary

N_CONTEXT = range(64, 161)
STRATA = ("0", "1", "2+")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a program, at which `typed` has been typed since a line's beginning.

    `typed_ids` are its tokens, of which the last `n_needed` are not the finished text's. Those are
    `aligned_ids` up to the token that the last typed byte is of, and `rest` is what that token has
    behind the cursor; where it ends there, all of the next one.
    """

    typed: bytes
    rest: bytes
    typed_ids: tuple[int, ...]
    aligned_ids: tuple[int, ...]
    aligned_bytes: int
    n_needed: int

    @property
    def stratum(self) -> str:
        return STRATA[min(self.n_needed, 2)]


def human_eval_cursors(
    n: int, encode: Encode, vocabulary: Vocabulary
) -> tuple[list[Cursor], dict[str, float]]:
    """`n` of each stratum in HumanEval's bodies, and the share that each has of all cursors.

    At most two of a stratum are of the same program.
    """
    found: dict[str, list[Cursor]] = {stratum: [] for stratum in STRATA}
    counts: Counter[str] = Counter()
    for header, body in human_eval_programs():
        if not (header + body).isascii():
            continue
        of_program = list(_cursors(header, body, encode, vocabulary))
        counts.update(cursor.stratum for cursor in of_program)
        random.Random(header).shuffle(of_program)
        for stratum in STRATA:
            found[stratum] += [c for c in of_program if c.stratum == stratum][:2]
    for cursors in found.values():
        random.Random(0).shuffle(cursors)
    chosen = [cursor for stratum in STRATA for cursor in found[stratum][:n]]
    return chosen, {stratum: counts[stratum] / counts.total() for stratum in STRATA}


def _cursors(header: str, body: str, encode: Encode, vocabulary: Vocabulary) -> Iterator[Cursor]:
    """All that have enough text before them, from a line's beginning on."""
    program = (header + body).encode()
    lines = [0, *(at + 1 for at, byte in enumerate(program) if byte == 0x0A)]
    ends = list(accumulate(len(vocabulary.bytes_of(i)) for i in encode(program)))
    tokens_from: dict[int, tuple[int, ...]] = {}
    for at in range(len(header), len(program)):
        n_before = bisect_right(ends, at)
        near = (s for s in lines if n_before - bisect_right(ends, s) in N_CONTEXT)
        start = max(near, default=None)
        if start is None:
            continue
        if start not in tokens_from:
            tokens_from[start] = tuple(encode(program[start:]))
        cursor = _cursor(program[start:at], tokens_from[start], encode, vocabulary)
        if cursor is not None:
            yield cursor


def _cursor(
    typed: bytes, true_ids: tuple[int, ...], encode: Encode, vocabulary: Vocabulary
) -> Cursor | None:
    """None at the last token, behind which nothing is known."""
    typed_ids = tuple(encode(typed))
    n_common = 0
    for ours, true in zip(typed_ids, true_ids, strict=False):
        if ours != true:
            break
        n_common += 1
    end, index = 0, -1
    while end < len(typed):
        index += 1
        end += len(vocabulary.bytes_of(true_ids[index]))
    if index + 1 >= len(true_ids):
        return None
    last = vocabulary.bytes_of(true_ids[index])
    n_behind = end - len(typed)
    rest = last[len(last) - n_behind :] if n_behind else vocabulary.bytes_of(true_ids[index + 1])
    return Cursor(
        typed,
        rest,
        typed_ids,
        true_ids[:index],
        end - len(last),
        len(typed_ids) - n_common,
    )
