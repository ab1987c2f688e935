"""Holes whose text is known: cut out of a text at a cursor, and those that ship with the product.

The shipped ones are cut out of the product's own sources, which are there wherever it is installed
and are in no model's training data before they are published. Most stand inside a word, where
healing matters and layouts differ; the others anywhere in a line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

_PACKAGES = ("suture.healing", "suture.server")
_WORD = re.compile(r"[A-Za-z_]{4,}")
# Of what stands around a cursor: enough to go by, and read in a second or two.
_N_BEFORE = 16
_N_BEHIND = 6
_N_A_PLACE = 4


@dataclass(frozen=True, slots=True)
class Hole:
    """A text with the cursor before `middle`, which is to be written; its line ends are LF."""

    prefix: str
    middle: str
    suffix: str


def cut_hole(text: str, cursor: int, end: int) -> Hole:
    """The hole from `cursor` to `end`."""
    return Hole(text[:cursor], text[cursor:end], text[end:])


def own_holes(n_holes: int, seed: int = 0) -> list[Hole]:
    """So many holes in the product's own sources, always the same ones for a seed.

    `_N_A_PLACE` of them follow each other in one place, so that prompts share what is before.
    """
    choose = random.Random(seed)
    texts = sorted(text for package in _PACKAGES for text in _sources(files(package)))
    long_texts = [text for text in texts if text.count("\n") > 2 * (_N_BEFORE + _N_BEHIND)]
    holes: list[Hole] = []
    while len(holes) < n_holes:
        holes += _in_one_place(choose.choice(long_texts), choose)
    return holes[:n_holes]


def word_cursor(line: str, choose: random.Random) -> int | None:
    """A place inside one of the line's words of four letters or more; None without such a word."""
    words = list(_WORD.finditer(line))
    if not words:
        return None
    word = choose.choice(words)
    return choose.randrange(word.start() + 1, word.end())


def _in_one_place(text: str, choose: random.Random) -> Iterator[Hole]:
    lines = text.splitlines(keepends=True)
    first = choose.randrange(_N_BEFORE, len(lines) - _N_BEHIND - _N_A_PLACE)
    start = sum(map(len, lines[: first - _N_BEFORE]))
    shown = "".join(lines[first - _N_BEFORE : first + _N_A_PLACE + _N_BEHIND])
    for number in range(first, first + _N_A_PLACE):
        line = lines[number].rstrip("\n")
        at = word_cursor(line, choose)
        if at is None:
            continue
        if choose.random() < 0.25:
            at = choose.randrange(len(line) - len(line.lstrip()), len(line))
        line_start = sum(map(len, lines[:number])) - start
        yield cut_hole(shown, line_start + at, line_start + len(line))


def _sources(folder: Traversable) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry.read_text("utf-8")
