"""What shaping has left of a text is found again in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.shaping.alignment import Alignment


def aligned(said: str, left: str) -> str:
    """What of the text stands in what is left, the rest as dots."""
    alignment = Alignment()
    alignment.say(said)
    found = {at for at, _ in alignment.leave(left)}
    return "".join(char if at in found else "." for at, char in enumerate(said))


@given(st.text("ab \t\r\n", max_size=30), st.integers(0, 30))
def test_a_beginning_is_itself_in_any_parts(text: str, n: int) -> None:
    alignment = Alignment()
    alignment.say(text)
    pairs = [*alignment.leave(text[:n]), *alignment.leave(text[n:])]
    assert pairs == [(at, at) for at in range(len(text))]
    assert alignment.n_said == len(text)


@pytest.mark.parametrize(
    ("said", "left", "found"),
    [
        ("a\nb", "a\r\nb", "a\nb"),
        ("a\nb", "a\rb", "a\nb"),
        ("a\n\nb", "a\r\n\r\nb", "a\n\nb"),
        ("a\r\rb", "a\r\n\r\nb", "a\r\rb"),
        ("a\r\n\nb", "a\r\n\r\nb", "a\r\n\nb"),
        ("a\n    b", "a\n\tb", "a\n    b"),
        ("a\n\t\tb", "a\n        b", "a\n\t\tb"),
        ("a\n\tb", "a\n    b", "a\n\tb"),
        ("  a b", "a b", "..a b"),
        ("a  \nb", "a\nb", "a..\nb"),
        ("a\n\n\nb", "a\nb", "a\n..b"),
        # Known by nothing but its last letter.
        ("foo bar\nfoo baz", "foo baz", "foo ba........z"),
        ("x = 1\ny = 2", "y = 2", "......y = 2"),
        ("abc", "ab", "ab."),
        ("abc", "", "..."),
    ],
)
def test_blanks_and_line_ends_are_the_same_and_what_is_left_out_is_passed(
    said: str, left: str, found: str
) -> None:
    assert aligned(said, left) == found


def test_offsets_count_what_is_left() -> None:
    alignment = Alignment()
    alignment.say("a\n    b\nc")
    pairs = [*alignment.leave("a\r"), *alignment.leave("\n\tb\r\nc")]
    assert pairs == [(0, 0), (1, 1), *((at, 3) for at in range(2, 6)), (6, 4), (7, 5), (8, 7)]
