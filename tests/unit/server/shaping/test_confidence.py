"""S2 to S4 of the rule that leaves out what a model is unsure of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.request import Shape
from suture.server.shaping.confidence import Unsure
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings

Token = tuple[str, float]


def left_of(tokens: Sequence[Token], threshold: float) -> tuple[str, Unsure]:
    """What is left of a text that is fed token by token, each with its probability."""
    rule = Unsure(threshold)
    left, start = "", 0
    for text, probability in tokens:
        rule.note(start, math.log(probability))
        left += rule.feed(text)
        start += len(text)
    return left + rule.flush(), rule


def expected(tokens: Sequence[Token], threshold: float) -> str:
    """The same, by the definition: whole lines by the tokens that begin in them."""
    text = "".join(said for said, _ in tokens)
    starts = [len("".join(said for said, _ in tokens[:n])) for n in range(len(tokens))]
    at, kept = 0, 0
    for line in text.splitlines(keepends=True):
        within = [
            math.log(probability)
            for start, (_, probability) in zip(starts, tokens, strict=True)
            if at <= start < at + len(line)
        ]
        if within and math.exp(sum(within) / len(within)) < threshold:
            return text[: max(kept - 1, 0)]
        at = kept = at + len(line)
    return text


@pytest.mark.parametrize(
    ("threshold", "left", "refused_all"),
    [
        (0.0, "a b\nc d\ne", None),
        (0.4, "a b\nc d\ne", None),
        (0.55, "a b\nc d", None),
        (0.65, "a b", None),
        (0.85, "", math.sqrt(0.8 * 0.8)),
    ],
)
def test_the_text_ends_before_the_first_line_that_is_unsure(
    threshold: float, left: str, refused_all: float | None
) -> None:
    tokens = [("a", 0.8), (" b\n", 0.8), ("c", 0.9), (" d\n", 0.4), ("e", 0.5)]
    text, rule = left_of(tokens, threshold)
    assert text == left
    assert rule.fired == rule.ended == (left != "a b\nc d\ne")
    assert rule.refused_all == pytest.approx(refused_all)


def test_a_token_is_of_the_line_in_which_it_begins() -> None:
    over = [("a", 0.9), ("\n\nb", 0.1), (" c", 0.9)]
    assert left_of(over, 0.35)[0] == ""
    assert left_of(over, 0.25)[0] == "a\n\nb c"
    assert left_of([("a", 0.9), ("\n\nb", 0.9), (" c", 0.1)], 0.35)[0] == "a\n"


def test_an_empty_first_line_is_judged_by_its_line_end() -> None:
    assert left_of([("\n", 0.1), ("a", 0.9)], 0.5)[0] == ""
    assert left_of([("\n", 0.9), ("a", 0.1)], 0.5)[0] == ""
    assert left_of([("\n", 0.9), ("a", 0.1)], 0.5)[1].refused_all is None


@given(
    st.lists(
        st.tuples(st.text("ab\n", min_size=1, max_size=3), st.sampled_from([0.1, 0.5, 0.9, 1.0])),
        max_size=12,
    ),
    st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]),
)
def test_s3_lines_are_judged_as_they_are_defined(tokens: list[Token], threshold: float) -> None:
    left, rule = left_of(tokens, threshold)
    assert left == expected(tokens, threshold)
    assert "".join(said for said, _ in tokens).startswith(left)
    # Fed at once it is the same.
    at_once, start = Unsure(threshold), 0
    for said, probability in tokens:
        at_once.note(start, math.log(probability))
        start += len(said)
    assert at_once.feed("".join(said for said, _ in tokens)) + at_once.flush() == left
    assert at_once.refused_all == rule.refused_all


def test_s2_what_is_left_stays() -> None:
    rule = Unsure(0.5)
    assert rule.feed("a\nb") + rule.flush() == "a\nb"
    assert not rule.fired


def test_s4_the_line_being_said_is_held_and_no_more() -> None:
    rule = Unsure(0.5)
    assert [rule.feed(part) for part in ("a", "b\n", "c", "\nd")] == ["", "ab", "", "\nc"]
    assert rule.flush() == "\nd"


@pytest.mark.parametrize(
    ("shape", "leaves_out", "text"),
    [("auto", True, "1"), ("raw", True, "1\n2"), ("auto", False, "1\n2")],
)
def test_where_all_of_the_text_is_wanted_nothing_is_left_out(
    shape: Shape, leaves_out: bool, text: str
) -> None:
    shaper = Shaper(Surroundings(""), "", shape, leaves_out, min_confidence=0.5)
    shaper.note(0, math.log(0.9))
    shaper.note(2, math.log(0.1))
    assert shaper.feed("1\n2") + shaper.flush() == text
    assert shaper.rules == (("unsure",) if text == "1" else ())
    assert shaper.unsure_of_all is None
