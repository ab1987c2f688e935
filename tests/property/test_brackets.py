"""Answers that double closers of the file, against an oracle that reads all at once."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from suture.server.shaping.brackets import Brackets
from suture.server.shaping.surroundings import Surroundings
from suture.server.shaping.syntax import Syntax

CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
WORDS = ["a", "b.c", " ", ", ", "  ", "\n", "\n", "\n  "]
BRACKETS = ["(", ")", "[", "]", "{", "}", ")\n", "\n}\n"]


def open_in(text: str) -> list[str]:
    """The closers of what a text opens and does not close, the outermost first."""
    opened: list[str] = []
    for mark in re.findall(r"[()\[\]{}]", text):
        if mark in CLOSER_OF:
            opened.append(CLOSER_OF[mark])
        elif mark in opened:
            while opened.pop() != mark:
                pass
    return opened


def needed_in(prefix: str, suffix: str) -> list[str]:
    """Which of what the prefix opens the suffix closes, the innermost first."""
    outer, inner, needed = open_in(prefix), list[str](), list[str]()
    for mark in re.findall(r"[()\[\]{}]", suffix):
        if mark in CLOSER_OF:
            inner.append(CLOSER_OF[mark])
        elif mark in inner:
            while inner.pop() != mark:
                pass
        elif mark in outer:
            while outer.pop() != mark:
                pass
            inner = []
            needed.append(mark)
    return needed


def is_enough(opened: list[str], needed: list[str]) -> bool:
    """Whether what is needed is open, one in the other."""
    opened = list(opened)
    for closer in needed:
        while opened and opened[-1] != closer:
            opened.pop()
        if not opened:
            return False
        opened.pop()
    return True


def slow_cut(prefix: str, suffix: str, text: str) -> int | None:
    """Where a text ends before a closer that it doubles, of a language that nobody knows."""
    needed = needed_in(prefix, suffix)
    at = n_kept = 0
    read = text  # with what is no closer left out
    while needed and n_kept < 8 and (closer := doubled(prefix, needed, read, at)) is not None:
        end, is_restored = decided(prefix, needed, read, closer)
        if is_restored:
            at = end + 1
        elif not re.search(r"\w", read[closer:end].split("\n")[0]):
            line_ends = re.search(r"\n[ \t\n]*\Z", text[:closer])
            is_below = re.match(r"[ \t]*(\n|\Z)", suffix)
            return line_ends.start() if line_ends and is_below else closer
        else:
            read, n_kept, at = f"{read[:closer]} {read[closer + 1 :]}", n_kept + 1, closer + 1
    return None


def doubled(prefix: str, needed: list[str], text: str, at: int) -> int | None:
    """The closer behind which, up to its line's end, too little is open; the first such line's."""
    for line in re.finditer(r"[^\n]*", text):
        if line.end() < at:
            continue
        is_open = [is_enough(open_in(prefix + text[:n]), needed) for n in range(line.end() + 1)]
        if not is_open[line.end()] and any(is_open[line.start() :]):
            return max(n for n in range(line.end()) if is_open[n])
    return None


def decided(prefix: str, needed: list[str], text: str, closer: int) -> tuple[int, bool]:
    """Where the next line ends that says more; or where all that is needed is open again."""
    line_end = text.find("\n", closer)
    for line in re.finditer(r"[^\n]*", text[line_end + 1 :]) if line_end >= 0 else ():
        end = line_end + 1 + line.end()
        opened = open_in(prefix + text[:end])
        if is_enough(opened, needed) and opened[-1] == needed[0]:
            return end, True
        if re.search(r"[^)\]};, \t]", line[0]):
            return end, False
    return len(text), False


def texts(most: int = 8) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from([*WORDS, *BRACKETS]), max_size=most).map("".join)


def streamed(around: Surroundings, *parts: str) -> str:
    rule = Brackets(around, Syntax(around))
    text = "".join(map(rule.feed, parts)) + rule.flush()
    assert rule.fired == rule.ended == (text != "".join(parts))
    return text


@settings(max_examples=300)
@given(texts(), texts(16), texts())
@example("f(", "a)\nb(c)\n}", ")\n")
@example("{(", "a)\n}\n{\nb", ")\n}\n")
def test_s1_s3_the_text_before_a_doubled_closer_however_it_comes(
    prefix: str, text: str, suffix: str
) -> None:
    expected = text[: slow_cut(prefix, suffix, text)]
    around = Surroundings(prefix, suffix)
    assert streamed(around, text) == expected
    assert streamed(around, *text) == expected
    assert streamed(around, text[: len(text) // 2], text[len(text) // 2 :]) == expected


PATHS = st.sampled_from([None, "a.py", "a.js", "a.rs", "a.json", "a.sh"])
STRINGS = st.text("()[]{}\"'`\\a \n#/&<", max_size=24)


@settings(max_examples=150)
@given(STRINGS, STRINGS, STRINGS, PATHS, st.booleans(), st.booleans())
@example("')", "", ")", None, True, False)
@example('<"{', '}"a', '}"<', "a.json", False, False)
@example('"[', ']"[', ']"', None, False, False)
def test_s1_s2_s3_of_any_text_a_beginning_is_left_and_stays(
    prefix: str, text: str, suffix: str, path: str | None, is_prefix_cut: bool, is_suffix_cut: bool
) -> None:
    around = Surroundings(prefix, suffix, is_prefix_cut, is_suffix_cut, path=path)
    left = streamed(around, text)
    assert text.startswith(left)
    assert streamed(around, left) == left
    assert streamed(around, *text) == left


@given(texts(), texts(16), texts())
def test_k3_held_is_a_closer_the_line_behind_it_and_line_ends(
    prefix: str, text: str, suffix: str
) -> None:
    rule = Brackets(Surroundings(prefix, suffix), Syntax(Surroundings("")))
    released = ""
    for n, character in enumerate(text, 1):
        released += rule.feed(character)
        held = text[len(released) : n]
        if rule.ended or not held:
            continue
        above, _, _ = held.lstrip("\n \t").rpartition("\n")
        _, *more = above.split("\n")
        assert not re.search(r"[^)\]};, \t]", "".join(more))
        assert not held.strip() or held.lstrip()[0] in ")]}"


@given(texts(), texts(16), texts())
def test_k2_what_closes_only_what_is_missing_is_kept(prefix: str, text: str, suffix: str) -> None:
    needed = needed_in(prefix, suffix)
    if all(is_enough(open_in(prefix + text[:n]), needed) for n in range(len(text) + 1)):
        assert streamed(Surroundings(prefix, suffix), text) == text
