"""Whole candidates of a request, and in which order an answer has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from suture.server.request import CompletionRequest, CompletionResult, Edit, ScoredToken
from suture.server.shaping.guessing import named_or_guessed
from suture.server.shaping.line_ends import lf_only
from suture.server.shaping.surroundings import MAX_SIDE, Surroundings
from suture.server.shaping.syntax import Syntax


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


NErrors: TypeAlias = Callable[[Completed], int | None]
"""How many errors of syntax a file has with a candidate in its place; None where nobody knows."""


def parse_errors(request: CompletionRequest) -> NErrors:
    """What counts the errors around the cursor of a request."""

    def n_errors(candidate: Completed) -> int | None:
        edit = candidate.result.edit or Edit(0, candidate.text)
        prefix, suffix = request.prefix, request.suffix[edit.delete_after :]
        before, behind = lf_only(prefix[-MAX_SIDE:]), lf_only(suffix[:MAX_SIDE])
        around = Surroundings(
            before,
            behind,
            is_prefix_cut=len(prefix) > MAX_SIDE,
            is_suffix_cut=len(suffix) > MAX_SIDE,
            path=request.path,
            language=named_or_guessed(request.language, request.path, before, behind),
        )
        return Syntax(around).n_errors(lf_only(edit.text))

    return n_errors


def ranked(candidates: Sequence[Completed], n_errors: NErrors) -> list[Completed]:
    """Candidates by the errors of the file with them, and then by how sure the model is of them.

    Those of one text and edit are one, the first of them; the indices are new. One without text
    comes last.
    """
    alike: dict[tuple[str, Edit | None], Completed] = {}
    for candidate in candidates:
        key = candidate.text, candidate.result.edit
        first = alike.setdefault(key, candidate)
        if first is not candidate:
            n_merged = first.n_merged + candidate.result.completion_tokens
            alike[key] = replace(first, n_merged=n_merged)
    n_found = {key: n_errors(candidate) or 0 for key, candidate in alike.items()}

    def rank(key: tuple[str, Edit | None]) -> tuple[bool, int, float]:
        candidate = alike[key]
        is_empty = not candidate.text and candidate.result.edit in (None, Edit(0, ""))
        return is_empty, n_found[key], -(candidate.result.confidence or 0.0)

    best_first = sorted(alike, key=rank)
    return [replace(alike[key], index=index) for index, key in enumerate(best_first)]
