"""The brackets and quotes of a text in any language, which is all that `closers.py`, `balance.py`
and `brackets.py` know of it.

  mark    a bracket, or a quote; of a quote that another ends, all of the string

Strings are known by their quotes: one that no other ends is an apostrophe, and one between `&` or
`<` and a name is Rust's (`&'a str`). Comments are not known. Where a language is, `lexical.py`
knows more: long strings, here-documents, comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

CLOSER_OF = {"(": ")", "[": "]", "{": "}"}
QUOTES = "\"'`"
_MARK = re.compile(r"[()\[\]{}\"'`]")
# At the end of a text it may still become one.
_LIFETIME = re.compile(r"(?<=[&<])'(?:\Z|[A-Za-z_]\w*(?!['\w]))")


class Mark(NamedTuple):
    """A bracket or quote and where it stands; what comes behind it, or its string, is at `end`.

    `end` is 0 where nothing ends the string.
    """

    start: int
    sign: str
    end: int


def next_mark(text: str, at: int, end: int) -> Mark | None:
    """The first mark from `at` on; of a string, its beginning and all of it."""
    found = _MARK.search(text, at, end)
    if found is None:
        return None
    start, sign = found.start(), found[0]
    return Mark(start, sign, _string_end(text, start, end) if sign in QUOTES else start + 1)


def open_marks(line: str) -> Iterator[tuple[int, str]]:
    """The brackets of a line that stand in no string, and the quotes that none ends; and where."""
    at = 0
    while mark := next_mark(line, at, len(line)):
        at = mark.end or mark.start + 1
        if mark.sign not in QUOTES or not (mark.end or _LIFETIME.match(line, mark.start)):
            yield mark.start, mark.sign


def with_bracket(closers: str, bracket: str) -> str:
    """What is open behind a bracket, the innermost first, where `closers` were open before it."""
    if bracket in CLOSER_OF:
        return CLOSER_OF[bracket] + closers
    return closers[closers.find(bracket) + 1 :]


def _string_end(text: str, at: int, end: int) -> int:
    """Behind the string that begins with the quote at `at`; 0 if none does, or it has no end."""
    found = _string(text[at]).match(text, at, end)
    return found.end() if found else 0


@lru_cache
def _string(quote: str) -> re.Pattern[str]:
    lifetime = _LIFETIME.pattern
    # Nothing of it can be read in two ways, so nothing is tried again.
    inside = rf"[^\\{quote}]++|\\.|(?={lifetime}){quote}"
    return re.compile(rf"(?!{lifetime}){quote}(?:{inside})*+(?!{lifetime}){quote}", re.DOTALL)
