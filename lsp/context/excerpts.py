"""Which lines of a file are worth showing beside another one: those that say what it defines. PURE.

  head    the lines of a definition up to its body: a signature, the first line of a class
  near    the names that stand near the cursor
  used    the names that stand anywhere in the document at hand

First come the definitions of names near the cursor, whole where they are short; then the heads of
the members of such a class, of what is used, of all else at the top level, and of its members. Of
what is private to the file nothing is shown that is not used.
What would go over the bounds of a chunk is left out, and what is shorter may still fit. So an
excerpt stays the same until a name that the file defines comes near the cursor, or goes.

C6  of `chunks.py` holds for excerpts too. A member never stands without the head of its class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import PurePosixPath

from suture.lsp.context.chunks import MAX_CHARS, MAX_LINES, around, joined

# Longer definitions are shown by their heads alone.
MAX_WHOLE = 16
# Of what nobody uses yet no more is shown: where room is small, another file has more to say.
MAX_UNUSED = 32
# On each side of the cursor.
N_NEAR = 24
# One letter says nothing.
_NAME = re.compile(r"[^\W\d]\w+")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a file defines: rows from `start` on, its head up to `head_end`, all up to `end`."""

    name: str
    start: int
    head_end: int
    end: int
    members: tuple[Definition, ...] = ()


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a document at hand that it does not define itself."""

    near: frozenset[str]
    used: frozenset[str]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a file; how many of the names it defines are near, and with its own are used."""

    text: str
    n_near: int
    n_used: int


def excerpt(
    lines: Sequence[str], definitions: Sequence[Definition], names: Names, path: str
) -> Excerpt:
    """What to show of a file beside a document that has these names."""
    defined = {one.name for one in definitions}
    own = PurePosixPath(path).name.partition(".")[0]
    rows = _chosen(lines, sorted(_offers(definitions, names)))
    text = joined(lines, rows if definitions else around(lines, 0))
    return Excerpt(text, len(defined & names.near), len((defined | {own}) & names.used))


_Offer = tuple[int, int, int, tuple[int, ...]]
"""How late it is shown, its rows from and to, and the rows that must stand with it."""

_NEAR, _OF_NEAR, _USED, _TOP, _MEMBER, _PRIVATE = range(6)


def _offers(definitions: Sequence[Definition], names: Names) -> Iterator[_Offer]:
    for one in definitions:
        other = _PRIVATE if _is_private(one) else _TOP
        rank = _NEAR if one.name in names.near else _USED if one.name in names.used else other
        is_whole = rank == _NEAR and one.end - one.start <= MAX_WHOLE
        yield rank, one.start, one.end if is_whole else one.head_end, ()
        yield from _of_members(one, names, rank, ())


def _of_members(
    owner: Definition, names: Names, rank: int, above: tuple[int, ...]
) -> Iterator[_Offer]:
    above = (*above, *range(owner.start, owner.head_end))
    for member in owner.members:
        # A name of a member says little alone: `get` is one of many.
        is_near = rank in (_NEAR, _USED) and member.name in names.near
        other = _PRIVATE if _is_private(member) or rank == _PRIVATE else _MEMBER
        own = _OF_NEAR if is_near or (rank == _NEAR and other == _MEMBER) else other
        yield own, member.start, member.head_end, above
        yield from _of_members(member, names, max(own, _TOP), above)


def _is_private(definition: Definition) -> bool:
    """Whether other files have no use for it, as Python's names say."""
    return definition.name.startswith("_") and not definition.name.endswith("__")


def _chosen(lines: Sequence[str], offers: Sequence[_Offer]) -> set[int]:
    rows: set[int] = set()
    n_chars = 0
    for rank, start, end, above in offers:
        most = MAX_UNUSED if rank in (_TOP, _MEMBER) else MAX_LINES
        new = {*range(start, end), *above} - rows
        n_new = sum(len(lines[row]) + 1 for row in new)
        if len(rows) + len(new) <= most and n_chars + n_new <= MAX_CHARS and rank != _PRIVATE:
            rows |= new
            n_chars += n_new
    return rows


def names_near(lines: Sequence[str], row: int, known: AbstractSet[str]) -> Names:
    """The names of a document whose cursor is in a row, but for those that are `known`."""
    near: set[str] = set()
    used: set[str] = set()
    for number, line in enumerate(lines):
        found = _NAME.findall(line)
        used.update(found)
        if abs(number - row) <= N_NEAR:
            near.update(found)
    return Names(frozenset(near - known), frozenset(used - known))
