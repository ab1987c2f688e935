"""Pieces of files, as the model is shown them. PURE.

A *row* is a line of a file, counted from 0; `lines` are a file's lines without their ends. A
*place* is the row that the cursor was last in.

C6  A chunk has whole lines of its file, in their order; at most `MAX_LINES` and `MAX_CHARS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from suture.lsp.documents import without_halves

# Some 600 tokens: a slow machine has room for one or two, and less is no loss where more fits.
MAX_LINES = 48
MAX_CHARS = 2400

_BLANK_START, _BLANK_END = re.compile(r"\A(?:[^\S\n]*\n)+"), re.compile(r"(?:\n[^\S\n]*)+\Z")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text of a file. `path` tells the files apart, `name` is what the model is told of it."""

    path: str
    name: str
    text: str


def lines_of(text: str) -> list[str]:
    """The lines of a text without their ends, whatever these are."""
    return without_halves(text).replace("\r\n", "\n").replace("\r", "\n").split("\n")


def joined(lines: Sequence[str], rows: Iterable[int]) -> str:
    """The text of some rows, each with LF, without blank lines at its ends."""
    text = "".join(f"{lines[row]}\n" for row in sorted(rows))
    return _BLANK_END.sub("\n", _BLANK_START.sub("", text)) if text.strip() else ""


def similarity(left: str, right: str) -> float:
    """How many of the lines of two texts they have in common, from 0 to 1; blank ones are none."""
    ours, theirs = _distinct(left), _distinct(right)
    n_lines = len(ours) + len(theirs)
    return 2 * len(ours & theirs) / n_lines if n_lines else 0.0


def share_in(text: str, other: str) -> float:
    """How many of a text's lines stand in another one, from 0 to 1; blank ones are none."""
    ours = _distinct(text)
    return len(ours & _distinct(other)) / len(ours) if ours else 0.0


def around(lines: Sequence[str], place: int, starts: Iterable[int] = ()) -> range:
    """The rows around a place: they begin and end at one of `starts`, where definitions begin, or
    at a blank line, if there is one near."""
    half = MAX_LINES // 2
    place = max(0, min(place, len(lines) - 1))
    first = max(0, min(place - half, len(lines) - MAX_LINES))
    end = min(len(lines), first + MAX_LINES)
    edges = {*starts, *(row for row in range(first, end) if not lines[row].strip())}
    slack = MAX_LINES // 4
    if first:
        first = min(
            (row for row in edges if first <= row <= min(first + slack, place)), default=first
        )
    if end < len(lines):
        end = max((row for row in edges if max(end - slack, place + 1) <= row <= end), default=end)
    return _fitted(lines, range(first, end), place)


def _fitted(lines: Sequence[str], rows: range, place: int) -> range:
    """As many of the rows as a chunk may have characters: those farthest from the place go."""
    n_chars = sum(len(lines[row]) + 1 for row in rows)
    while n_chars > MAX_CHARS and rows:
        is_first = place - rows[0] >= rows[-1] - place
        n_chars -= len(lines[rows[0 if is_first else -1]]) + 1
        rows = rows[1:] if is_first else rows[:-1]
    return rows


def _distinct(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.split("\n")) - {""}
