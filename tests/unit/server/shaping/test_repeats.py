"""Loops of lines and within a line."""

from __future__ import annotations

import pytest

from support.shaping import shaped
from suture.server.shaping.repeats import Repeats
from suture.server.shaping.surroundings import Surroundings


@pytest.mark.parametrize(
    ("prefix", "text", "n_lines"),
    [
        ("", "print(x)\n" * 20, 6),
        ("    ", "print(x)\n" + "    print(x)\n" * 20, 6),
        ("x = ", "1\nx = 1\n" + "x = 1\n" * 20, 6),
        ("", "a\n\n" * 20, 12),
        ("", "a\nb\n" * 20, 8),
        ("", "a\nb\nc\n" * 20, 9),
        ("", "a\nb\nc\nd\ne\nf\ng\nh\n" * 20, 24),
        ("", "0, 0,\n" * 50, 32),
    ],
)
def test_r1_a_loop_of_lines_ends_before_the_next_copy(prefix: str, text: str, n_lines: int) -> None:
    rule = Repeats(Surroundings(prefix))
    said = shaped(rule, *text)
    assert said == "".join(line + "\n" for line in text.split("\n")[:n_lines])
    assert rule.ended


@pytest.mark.parametrize(
    "text",
    ["print(x)\n" * 6, "a\nb\n" * 4, "a\nb\nc\n" * 3, "0, 0,\n" * 32, "x = 1\ny = 2\n" * 4 + "z"],
)
def test_r1_fewer_copies_are_none(text: str) -> None:
    assert shaped(Repeats(Surroundings("")), *text) == text


def test_r2_within_a_line_it_ends_where_the_run_is_too_long() -> None:
    for turn in ("a", "0, ", "very ", "a, b, c, "):
        rule = Repeats(Surroundings("x = ["))
        said = shaped(rule, *(turn * 500))
        assert said == (turn * 500)[:256] and rule.ended
    assert shaped(Repeats(Surroundings("")), "-" * 256 + "\n" + "-" * 256) == (
        "-" * 256 + "\n" + "-" * 256
    )


def test_r3_what_stands_above_does_not_count() -> None:
    around = Surroundings("print(x)\n" * 20)
    assert shaped(Repeats(around), "print(x)\nprint(y)\n") == "print(x)\nprint(y)\n"
    assert shaped(Repeats(around), "print(x)\n" * 32) == "print(x)\n" * 32
    assert shaped(Repeats(around), "print(x)\n" * 40) == "print(x)\n" * 32


def test_a_line_is_held_only_where_it_may_prove_the_loop() -> None:
    rule = Repeats(Surroundings(""))
    assert rule.feed("ab\n" * 6 + "a") == "ab\n" * 6
    assert rule.feed("c") == "ac"
