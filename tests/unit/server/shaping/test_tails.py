"""The blank end of an answer."""

from __future__ import annotations

import pytest

from support.shaping import shaped
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.tails import Tail


@pytest.mark.parametrize(
    ("suffix", "text", "inserted"),
    [
        ("", "x  \n\n  ", "x"),
        ("\ny", "x\n\n", "x"),
        ("  \ny", "x\n", "x"),
        ("", "\n  \n", ""),
        ("", "\n  x", "\n  x"),
        ("y", "x\n", "x\n"),
        (")\n", "a,\n", "a,\n"),
        ("  y\n", "x ", "x "),
    ],
)
def test_t1_blanks_at_the_end_are_left_out_before_a_line_end(
    suffix: str, text: str, inserted: str
) -> None:
    rule = Tail(Surroundings("x = ", suffix))
    assert shaped(rule, *text) == inserted
    assert rule.fired == (text != inserted) and not rule.ended


def test_t1_before_closers_the_line_end_stays_if_they_still_close_something() -> None:
    around = Surroundings("f(", "\n", rest=")")
    assert shaped(Tail(around), "\n    a,\n") == "\n    a,\n"
    assert shaped(Tail(around), "\n    a,\n)\n") == "\n    a,\n)"


def test_t1_before_the_end_of_a_string_of_many_lines_the_line_end_stays() -> None:
    around = Surroundings('def f():\n    """Return', "\n", rest='"""')
    assert shaped(Tail(around), *" it.\n\n    ") == " it.\n\n    "
    assert shaped(Tail(around), *' it."""\n\n') == ' it."""'


def test_t1_in_prose_the_last_lines_own_blanks_stay() -> None:
    around = Surroundings("One\n", "\n", path="x.md")
    assert shaped(Tail(around), *"two  \n \n") == "two  "
    assert shaped(Tail(around), *"  \n ") == ""


def test_t1_where_the_text_below_is_not_known_nothing_is_left_out() -> None:
    assert shaped(Tail(Surroundings("x", "", is_suffix_cut=True)), "y\n") == "y\n"


def test_t2_held_are_blanks_only() -> None:
    rule = Tail(Surroundings("x = ", "\n"))
    assert [rule.feed(part) for part in ("a ", "b", "\n\n", "c", "\n")] == [
        *("a", " b", "", "\n\nc", ""),
    ]
