"""How a file is indented: with tabs or spaces, and by how many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from suture.server.shaping.lexical import LexicalSyntax, Nesting, lexical_syntax
from suture.server.shaping.statements import opens_block
from suture.server.shaping.surroundings import Surroundings

_BLANKS = re.compile(r"[ \t]*")
UNITS = (2, 3, 4, 8)
# One line in so many that begins otherwise is no other style.
_CLEARLY = 20
# A step that one line in so many takes is one that the next line may take.
_SELDOM = 20


@dataclass(frozen=True, slots=True)
class Style:
    """How a file writes its indentation; `uses` None where that is not clear.

    `unit` is what one level adds most often, `most` what it adds now and then.
    """

    uses: Literal["tabs", "spaces"] | None
    unit: int = 4
    most: int = 4

    def columns(self, blanks: str) -> int:
        """How deep some blanks are."""
        return len(blanks.expandtabs(self.unit))


@lru_cache(maxsize=4)
def style_of(around: Surroundings) -> Style:
    """What the lines around a cursor say, or the language where they say nothing."""
    syntax = lexical_syntax(around.language, around.path)
    above = around.prefix[: len(around.prefix) - len(around.cursor_line)].split("\n")
    lines = [*above[1 if around.is_prefix_cut else 0 :], *around.suffix.split("\n")[1:]]
    lines = [line for line in lines if line.strip()]
    leads = [blanks_of(line) for line in lines]
    typed = blanks_of(around.cursor_line)
    n_tabs = sum(lead.startswith("\t") for lead in [*leads, typed])
    # One space is a comment's: ` * text`.
    n_spaces = sum(lead.startswith("  ") for lead in [*leads, typed])
    uses: Literal["tabs", "spaces"] | None = None
    if not syntax.is_indented:
        pass
    elif n_tabs > _CLEARLY * n_spaces or (syntax.tabs == "always" and not n_spaces):
        uses = "tabs"
    elif n_spaces > _CLEARLY * n_tabs and syntax.tabs == "as found":
        uses = "spaces"
    of_spaces = [line for line, lead in zip(lines, leads, strict=True) if "\t" not in lead]
    return Style(uses, *_units(of_spaces or ["", around.cursor_line], syntax.unit))


def _units(lines: Sequence[str], usual: int) -> tuple[int, int]:
    """By how much lines are deeper than the ones before them: most often, and now and then.

    What goes on with a statement is as deep as it likes: where there are blocks, only they count.
    """
    every, of_blocks = Counter[int](), Counter[int]()
    for above, line in pairwise(lines):
        step = len(blanks_of(line)) - len(blanks_of(above))
        if step in UNITS:
            every[step] += 1
            of_blocks[step] += opens_block(above)
    steps = +of_blocks or every
    if not steps:
        return usual, usual
    unit = max(steps, key=lambda step: (steps[step], -step))
    most = max(step for step, n in steps.items() if n * _SELDOM >= steps.total())
    return unit, most


@lru_cache(maxsize=4)
def nesting_above(around: Surroundings) -> Nesting:
    """What is open where the cursor's line begins; not to be fed."""
    above = around.prefix[: len(around.prefix) - len(around.cursor_line)]
    syntax = lexical_syntax(around.language, around.path)
    return Nesting(syntax, above, string_end=_string_cut(syntax, above, around.is_prefix_cut))


def _string_cut(syntax: LexicalSyntax, text: str, is_cut: bool) -> str:
    """The three quotes that end the string which a text whose beginning is cut off begins in.

    Every other of them opens a string; those behind a colon, a bracket or `=` are such.
    """
    for quotes in syntax.long_quotes if is_cut else ():
        if len(quotes) == 3:
            n_opening = [0, 0]
            for index, found in enumerate(_opening(quotes).finditer(text)):
                n_opening[index % 2] += found[1] is not None
            if n_opening[1] > n_opening[0]:
                return quotes
    return ""


@lru_cache
def _opening(quotes: str) -> re.Pattern[str]:
    return re.compile(rf"([:=(,\[{{+]\s*[rRbBuUfF]{{0,2}})?{quotes}")


def blanks_of(line: str) -> str:
    """What a line begins with before its first other character."""
    found = _BLANKS.match(line)
    return found[0] if found else ""
