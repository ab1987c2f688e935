"""Holes in real code, with the closers that editors have written, and models that write them again.

Whatever of them a model says once more, the file has the brackets that it had; and what it says
right stays as it is.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bracket_holes import FAR, Hole, brackets, documents, holes
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings

HOLES = holes(520)
WHOLE = 1_000_000
# Those at an answer's end are left out (`tails.py`), which is no bracket's fault.
BLANK_LINES = re.compile(r"[ \t]*\n\s*\n")


def test_the_holes_are_of_all_kinds_and_languages() -> None:
    assert len(HOLES) == 520
    kinds = Counter(hole.kind for hole in HOLES)
    assert all(kinds[kind] > 50 for kind in ("call", "subscript", "string", "block"))
    assert len({hole.path.rpartition(".")[2] for hole in HOLES}) == 10
    behind = Counter(place_of(hole) for hole in HOLES)
    assert all(behind[place] > 50 for place in ("only closers", "closers and more", "next line"))


def test_of_real_code_no_closer_is_doubled_or_lost() -> None:
    assert not list(wrong(HOLES, knows=True))


def test_without_a_grammar_only_comments_mislead() -> None:
    """Brackets that only comments have are counted where no parse tells them from others."""
    assert len({n for n, *_ in wrong(HOLES[::2], knows=False)}) <= 2


@pytest.mark.parametrize("path", ["solution.py", None])
def test_of_humanevals_spans_none_is_cut(path: str | None) -> None:
    data = Path(__file__).parents[2] / "benchmarks" / "data"
    with gzip.open(data / "HumanEval-RandomSpanInfillingLight.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            shaper = Shaper(Surroundings(row["prompt"], row["suffix"], path=path), row["prompt"])
            text = row["canonical_solution"]
            assert shaper.feed(text) + shaper.flush() in (text, text.rstrip())


def wrong(some_holes: list[Hole], knows: bool) -> Iterator[tuple[int, str, str, str]]:
    """The holes whose documents have other brackets with an answer, the answer and a document."""
    for n, hole in enumerate(some_holes):
        true = brackets(hole.path, hole.document)
        n_part, shown = (1, 3, WHOLE)[n % 3], (WHOLE, FAR)[n % 2]
        for name, answer in hole.answers().items():
            for made in documents(hole, answer, n_part, shown, knows):
                is_right = name != "the middle" and brackets(hole.path, made) == true
                is_same = BLANK_LINES.sub("\n", made) == BLANK_LINES.sub("\n", hole.document)
                if not is_same and not is_right:
                    yield n, name, answer, made[len(hole.before) - 60 :][: len(answer) + 120]


def place_of(hole: Hole) -> str:
    """Where the closers stand behind the cursor."""
    rest = hole.behind.partition("\n")[0]
    if not rest.strip():
        return "next line"
    return "closers and more" if rest.strip(")]}\"'` \t") else "only closers"
