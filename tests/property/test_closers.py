"""Answers over closers that stand behind the cursor, against an oracle that reads all at once."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from suture.server.request import Edit
from suture.server.shaping.closers import OverClosers, are_auto_closed, line_rest, still_open

CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
QUOTES = "\"'`"


def over(rest: str, *texts: str, prefix: str = "") -> tuple[str, Edit | None]:
    closers = OverClosers(rest, prefix)
    insertion = "".join(closers.feed(text) for text in texts)
    return insertion, closers.edit


@pytest.mark.parametrize(
    ("rest", "text", "insertion", "edit"),
    [
        (")", "a, b", "a, b", Edit(0, "a, b")),
        (")", "a, b)", "a, b", Edit(1, "a, b)")),
        (")", "a, b)\nc()\n", "a, b", Edit(1, "a, b)\nc()\n")),
        (")", "f(a), b)", "f(a), b", Edit(1, "f(a), b)")),
        (")", ")", "", Edit(1, ")")),
        ("}]", "1: 2}", "1: 2", Edit(1, "1: 2}")),
        ("}]", "1: 2}, {}]\n", "1: 2", Edit(2, "1: 2}, {}]\n")),
        ("}]", "1: 2]", "1: 2", Edit(0, "1: 2")),
        ("))", "a) + b]", "a", Edit(1, "a) + b]")),
        (")]", "a]", "a", Edit(0, "a")),
        ('")', 'hi (x", 1)', "hi (x", Edit(2, 'hi (x", 1)')),
        ('")', 'say \\"hi\\"', 'say \\"hi\\"', Edit(0, 'say \\"hi\\"')),
        (")", '":)", x', '":)", x', Edit(0, '":)", x')),
        (")", "x)  # don't", "x", Edit(1, "x)  # don't")),
        (")", "&'a str)", "&'a str", Edit(1, "&'a str)")),
        (")", "# don't\n)", "# don't\n", Edit(1, "# don't\n)")),
        ('"""', 'It\'s (it).\n"""\nx = ""', "It's (it).\n", Edit(3, 'It\'s (it).\n"""\nx = ""')),
        (" ) ", "a )", "a ", Edit(2, "a )")),
        (" ) ", "a )\n", "a ", Edit(3, "a )\n")),
        (")", "a)\n}\n)", "a", Edit(1, "a)\n}\n)")),
        ('}")', 'x}!", y)', "x", Edit(3, 'x}!", y)')),
        # Rust's lifetimes are no strings, and what looks like one may be.
        (")", "i: &'a str) -> R<&'a str> {", "i: &'a str", Edit(1, "i: &'a str) -> R<&'a str> {")),
        (")", "a: X<'a, 'b>, b: &'b T)", "a: X<'a, 'b>, b: &'b T",
         Edit(1, "a: X<'a, 'b>, b: &'b T)")),
        (")", "c, '<')", "c, '<'", Edit(1, "c, '<')")),
        (")", "c <'x' + ')')", "c <'x' + ')'", Edit(1, "c <'x' + ')')")),
        # Brackets that the rest has none of may stand in comments and in a shell's cases.
        ("}", "case $1 in\na) b;;\nesac\n}", "case $1 in\na) b;;\nesac\n",
         Edit(1, "case $1 in\na) b;;\nesac\n}")),
        ("}", "\n// 1) check\nf();\n}", "\n// 1) check\nf();\n", Edit(1, "\n// 1) check\nf();\n}")),
        # A docstring has quotes inside, and may be cut off within those that end it.
        ('"""', 'Returns the "name" of', 'Returns the "name" of', Edit(0, 'Returns the "name" of')),
        ('"""', 'A "name".""', 'A "name".', Edit(0, 'A "name".')),
        ('"""', 'A "name\\"', 'A "name\\"', Edit(0, 'A "name\\"')),
        ('"""', 'A "name".\n"""\nx', 'A "name".\n', Edit(3, 'A "name".\n"""\nx')),
        ('""")', 'a "b" """, c)', 'a "b" ', Edit(4, 'a "b" """, c)')),
    ],
)  # fmt: skip
def test_what_is_inserted_and_what_is_replaced(
    rest: str, text: str, insertion: str, edit: Edit
) -> None:
    assert over(rest, text) == (insertion, edit)
    assert over(rest, *text) == (insertion, edit)


def test_what_was_opened_before_the_cursor_may_be_closed() -> None:
    """The editor has closed one bracket and not the other."""
    assert over(")", "a])", prefix="f([") == ("a]", Edit(1, "a])"))
    assert over(")", "a))", prefix="g(f(") == ("a", Edit(1, "a))"))
    assert over("))", "a]]) + ]", prefix="f(([") == ("a]]", Edit(1, "a]]) + ]"))


def test_what_the_rest_has_closed_is_not_closed_once_more() -> None:
    assert over(")]", "a) + b)", prefix="x = [f(") == ("a", Edit(1, "a) + b"))
    assert over('")]', 'a") + b)', prefix='x = [f("') == ("a", Edit(2, 'a") + b'))


def test_without_a_rest_the_text_is_all() -> None:
    assert over("", "a)", "\n") == ("a)\n", None)


@pytest.mark.parametrize(
    ("prefix", "suffix", "rest"),
    [
        ("foo(", ")", ")"),
        ("foo(", ")\nx", ")"),
        ("foo(", " ) \r\nx", " ) "),
        ("x = [{", "}]\n", "}]"),
        ('print("', '")\n', '")'),
        ("x = `", "`", "`"),
        ('    """', '"""\n', '"""'),
        ("it's f(", ")\n", ")"),
        ("    ", "}\n", "}"),
        ("foo(", ");\n", ""),
        ("if (", ") {\n", ""),
        ("foo(", "a)\n", ""),
        ("foo(", "  \n)", ""),
        ("foo(", "", ""),
        ("foo(", "\n)", ""),
        # A string that begins here, and one that began lines above.
        ("x = ", '""\n', ""),
        ('"""Adds.\n    Twice.', '"""\n', ""),
    ],
)
def test_the_rest_of_a_line_is_only_closers(prefix: str, suffix: str, rest: str) -> None:
    assert line_rest(prefix, suffix) == rest


def test_many_closers_are_data_and_no_rest() -> None:
    assert line_rest("f(", ")" * 256) == ")" * 256
    assert line_rest("f(", ")" * 256 + "\nx") == ")" * 256
    for n in (257, 10_000):
        assert line_rest("f(", ")" * n) == line_rest("f(", ")" * n + "\nx") == ""


@pytest.mark.parametrize(
    ("text", "closers"),
    [
        ("foo(", ")"),
        ("foo([a], {", "})"),
        ('print("', '")'),
        ('print(f"{', '}")'),
        ("f('(')", ""),
        ("f(\n  g[", "])"),
        ("it's\nf(", ")"),
        ("f)(", ")"),
        ("([)", ""),
        ("fn parse<'a>(", ")"),
        ("fn parse<'a>(x: &'a str, c: '", "')"),
        ("split('<', [", "])"),
        ("split('<'", ")"),
        ("c <'", "'"),
    ],
)
def test_what_a_text_leaves_open(text: str, closers: str) -> None:
    assert still_open(text) == closers


def test_auto_closed_are_closers_of_what_was_typed_in_their_order() -> None:
    assert are_auto_closed("])", "f([")
    assert are_auto_closed(" ) ", "f([")
    assert not are_auto_closed(")]", "f([")
    assert not are_auto_closed(")", "f()")
    assert not are_auto_closed("x)", "f(")


# The oracle.


def is_lifetime(text: str, at: int) -> bool:
    """Whether a quote at `at` begins a lifetime of Rust's, or may do so at the text's end."""
    if text[at] != "'" or text[at - 1 : at] not in ("&", "<"):
        return False
    end = at + 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return end == len(text) or (end > at + 1 and text[end] != "'")


def string_end(text: str, at: int, quote: str, is_line: bool) -> int | None:
    """Where the quotes stand that end a string that goes on at `at`."""
    end = next((n for n in range(at, len(text)) if is_line and text[n] in "\r\n"), len(text))
    while at < end:
        if text[at:].startswith(quote) and not (is_line and is_lifetime(text, at)):
            return at
        at += 2 if text[at] == "\\" else 1
    return None


def code_places(text: str, at: int) -> list[int]:
    """The places of brackets from `at` on that stand in no string."""
    places = []
    while at < len(text):
        if text[at] in QUOTES and not is_lifetime(text, at):
            end = string_end(text, at + 1, text[at], is_line=True)
            at = at if end is None else end
        elif text[at] in "()[]{}":
            places.append(at)
        at += 1
    return places


def first_unopened(text: str, at: int, ignored: Collection[int]) -> int | None:
    """The first bracket in code from `at` on that closes nothing from there on."""
    places = [place for place in code_places(text, at) if place not in ignored]
    gone: set[int] = set()
    for n, place in enumerate(places):
        if text[place] in CLOSER_OF:
            continue
        openers = [p for p in places[:n] if CLOSER_OF.get(text[p]) == text[place] and p not in gone]
        if not openers:
            return place
        gone.update(range(openers[-1], place + 1))
    return None


def slow_over(rest: str, text: str, outer: str) -> tuple[str, Edit]:
    """The insertion and the edit, closer by closer of the rest."""
    at, inserted, n_replaced, end = 0, None, 0, len(text)
    closers = re.findall("\"\"\"|'''|\\S", rest)
    for closer in closers:
        found = None
        if closer[0] in QUOTES:
            # Quotes that end a string of the rest's may stand lines below.
            found = string_end(text, at, closer, is_line=False)
            if found is None:
                found = half_end(text, at, closer)
        else:
            start, ignored = at, set[int]()
            while (found := first_unopened(text, start, ignored)) is not None:
                if text[found] == closer:
                    break
                if text[found] in outer:
                    outer, start = outer.split(text[found], 1)[1], found + 1
                elif text[found] in rest:
                    break
                else:
                    ignored.add(found)
        if found is not None and inserted is None:
            inserted = found
        if found is None or not text[found:].startswith(closer):
            end = len(text) if found is None else found
            break
        if closer in outer:
            outer = outer.split(closer, 1)[1]
        at, n_replaced = found + len(closer), rest.index(closer, n_replaced) + len(closer)
    if closers and n_replaced == len(rest.rstrip()) and at < end:
        n_replaced = len(rest)
    return text[:inserted], Edit(n_replaced, text[:end])


def half_end(text: str, at: int, closer: str) -> int | None:
    """Where one or two quotes stand at the end that may be the first of three."""
    found = string_end(text, at, closer[0], is_line=False)
    while len(closer) == 3 and found is not None:
        if set(text[found:]) == {closer[0]}:
            return found
        found = string_end(text, found + 1, closer[0], is_line=False)
    return None


RESTS = st.text(")]}\"' ", min_size=1, max_size=5).filter(str.strip)
RESTS |= st.sampled_from(['"""', "''')", '}"""'])
TEXTS = st.text("()[]{}\"'`\\a \n\r&<", max_size=30)


@given(RESTS, TEXTS, st.text("([{", max_size=3))
@example('"', '\\\n"', "")
@example(")", "'\\\n')", "")
@example(")", "'a)&'a)", "")
@example('"""', 'a"b""', "")
def test_e1_e2_any_text_is_split_as_the_oracle_splits_it(rest: str, text: str, prefix: str) -> None:
    outer = "".join(CLOSER_OF[c] for c in reversed(prefix))
    assert over(rest, text, prefix=prefix) == slow_over(rest, text, outer)


@given(RESTS, TEXTS)
def test_e2_e3_what_is_released_stays_however_the_text_comes(rest: str, text: str) -> None:
    assert over(rest, *text) == over(rest, text)


WORDS = st.sampled_from(["a", " ", ", ", "b.c", "1", '"it\'s (\\"x]"', "''", "\n"])
CODE = st.recursive(
    st.lists(WORDS, max_size=4).map("".join),
    lambda inner: st.tuples(
        inner, st.sampled_from(["()", "[]", "{}"]), inner, st.lists(WORDS, max_size=2)
    ).map(lambda t: f"{t[0]}{t[1][0]}{t[2]}{t[1][1]}{''.join(t[3])}"),
    max_leaves=8,
)


def opened(code: str) -> str:
    """What is open at the end of code as above, the innermost first."""
    closers: list[str] = []
    escaped = False
    for c in code:
        if closers and closers[-1] in QUOTES:
            if c == closers[-1] and not escaped:
                closers.pop()
            escaped = c == "\\" and not escaped
        elif c in QUOTES:
            closers.append(c)
        elif c in CLOSER_OF:
            closers.append(CLOSER_OF[c])
        elif c in ")]}":
            assert closers.pop() == c
    return "".join(reversed(closers))


@given(CODE, CODE, st.data())
def test_e1_e2_auto_closed_code_is_completed_to_itself(
    code: str, more: str, data: st.DataObject
) -> None:
    """The edit over the closers makes the code; the insertion before them is balanced."""
    at = data.draw(st.integers(0, len(code)))
    before, answer = code[:at], f"{code[at:]}\n{more}"
    rest = opened(before)
    if not rest or before.endswith("\\"):
        return
    insertion, edit = over(rest, answer, prefix=before)

    assert edit is not None
    assert before + edit.text + rest[edit.delete_after :] == before + answer
    assert opened(before + insertion + rest) == ""
    assert code.startswith(before + insertion)
