"""The rules as one: what they make together of a text that comes in parts."""

import sys
from typing import Any

import pytest

from suture.server.request import Edit, Shape
from suture.server.shaping.line_ends import LineEnd
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings


def shaped(shaper: Shaper, *parts: str) -> str:
    return "".join([*map(shaper.feed, parts), shaper.flush()])


def test_without_surroundings_a_text_stays_as_it_is() -> None:
    shaper = Shaper(Surroundings(""), "")
    assert shaped(shaper, "a = 1\n", "b = 2") == "a = 1\nb = 2"
    assert shaper.rules == ()
    assert not shaper.is_over


def test_the_text_ends_where_it_reaches_the_suffix() -> None:
    shaper = Shaper(Surroundings("x = ", "\nprint(x)\n"), "x = ")
    assert shaped(shaper, "1\npri", "nt(x)\n", "more") == "1"
    assert shaper.rules == ("suffix",)
    assert shaper.is_over and shaper.has_rejoined and not shaper.has_only_rejoined


@pytest.mark.parametrize(("shape", "leaves_out"), [("raw", True), ("auto", False)])
def test_who_wants_all_of_the_text_gets_it(shape: Shape, leaves_out: bool) -> None:
    shaper = Shaper(Surroundings("x = ", "\nprint(x)\n"), "x = ", shape, leaves_out)
    assert shaped(shaper, "1\nprint(x)\n") == "1\nprint(x)\n"
    assert shaper.rules == ()


def test_line_ends_and_closers_are_named_where_they_change_something() -> None:
    shaper = Shaper(Surroundings("f(", "\n", rest=")", line_end="\r\n"), "f(")
    assert shaped(shaper, "a)\nb = 1\n") == "a"
    assert shaper.edit == Edit(1, "a)\r\nb = 1")
    assert shaper.rules == ("tail", "line_ends", "closers")


@pytest.mark.parametrize(
    ("shape", "inserted", "rules"),
    [
        ("auto", "f():\n    return 1", ("scope", "tail")),
        ("block", "f():\n    return 1", ("scope", "tail")),
        ("line", "f():\n    return 1\n\ndef g():\n    return 2", ("tail",)),
    ],
)
def test_a_block_ends_where_it_does_and_of_a_line_the_stop_string_does_that(
    shape: Shape, inserted: str, rules: tuple[str, ...]
) -> None:
    text = "f():\n    return 1\n\ndef g():\n    return 2\n"
    for parts in ((text,), tuple(text)):
        shaper = Shaper(Surroundings("def "), "def ", shape)
        assert shaped(shaper, *parts) == inserted
        assert shaper.rules == rules
        assert shaper.is_over == ("scope" in rules) and not shaper.has_rejoined


def test_what_is_said_behind_the_end_fires_nothing() -> None:
    """The rejoin comes before the scope, and may see more of a text that comes at once."""
    around = Surroundings("if a:\n    ", "\n    c = compute()\n")
    for parts in (("b()\nd()\n    c = compute()\n",), tuple("b()\nd()\n    c = compute()\n")):
        shaper = Shaper(around, around.prefix)
        assert shaped(shaper, *parts) == "b()"
        assert shaper.rules == ("scope", "tail")
        assert shaper.is_over and not shaper.has_rejoined


def test_the_rejoin_compares_what_is_written_as_the_file_is() -> None:
    around = Surroundings("func f() {\n\tif a {\n\t\t", "\n\t\tcompute(b)\n\t}\n}\n", path="x.go")
    shaper = Shaper(around, around.prefix)
    assert shaped(shaper, *"        c()\n        compute(b)\n") == "c()"
    assert shaper.rules == ("indent", "tabs", "suffix")


def test_whether_anything_was_left_is_known() -> None:
    shaper = Shaper(Surroundings("x = 1", "\nprint(x)\n"), "x = 1")
    assert shaped(shaper, "\nprint(x)\n") == ""
    assert shaper.says_nothing and shaper.has_only_rejoined


def test_between_cr_and_lf_a_text_that_goes_on_with_the_line_is_left_out() -> None:
    around = Surroundings("x = 1", "\ny = 2\n", line_end="\r\n", is_between_cr_and_lf=True)
    shaper = Shaper(around, "x = 1\r")
    assert shaped(shaper, " + 2") == ""
    assert shaper.is_over and shaper.says_nothing
    shaper = Shaper(around, "x = 1\r")
    assert shaped(shaper, "\nz", " = 2") == "\nz = 2\r"
    assert not shaper.is_over and shaper.rules == ("line_ends",)


def test_an_edit_that_ends_the_text_is_named_though_it_writes_no_closer() -> None:
    shaper = Shaper(Surroundings("f", "\nelse:\n", rest="])", path="x.js"), "f")
    assert shaped(shaper, "a);\nb") == "a"
    assert shaper.edit == Edit(0, "a") and shaper.rules == ("closers",)


@pytest.mark.parametrize("parts", [("1 ",), ("1", " ")])
def test_what_is_left_out_inside_a_line_end_is_so_for_that_alone(parts: tuple[str, ...]) -> None:
    around = Surroundings("x = ", "\n1 \n", line_end="\r\n", is_between_cr_and_lf=True)
    shaper = Shaper(around, "x = \r")
    assert shaped(shaper, *parts) == ""
    assert shaper.rules == ("line_ends",) and not shaper.has_rejoined


@pytest.mark.parametrize(("line_end", "inserted"), [("\n", "1\nb = 2"), ("\r\n", "1\r\nb = 2")])
def test_of_a_line_end_that_is_left_out_no_half_stays(line_end: LineEnd, inserted: str) -> None:
    around = Surroundings("a = ", "\nprint(x)\n", line_end=line_end)
    for text in ("1\r\nb = 2\r\n", "1\r\nb = 2\r\nprint(x)\r\n"):
        for parts in ((text,), tuple(text)):
            shaper = Shaper(around, "a = ")
            assert shaped(shaper, *parts) == inserted
            assert shaper.rules.count("line_ends") == 1


def test_a_cr_alone_is_text() -> None:
    shaper = Shaper(Surroundings("a = '", "'\n"), "a = '")
    assert shaped(shaper, "x\r", "y\r") == "x\ry\r" and shaper.rules == ()


def test_blank_lines_without_end_take_time_in_proportion() -> None:
    """A model in a loop says thousands of them, on the thread that all others wait for."""
    around = Surroundings("import os\nimport sys\nvalue = compute_it(all)\n    ", "\nx = 1\n")
    n_steps = [_n_steps(Shaper(around, around.prefix), "\n" * n) for n in (1000, 2000)]
    assert n_steps[1] < 3 * n_steps[0]


def _n_steps(shaper: Shaper, text: str) -> int:
    """How many calls and lines of Python feeding a text takes, a character at a time."""
    n_steps = 0

    def count(*_: object) -> Any:
        nonlocal n_steps
        n_steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for character in text:
            shaper.feed(character)
    finally:
        sys.settrace(before)
    return n_steps
