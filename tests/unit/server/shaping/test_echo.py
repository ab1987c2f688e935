"""Answers that say the lines above the cursor again."""

from __future__ import annotations

import pytest

from support.shaping import shaped
from suture.server.shaping.echo import Echo
from suture.server.shaping.surroundings import Surroundings

LONG = "    total_of_all = compute_the_area(width, height)\n"
ABOVE = f"def area(width, height):\n{LONG}"


@pytest.mark.parametrize(
    ("prefix", "text", "inserted"),
    [
        (ABOVE, LONG + "    return total", ""),
        (ABOVE, LONG.rstrip("\n"), ""),
        (ABOVE + "    ", LONG[4:] + "    return total", ""),
        (ABOVE, ABOVE + "    return", ""),
        (ABOVE + "\n", "\n" + LONG, ""),
        # Behind the rest of the cursor's line.
        (ABOVE + LONG[:20], f"{LONG[20:-2]}, x)\n{LONG[:-2]}, x)\n", f"{LONG[20:-2]}, x)\n"),
        (ABOVE + "    x = ", "1\n" + LONG + "    x = 1\n", "1\n"),
        ("static int area(int w) {\n    ", "a;\n}\n\nstatic int area(int w) {\n", "a;\n}\n\n"),
        # The definition again, later.
        (ABOVE, "    return 1\n\ndef area(width, height):\n    pass", "    return 1\n\n"),
    ],
)
def test_h1_the_text_ends_before_what_stands_above(prefix: str, text: str, inserted: str) -> None:
    for parts in ((text,), tuple(text)):
        rule = Echo(Surroundings(prefix))
        assert shaped(rule, *parts) == inserted
        assert rule.fired and rule.ended


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        ("x = 1\n", "x = 1\n"),
        ("}\n}\n", "}\n}\n"),
        (ABOVE, LONG.replace("all", "one")),
        (ABOVE + "    x\n", LONG + "    y\n"),
        (ABOVE, "    return 1\n\ndef area(width, depth):\n    pass"),
        # The same name in another class.
        ("class A:\n    def set_it_up(self):\n        ",
         "x\n\nclass B:\n    def set_it_up(self):\n        y"),
        ("", LONG),
        # It is said twice already.
        (LONG + LONG, LONG + LONG),
        (LONG + "    x\n" + LONG + "    x\n", LONG + "    x\n"),
        # A call with a closure, which may come again.
        ('r.Use(func(c *Context) {\n\t', 'a()\n})\nr.Use(func(c *Context) {\n\tb()'),
        # One line of a signature.
        ("fn f(\n    a: B,\n) -> Result<(), Error> {\n    ",
         "x\n}\n\nfn g(\n) -> Result<(), Error> {\n    y"),
        ("@overload\ndef a_function(\n    ", "x: int\n): ...\ndef a_function(\n    y"),
    ],
)  # fmt: skip
def test_h1_what_is_no_echo_stays(prefix: str, text: str) -> None:
    rule = Echo(Surroundings(prefix))
    assert shaped(rule, *text) == text and not rule.fired


def test_h3_lines_are_held_only_while_they_are_those_above() -> None:
    rule = Echo(Surroundings(ABOVE))
    assert rule.feed("def area(wid") == ""
    assert rule.feed("th):") == "def area(width):"
    assert rule.feed("\n    pass") == "\n    pass"


def test_a_line_that_is_cut_off_above_is_none() -> None:
    around = Surroundings("total_of_all = compute_the_area(width)\n", is_prefix_cut=True)
    text = "total_of_all = compute_the_area(width)\n"
    assert shaped(Echo(around), text) == text
