"""What stands open at a cursor, and what of it the text behind the cursor closes.

Strings are known line by line (`marks.py`), comments are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from suture.server.shaping.marks import CLOSER_OF, QUOTES, open_marks
from suture.server.shaping.surroundings import MAX_SIDE, Surroundings

_TRIPLE = re.compile("\"\"\"|'''")


@dataclass(frozen=True, slots=True)
class Balance:
    """The closers of the brackets `opened` before the cursor, the innermost first.

    The suffix closes those `needed`, in this order. `delimiter` ends the string that the cursor is
    in, if the suffix has it: the brackets are those inside then. From `code_start` of the cursor's
    line on one reads what follows: a string that the suffix does not end begins there.
    The outermost `n_above` were opened above all that is read, and `indent_above` is that of the
    line which begins with the closer of the first of these; None where none does.
    """

    opened: str
    needed: str
    delimiter: str
    code_start: int
    n_above: int = 0
    indent_above: str | None = None


@dataclass(frozen=True, slots=True)
class _Open:
    """An open bracket: what closes it, and the indentation of its line."""

    closer: str
    indent: str


def balance_at(around: Surroundings) -> Balance:
    """What is open, and needed, at a place."""
    line = around.cursor_line
    quotes = ((at, mark) for at, mark in open_marks(line) if mark in QUOTES)
    start, quote = next(quotes, (len(line), ""))
    delimiter = _delimiter(around, quote)
    if delimiter and delimiter[0] not in around.rest:
        opened: list[_Open] = []
        _read(opened, line[line.rfind(delimiter) + len(delimiter) :])
        inside = around.suffix[: around.suffix.find(delimiter)]
        needed = _needed(inside, opened, is_above_cut=False, is_suffix_cut=False).closers
        return Balance(_closers(opened), needed, delimiter, len(line))
    opened, found = _in_code(around, start)
    if found.is_suffix_cut:
        opened = opened[len(found.left) :]
    above = found.opened_above
    return Balance(
        _closers(opened) + above, found.closers, "", start, len(above), found.indent_above
    )


def lines_below(around: Surroundings) -> tuple[str, str]:
    """What one reads of the suffix, and what closes all that is open behind it where it is cut."""
    suffix, is_cut = _below(around)
    if not is_cut:
        return suffix, ""
    _, found = _in_code(around, len(around.cursor_line))
    above = around.cursor_line if around.is_prefix_cut else around.prefix
    return suffix, _open_triple(above + suffix) + _closers(found.inner) + _closers(found.left)


def _below(around: Surroundings) -> tuple[str, bool]:
    """What is read of the suffix, and whether that is cut."""
    suffix = around.suffix[:MAX_SIDE]
    is_cut = around.is_suffix_cut or len(suffix) < len(around.suffix)
    return (suffix[: suffix.rfind("\n") + 1] or suffix) if is_cut else suffix, is_cut


@dataclass(frozen=True, slots=True)
class _Needed:
    """The closers that a suffix has of what is open, in their order.

    The last of them are of brackets `opened_above` what one sees, the first of which begins a line
    with `indent_above`, or none. It leaves open what is `left`, and `inner` brackets of its own.
    """

    closers: str
    opened_above: str
    indent_above: str | None
    left: list[_Open]
    inner: list[_Open]
    is_suffix_cut: bool


def _in_code(around: Surroundings, start: int) -> tuple[list[_Open], _Needed]:
    """The brackets opened above `start` of the cursor's line, and what the suffix has of them."""
    line = around.cursor_line
    suffix, is_suffix_cut = _below(around)
    above = around.prefix[: len(around.prefix) - len(line)]
    opened: list[_Open] = []
    for line_above in above[-MAX_SIDE:].split("\n"):
        _read(opened, line_above)
    _read(opened, line[:start])
    is_above_cut = around.is_prefix_cut or len(above) > MAX_SIDE
    outer = list(opened)
    _read(outer, around.rest)
    return opened, _needed(suffix, outer, is_above_cut, is_suffix_cut)


def _needed(suffix: str, outer: list[_Open], is_above_cut: bool, is_suffix_cut: bool) -> _Needed:
    """Reads a suffix where `outer` is open.

    Where the text is cut one does not see what the other side's brackets belong to. What the suffix
    does not close counts as closed behind it; what it closes and nothing opens, as opened above;
    and a closer that is indented less than what it would close belongs to something farther out.
    """
    closers = opened_above = ""
    indent_above: str | None = None
    outer, inner = list(outer), list[_Open]()
    for n, line in enumerate(suffix.split("\n")):
        for at, mark in open_marks(line):
            if mark in CLOSER_OF:
                inner.append(_Open(CLOSER_OF[mark], ""))
            if mark in QUOTES or mark in CLOSER_OF or _close(inner, mark):
                continue
            if (is_above_cut or is_suffix_cut) and n and not line[:at].strip():
                while outer and is_deeper(outer[-1].indent, line[:at]):
                    outer.pop()
            if _close(outer, mark):
                closers += mark
                inner.clear()
            elif is_above_cut:
                if not opened_above and n and not line[:at].strip():
                    indent_above = line[:at]
                closers, opened_above = closers + mark, opened_above + mark
                outer.clear()
                inner.clear()
    return _Needed(closers, opened_above, indent_above, outer, inner, is_suffix_cut)


def _closers(opened: list[_Open]) -> str:
    return "".join(bracket.closer for bracket in reversed(opened))


def _read(opened: list[_Open], line: str) -> None:
    """Goes over a line: what is open becomes what is open behind it, the innermost last."""
    indent = ""
    for _, mark in open_marks(line):
        indent = indent or line[: len(line) - len(line.lstrip(" \t"))]
        if mark in CLOSER_OF:
            opened.append(_Open(CLOSER_OF[mark], indent))
        else:
            _close(opened, mark)


def _close(opened: list[_Open], closer: str) -> bool:
    """Closes the innermost that a closer closes, and all in it; whether there is one."""
    for n in reversed(range(len(opened))):
        if opened[n].closer == closer:
            del opened[n:]
            return True
    return False


def is_deeper(indent: str, other: str) -> bool:
    """Whether a line with one indentation is deeper than a line with the other."""
    return len(indent) > len(other) and indent.startswith(other)


def _delimiter(around: Surroundings, quote: str) -> str:
    """What ends the string that the cursor is in, if the suffix has it.

    `quote` is what the cursor's line leaves open. An even number of them behind the cursor are
    other strings.
    """
    triple = _open_triple(around.cursor_line if around.is_prefix_cut else around.prefix)
    behind = _TRIPLE.search(around.suffix)
    if triple and behind and behind[0] == triple:
        return triple
    marks_behind = re.findall(rf"\\.|{quote or '$'}", around.suffix.partition("\n")[0])
    return quote if marks_behind.count(quote) % 2 else ""


def _open_triple(text: str) -> str:
    """The three quotes of a string that is open at a text's end."""
    triple = ""
    for found in _TRIPLE.findall(text):
        triple = triple.removeprefix(found) if triple else found
    return triple
