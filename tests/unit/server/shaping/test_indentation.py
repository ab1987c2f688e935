"""Blanks at the beginning of lines: what is typed already, tabs and spaces."""

from __future__ import annotations

import pytest

from support.shaping import shaped
from suture.server.shaping.indentation import FirstLine, Tabs
from suture.server.shaping.style import style_of
from suture.server.shaping.surroundings import Surroundings


@pytest.mark.parametrize(
    ("prefix", "text", "inserted"),
    [
        ("def f():\n    ", "    return 1", "return 1"),
        ("def f():\n    ", "        return 1", "return 1"),
        ("def f():\n    x = 1\n    ", "    return 1", "return 1"),
        ("if a:\n  if b:\n    ", "    c()", "c()"),
        ("func f() {\n\t", "\treturn 1", "return 1"),
        ("func f() {\n\t", "    return 1", "return 1"),
        ("# a comment\n    ", "    x = 1", "x = 1"),
        ("x = foo(\n    a,\n)\n    ", "    y = 1", "y = 1"),
    ],
)
def test_i2_blanks_that_are_typed_already_are_left_out(
    prefix: str, text: str, inserted: str
) -> None:
    rule = FirstLine(Surroundings(prefix))
    assert shaped(rule, *text) == inserted and rule.fired


@pytest.mark.parametrize(
    ("path", "prefix", "text"),
    [
        # Lines that go on with a statement say nothing of levels.
        (
            "x.py",
            "class A:\n  def f(self):\n    return g(a,\n            b)\n\ndef h():\n  ",
            "  c()",
        ),
        ("x.py", "def f():\n  return 1\n\nxs = [\n    1,\n]\n\ndef h():\n  ", "  c()"),
        (None, "if a {\n  b()\n}\nfoo(\n    c,\n)\nif d {\n  ", "  e()"),
        # And where there are no others, there is what is usual.
        ("x.ts", "function f() {\n  ", "  return 1"),
        ("x.rb", "it 'a' do\n  ", "  b\n"),
        ("x.yaml", "a:\n  ", "  b: 1"),
    ],
)
def test_i2_blanks_are_not_doubled_in_small_files_of_two_spaces(
    path: str | None, prefix: str, text: str
) -> None:
    rule = FirstLine(Surroundings(prefix, path=path))
    assert shaped(rule, *text) == text.lstrip() and rule.fired


def test_i2_a_level_may_be_what_some_blocks_have() -> None:
    above = "switch (a) {\n  case 1:\n    b();\n}\nif (c) {\n    d();\n}\nif (e) {\n  "
    assert shaped(FirstLine(Surroundings(above, path="x.ts")), "  f();") == "  f();"


@pytest.mark.parametrize(
    ("prefix", "text", "suffix"),
    [
        ("def f():\n    if a:\n    ", "    b()", ""),
        ("def f():\n    ", "  return 1", ""),
        ("foo(\n    ", "    a)", ""),
        ("foo(a,\n    ", "    b)", ""),
        ("x = \\\n    ", "    y", ""),
        ("x = a +\\\n    ", "    y", ""),
        ('"""Text:\n    ', "    code", ""),
        ("/* a\n    ", "    b */", ""),
        ("a = b\n    ", "    .c()", ""),
        ("if (a)\n  ", "  b();", ""),
        ("switch (a) {\n  case 1:\n  ", "  b();", ""),
        ("- a\n  ", "  b: 1", ""),
        ("x\n    ", "    y", "\n        z\n"),
        ("def f():\n    ", "    \n    return 1", ""),
        ("x = 1", "    y", ""),
        ("", "    y", ""),
        ("    ", "    y", ""),
        ("it 'a' do\n  ", "  b\n", ""),
    ],
)
def test_i2_where_a_line_may_be_deeper_nothing_is_left_out(
    prefix: str, text: str, suffix: str
) -> None:
    if prefix == "def f():\n    " and text.startswith("  r"):
        assert shaped(FirstLine(Surroundings(prefix)), text) == text  # not the same blanks again
    rule = FirstLine(Surroundings(prefix, suffix))
    assert shaped(rule, *text) == text and not rule.fired


def test_in_prose_blanks_mean_something_else() -> None:
    around = Surroundings("text\n    ", path="x.md")
    assert shaped(FirstLine(around), "    code") == "    code"
    around = Surroundings("a\n\tb\n\tc\n", path="x.md")
    assert shaped(Tabs(around), "    code") == "    code"


@pytest.mark.parametrize(
    ("prefix", "uses", "unit"),
    [
        ("if a:\n    b\n", "spaces", 4),
        ("if a {\n  b\n  if c {\n    d\n", "spaces", 2),
        ("if a {\n\tb\n", "tabs", 4),
        ("if a {\n\tb\n    c\n", None, 4),
        ("a\nb\n", None, 4),
        ("/*\n * a\n */\nif (a) {\n\tb\n", "tabs", 4),
        ("if a {\n" + "\tb\n" * 21 + "  c\n", "tabs", 2),
        ("if a {\n\t", "tabs", 4),
    ],
)
def test_i3_the_style_is_that_of_all_but_a_few_lines(
    prefix: str, uses: str | None, unit: int
) -> None:
    style = style_of(Surroundings(prefix))
    assert style.uses == uses and (uses is None or style.unit == unit)


def test_i3_languages_may_say_it() -> None:
    assert style_of(Surroundings("package a\n", path="a.go")).uses == "tabs"
    assert style_of(Surroundings("package a\n", language="go")).uses == "tabs"
    assert style_of(Surroundings("a:\n  b = 1\n", path="Makefile")).uses is None
    assert style_of(Surroundings("a:\n\tb\n", path="Makefile")).uses == "tabs"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a {\n        b\n    }", "a {\n\t\tb\n\t}"),
        ("a {\n\t\tb\n\t}", "a {\n\t\tb\n\t}"),
        ("a {\n    b\n  }", "a {\n\t\tb\n\t}"),
        ("f(a,\n     b)", "f(a,\n     b)"),
        ("s = `\n    x\n  `", "s = `\n    x\n  `"),
        ("/*\n     * x\n     */", "/*\n     * x\n     */"),
        ("a\n\t  b", "a\n\t  b"),
        ("a\n    \n    b", "a\n    \n\tb"),
    ],
)
def test_i3_spaces_become_tabs_but_not_in_strings_and_brackets(text: str, written: str) -> None:
    around = Surroundings("func f() {\n\tx()\n\t", path="x.go")
    rule = Tabs(around)
    assert shaped(rule, *text) == written
    assert rule.fired == (text != written)


def test_i4_only_the_blanks_are_held() -> None:
    rule = Tabs(Surroundings("func f() {\n\tx()\n", path="x.go"))
    assert [rule.feed(part) for part in ("  ", "  ", "a", " b", "\n", "    c")] == [
        *("", "", "\ta", " b", "\n", "\tc"),
    ]
    first = FirstLine(Surroundings("def f():\n    "))
    assert [first.feed(part) for part in ("  ", "  ", "a", "\n    b")] == ["", "", "a", "\n    b"]
