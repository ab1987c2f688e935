"""Answers that rejoin the text after the cursor, against an oracle that reads all at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.rejoining import Hole
from suture.server.shaping.rejoin import Rejoin

WORDS = ["foo", "ab", "x", "_", "foobar"]
BLANKS = ["\n", "\n", "\n    ", " ", "    ", "\n\n", "\t"]
SIGNS = [";", ", ", "é", "= "]
BRACKETS = ["(", ")", "\n)", "\n}\n"]


def texts(pieces: list[str], most: int = 8) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=most).map("".join)


@st.composite
def answers(draw: st.DrawFn, pieces: list[str]) -> tuple[Hole, str]:
    """A hole, and an answer that has said much of the suffix."""
    hole = Hole(draw(texts(pieces)), draw(texts(pieces)), draw(st.booleans()))
    ends = st.integers(0, len(hole.suffix))
    repeated = st.tuples(ends, ends).map(lambda ends: hole.suffix[min(ends) : max(ends)])
    parts = st.one_of(texts(pieces, most=3), repeated, st.just(hole.suffix))
    return hole, "".join(draw(st.lists(parts, max_size=5)))


def streamed(hole: Hole, *parts: str) -> tuple[str, bool]:
    rejoin = Rejoin(hole.prefix, hole.suffix, hole.is_cut_off)
    released = "".join(rejoin.feed(part) for part in parts) + rejoin.flush()
    assert rejoin.is_all == (rejoin.found and not released)
    return released, rejoin.found


@given(answers([*WORDS, *BLANKS, *SIGNS, *BRACKETS]), st.data())
def test_j1_j2_the_text_before_the_suffix_however_it_comes(
    answer: tuple[Hole, str], data: st.DataObject
) -> None:
    hole, text = answer
    at = hole.rejoin(text)
    expected = (text, False) if at is None else (text[:at], True)
    assert streamed(hole, text) == expected
    assert streamed(hole, *text) == expected
    cut = data.draw(st.integers(0, len(text)))
    assert streamed(hole, text[:cut], text[cut:]) == expected


@settings(max_examples=60)
@given(answers([*WORDS, *BLANKS, *SIGNS]))
def test_j3_held_is_what_may_still_become_a_rejoin(answer: tuple[Hole, str]) -> None:
    hole, text = answer
    rejoin = Rejoin(hole.prefix, hole.suffix, hole.is_cut_off)
    n_released = 0
    for end, character in enumerate(text, 1):
        n_released += len(rejoin.feed(character))
        if rejoin.found:
            return
        n_open = hole.is_open_at(text[:end])
        assert n_released == (end if n_open is None else n_open)


@given(texts([*WORDS, *BLANKS, *SIGNS, *BRACKETS]), texts(BLANKS))
def test_j1_before_a_blank_suffix_every_text_is_untouched(text: str, suffix: str) -> None:
    for part in (suffix, ""):
        rejoin = Rejoin("x", part)
        assert rejoin.feed(text) == text and rejoin.flush() == "" and not rejoin.found
