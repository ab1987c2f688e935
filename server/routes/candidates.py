"""Whole candidates of a request, and in which order an answer has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from suture.server.request import CompletionResult, Edit, ScoredToken


@dataclass(frozen=True, slots=True)
class Completed:
    """A whole candidate: the joined text, token ids and scores of its chunks, and the result.

    `n_merged` tokens were generated for others that came to the same text.
    """

    text: str
    token_ids: list[int]
    result: CompletionResult
    index: int = 0
    scores: tuple[ScoredToken, ...] = ()
    n_merged: int = 0


NErrors: TypeAlias = Callable[[str], int | None]
"""How many errors of syntax a text adds to its place; None where nobody knows."""


def unjudged(text: str) -> int | None:
    """Nobody knows."""
    return None


def ranked(candidates: Sequence[Completed], n_errors: NErrors = unjudged) -> list[Completed]:
    """Candidates by the errors that they add, and then by how sure the model is of their tokens.

    Those of one text and edit are one, the first of them; the indices are new. Without errors and
    scores they stay in their order. One without text comes last.
    """
    if len(candidates) == 1:
        return list(candidates)
    alike: dict[tuple[str, Edit | None], Completed] = {}
    for candidate in candidates:
        key = candidate.text, candidate.result.edit
        first = alike.setdefault(key, candidate)
        if first is not candidate:
            n_merged = first.n_merged + candidate.result.completion_tokens
            alike[key] = replace(first, n_merged=n_merged)
    n_added = {key: n_errors(key[0]) or 0 for key in alike}

    def rank(key: tuple[str, Edit | None]) -> tuple[bool, int, float]:
        candidate = alike[key]
        is_empty = not candidate.text and candidate.result.edit in (None, Edit(0, ""))
        return is_empty, n_added[key], -(candidate.result.confidence or 0.0)

    best_first = sorted(alike, key=rank)
    return [replace(alike[key], index=index) for index, key in enumerate(best_first)]
