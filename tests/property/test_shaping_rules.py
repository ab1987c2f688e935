"""The rules of shaping that know no grammar, against oracles that read all at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.shaping import (
    shaped,
    slow_echo,
    slow_first_line,
    slow_repeats,
    slow_run,
    slow_scope,
    slow_tabs,
    slow_tail,
)
from suture.server.shaping.echo import Echo
from suture.server.shaping.glue import Glue
from suture.server.shaping.indentation import FirstLine, Tabs
from suture.server.shaping.repeats import Repeats
from suture.server.shaping.rule import Rule
from suture.server.shaping.scope import Scope
from suture.server.shaping.shaper import Shaper
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import Syntax
from suture.server.shaping.tails import Tail

RULES: dict[str, Callable[[Surroundings], Rule]] = {
    "indent": FirstLine,
    "tabs": Tabs,
    "echo": Echo,
    "repeats": Repeats,
    "scope": Scope,
    "glue": lambda around: Glue(around, Syntax(around).n_errors),
    "tail": Tail,
}
LEFT_OUT = ("echo", "repeats", "scope", "glue", "tail")
PIECES = [
    *("\n", "\n", "\n    ", "\n        ", "\n\t", "\n\t\t", "\n  ", "\n\n", " ", "    ", "\t"),
    *("def f(x):", "class A:", "return x", "if x:", "else:", "x = 1", "fn f() {", "if (x) {"),
    *("{", "}", "(", ")", "});", "end", '"""', "'", "# it's", "// x", "/*", "*/", "#if A", "y: "),
    *("0, ", "compute_the_area(width, height)", "case 1:", "é", "</b>", "->", "\\"),
]
LANGUAGES = [None, "python", "c", "ruby", "go", "makefile", "markdown", "rust", "lua", "typescript"]


def texts(most: int = 10, pieces: list[str] = PIECES) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=most).map("".join)


@st.composite
def places(draw: st.DrawFn) -> Surroundings:
    return Surroundings(
        draw(texts()),
        draw(texts(6)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(["", "", ")", "}"])),
        language=draw(st.sampled_from(LANGUAGES)),
    )


@st.composite
def holes(draw: st.DrawFn) -> tuple[Surroundings, str]:
    """A place, and an answer of which much was said before."""
    around = draw(places())
    parts = st.one_of(texts(5), st.just(around.prefix[-60:]), st.just(around.suffix[:60]))
    text = "".join(draw(st.lists(parts, max_size=4)))
    return around, text * draw(st.sampled_from([1, 1, 1, 7]))


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=150, deadline=None)
@given(hole=holes(), data=st.data())
def test_s1_s2_s3_a_rule_only_leaves_out_and_does_it_once_however_the_text_comes(
    name: str, hole: tuple[Surroundings, str], data: st.DataObject
) -> None:
    around, text = hole
    rule = RULES[name](around)
    expected = shaped(rule, text)
    assert rule.fired == (expected != text)

    if name in LEFT_OUT:
        assert text.startswith(expected)
    else:
        assert "".join(expected.split()) == "".join(text.split())
        assert expected.count("\n") == text.count("\n")
    assert shaped(RULES[name](around), *text) == expected
    cut = data.draw(st.integers(0, len(text)))
    assert shaped(RULES[name](around), text[:cut], text[cut:]) == expected
    again = RULES[name](around)
    assert shaped(again, expected) == expected and not again.fired


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=100, deadline=None)
@given(hole=holes())
def test_s4_held_is_a_line_and_blank_ones_or_lines_that_stand_above(
    name: str, hole: tuple[Surroundings, str]
) -> None:
    around, text = hole
    rule = RULES[name](around)
    held = ""
    for character in text:
        held += character
        # By what is no blank: a rule may write a line's blanks in fewer characters than the answer.
        for _ in rule.feed(character).replace(" ", "").replace("\t", ""):
            held = held.lstrip(" \t")[1:]
        if rule.ended:
            return
        whole = [line for line in held.split("\n")[:-1] if line.strip()]
        if name != "echo":
            assert not whole
        else:
            above = (around.prefix + text).split("\n")
            assert len(whole) <= 8 and all(line in "\n".join(above) for line in whole)


@settings(max_examples=100, deadline=None)
@given(holes(), st.sampled_from(["auto", "line", "block"]))
def test_s2_s3_all_rules_together_do_the_same_however_the_text_comes(
    hole: tuple[Surroundings, str], shape: str
) -> None:
    around, text = hole

    def through(*parts: str) -> tuple[str, object]:
        shaper = Shaper(around, around.prefix, "line" if shape == "line" else "auto")
        said = "".join([*map(shaper.feed, parts), shaper.flush()])
        return said, shaper.edit

    assert through(*text) == through(text)


@given(texts(), st.sampled_from(["", "\n", "  \nx", "x", ")\n", " "]))
def test_the_tail_is_what_is_blank_at_the_end(text: str, suffix: str) -> None:
    rule = Tail(Surroundings("x = ", suffix, language="python"))
    assert shaped(rule, *text) == slow_tail(text, suffix)


LINES = st.sampled_from(
    ["x", "  x", "    x", "        x", "", "   ", "\tx", "\t  x", "  \tx", "\t"]
)


@given(st.lists(LINES, max_size=6).map("\n".join), st.sampled_from([2, 4]))
def test_in_a_file_of_spaces_no_line_begins_with_a_tab(text: str, unit: int) -> None:
    above = "def f():\n" + " " * unit + "x\n"
    assert shaped(Tabs(Surroundings(above)), *text) == slow_tabs(text, unit)


@given(st.lists(LINES, max_size=6).map("\n".join))
def test_in_a_file_of_tabs_no_line_begins_with_two_spaces(text: str) -> None:
    said = shaped(Tabs(Surroundings("func f() {\n\tx\n")), *text)
    lines = [line for line in said.split("\n") if line.strip()]
    assert not any(line.startswith("  ") for line in lines)
    assert all(line in said.split("\n") for line in text.split("\n") if line.startswith("\t"))


@given(
    st.sampled_from([("def f():\n", 4), ("    x = 1\n", 4), ("if a:\n    if b:\n", 8), ("x\n", 0)]),
    st.integers(1, 8),
    st.integers(0, 24),
    st.sampled_from(["x = 1", "\n", ") + 1", ""]),
)
def test_the_first_line_is_no_deeper_than_it_may_be(
    above: tuple[str, int], n_typed: int, n_said: int, body: str
) -> None:
    typed, text = " " * n_typed, " " * n_said + body
    around = Surroundings(above[0] + typed, language="python")
    assert shaped(FirstLine(around), *text) == slow_first_line(text, typed, above[1])


SIMPLE = st.sampled_from(["x", "    x", "        x", "            x y", "", "    ", "  x"])


@given(
    st.lists(SIMPLE, max_size=8).map("\n".join),
    st.sampled_from([("", 0), ("    ", 4), ("        ", 8), ("    x = ", 4), ("        y", 8)]),
    st.sampled_from([("\n    z\n", 4), ("\n\nz\n", 0), ("\n        z", 8), ("  \n\n    z", 4)]),
)
def test_o1_the_text_ends_before_the_first_line_below_the_floor(
    text: str, typed: tuple[str, int], suffix: tuple[str, int]
) -> None:
    above = "".join(["def g():\n", "    if a:\n        b = 1\n"][: typed[1] // 4])
    around = Surroundings(above + typed[0], suffix[0], language="ruby")
    floor = min(typed[1], suffix[1])
    assert shaped(Scope(around), *text) == slow_scope(text, typed[0], floor)


@given(st.lists(SIMPLE, max_size=8).map("\n".join), st.sampled_from(["", "\n", "\n\n  "]))
def test_o2_at_the_end_it_ends_before_what_the_header_does_not_enclose(
    text: str, suffix: str
) -> None:
    for above, floor in (("class A:\n    def g():\n        ", 5), ("def g():\n    ", 1)):
        typed = above.rpartition("\n")[2]
        around = Surroundings(above, suffix, language="python")
        assert shaped(Scope(around), *text) == slow_scope(text, typed, floor)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["a", "b", "0,", "", "c"]), min_size=1, max_size=9),
            st.sampled_from([1, 1, 2, 3, 5, 7, 34]),
        ).map(lambda block: block[0] * block[1]),
        max_size=3,
    ).map(lambda blocks: "\n".join(chain.from_iterable(blocks)))
)
def test_r1_the_text_ends_before_the_copy_that_proves_the_loop(text: str) -> None:
    assert shaped(Repeats(Surroundings("")), *text) == slow_repeats(text)


@settings(max_examples=50, deadline=None)
@given(
    st.text("ab, ", max_size=10),
    st.text("ab0, ", min_size=1, max_size=34),
    st.integers(1, 300),
    st.text("ab\n", max_size=5).filter(lambda text: not text.startswith("\n")),
)
def test_r2_within_a_line_it_ends_where_a_few_characters_have_come_too_often(
    before: str, turn: str, n: int, after: str
) -> None:
    line = before + (turn * n)[:400]
    expected = slow_run(line)
    said = shaped(Repeats(Surroundings("")), line)
    assert said == expected


WORDS = ["x = compute_the_area(w, h)", "    total += amount_of_each_item", "y", "", "z = 1"]


@given(st.lists(st.sampled_from(WORDS), max_size=10), st.lists(st.sampled_from(WORDS), max_size=10))
def test_h1_an_answer_that_begins_with_the_lines_above_is_none(
    above: list[str], said: list[str]
) -> None:
    prefix = "".join(line + "\n" for line in above)
    around, text = Surroundings(prefix, language="python"), "\n".join(said)
    lines = [line for line in above if line]
    assert shaped(Echo(around), *text) == slow_echo(text, lines)
