"""Positions in a line as the protocol counts them. PURE.

A *character* of the protocol is a byte, a UTF-16 code unit or a code point, as client and server
agreed; an *index* is a place in a Python string. One is turned into the other here and nowhere
else.

L1  Whatever the number, the index is in the line and never inside a code point.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal, get_args

Encoding = Literal["utf-8", "utf-16", "utf-32"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)


def length(text: str, encoding: Encoding) -> int:
    """The characters of a text, in units of the encoding."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-16":
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass"))


def index_of(line: str, character: int, encoding: Encoding) -> int:
    """The index of a character of `line`, rounded down to a whole code point and clamped (L1)."""
    # No code point is less than a unit.
    most = max(0, min(character, len(line)))
    if encoding == "utf-32" or line.isascii():
        return most
    indices = range(most + 1)
    found = bisect_right(indices, character, key=lambda index: length(line[:index], encoding))
    return max(0, found - 1)
