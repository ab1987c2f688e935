"""Closers behind the cursor: brackets and quotes that editors put there before one writes them.

  closer     `)`, `]`, `}`, or a quote that ends a string
  rest       the rest of the cursor's line where it is nothing but closers and blanks
  insertion  what of an answer can be put before the rest as it stands
  edit       all of the answer, and how much of the rest it has written itself

A model that is not shown the rest writes its closers too: `foo(‸)` is answered `a, b)` and more
lines. Strings before the cursor are known line by line (`marks.py`). As comments are not known, a
bracket that the rest has none of may be a list's `1)` or a `case`, and says nothing.

E1  Applying the edit doubles no closer of the rest: those that the text writes are replaced. It
    ends where the text writes another one of the rest's kinds than the rest has next, unless that
    ends what was opened before the cursor, before quotes that begin a triple one of the rest, and
    before a line end in a string that the rest ends and that is of one line.
E2  The insertion is the text before the first closer of the rest that it writes; while the text
    comes, no more than that is released, and what is released stays.
E3  How the text comes apart changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from suture.server.request import Edit
from suture.server.shaping.marks import CLOSER_OF, QUOTES, next_mark, open_marks, with_bracket

_REST = re.compile(r"[ \t]*[)\]}\"'`][)\]}\"'` \t]*(?=[\r\n]|\Z)")
_TRIPLE = re.compile("\"\"\"|'''|```")
_CLOSER = re.compile(rf"{_TRIPLE.pattern}|\S")
_LINE = re.compile(r"[^\r\n]*[\r\n]")
_QUOTE = re.compile(r"[\"'`]")
_STRING_LINE = re.compile(r"(?:\\(?:\r\n|.)|[^\\\r\n])*(?=[\r\n])", re.DOTALL)
_NOT_QUOTES = re.compile(r"[^\"'`]")
# What was opened farther before the cursor is not looked for.
_MAX_PREFIX = 4096
# More closers in a row are data, and no editor put them there.
_MAX_REST = 256


def line_rest(prefix: str, suffix: str) -> str:
    """The rest of the cursor's line if it is closers and blanks, not many, else nothing.

    A quote is a closer only where the line before the cursor has opened it.
    """
    found = _REST.match(suffix[: _MAX_REST + 1])
    if found is None or len(found[0]) > _MAX_REST:
        return ""
    quotes = _quotes(found[0])
    line = re.split("[\r\n]", prefix[-_MAX_PREFIX:])[-1]
    return found[0] if not quotes or quotes == _quotes(still_open(line)) else ""


def still_open(text: str) -> str:
    """The closers of what `text` opens and does not close, the innermost first."""
    closers = ""
    for line in _LINE.findall(text + "\n"):
        closers = _QUOTE.sub("", closers)
        for _, mark in open_marks(line):
            if mark in QUOTES:
                closers = mark + closers
            else:
                closers = with_bracket(closers, mark)
    return closers


def n_unclosed(text: str) -> int:
    """How many brackets of a text nothing closes, or only what closes another around them."""
    closers, count = "", 0
    for line in _LINE.findall(text + "\n"):
        for _, mark in open_marks(line):
            if mark not in QUOTES:
                count += max(closers.find(mark), 0)
                closers = with_bracket(closers, mark)
    return count + len(closers)


def are_auto_closed(closers: str, typed: str) -> bool:
    """Whether all of some closers and blanks end what `typed` opened, in this order."""
    open_ones = iter(still_open(typed))
    return all(closer in open_ones for closer in closers.replace(" ", "").replace("\t", ""))


@dataclass(frozen=True, slots=True)
class _Scanned:
    """What is known at some place of the text.

    `opened` are the closers of what it opened, the innermost last; `outer` those of what was open
    before it, the innermost first. `n_written` is how many closers of the rest it wrote, the last
    of them before `written_end`. The insertion ends at `inserted`, all that is of use at `ended`.
    """

    outer: str
    opened: str = ""
    n_written: int = 0
    written_end: int = 0
    inserted: int | None = None
    ended: int | None = None


class OverClosers:
    """The insertion of a text that comes in parts, and its edit over `rest`.

    `prefix` is the text before the cursor. A string that the rest ends goes over line ends only
    with `long_quotes`.
    """

    name = "closers"

    def __init__(
        self, rest: str, prefix: str, long_quotes: Collection[str] = ('"', "'", "`")
    ) -> None:
        self._rest = rest
        self._long_quotes = long_quotes
        self._closers = [(match[0], match.end()) for match in _CLOSER.finditer(rest)]
        self._text = ""
        outer = still_open(prefix[-_MAX_PREFIX:]) if rest else ""
        self._sure = self._scanned = _Scanned(outer)
        self._n_sure = 0  # characters up to which nothing that comes changes what is known
        self._n_released = 0

    def feed(self, text: str) -> str:
        """What of the insertion is known now and was not before."""
        if not self._closers:
            return text
        self._text += text
        while line := _LINE.match(self._text, self._n_sure):
            self._sure, _, _ = self._scan(line.end())
            self._n_sure = line.end()
        self._scanned, self._sure, self._n_sure = self._scan(len(self._text))
        released = self._text[self._n_released : self._scanned.inserted]
        self._n_released += len(released)
        return released

    @property
    def fired(self) -> bool:
        """Whether the insertion is not all of the text."""
        return self._scanned.inserted is not None

    @property
    def edit(self) -> Edit | None:
        """The answer as an edit over the rest; None where there is no rest."""
        if not self._closers:
            return None
        scanned = self._scanned
        text = self._text[: scanned.ended]
        if not scanned.n_written:
            return Edit(0, text)
        _, n_replaced = self._closers[scanned.n_written - 1]
        is_over = scanned.n_written == len(self._closers) and scanned.written_end < len(text)
        return Edit(len(self._rest) if is_over else n_replaced, text)

    def _scan(self, end: int) -> tuple[_Scanned, _Scanned, int]:
        """What is known at `end`, in the line where it is not sure; what is sure now, up to where.

        Behind a quote that nothing ends yet nothing is: the next one may make a string of it.
        """
        scanned, at = self._sure, self._n_sure
        sure: tuple[_Scanned, int] | None = None
        while at < end and scanned.ended is None:
            wanted = self._wanted(scanned)
            if wanted[:1] and wanted[0] in QUOTES:
                # In a string that the rest ends.
                closed = _end_of_string(wanted).match(self._text, at, end)
                if (line_end := self._line_end(wanted, at, end)) is not None and (
                    not closed or line_end < closed.end()
                ):
                    scanned = _ended(scanned, line_end)
                    break
                if not closed:
                    sure = sure or (scanned, at)
                    scanned = _before_half(scanned, wanted, self._text, at, end)
                    break
                scanned, at = _written(scanned, wanted, closed.end()), closed.end()
                continue
            mark = next_mark(self._text, at, end)
            if mark is None:
                break
            at = mark.end or mark.start + 1
            if mark.sign not in QUOTES:
                scanned = _with_bracket(scanned, mark.sign, at, wanted, self._rest)
            elif not mark.end:
                sure = sure or (scanned, mark.start)
        return (scanned, *(sure or (scanned, end)))

    def _line_end(self, quotes: str, at: int, end: int) -> int | None:
        """Where a string that `quotes` end is broken off by a line end."""
        if len(quotes) > 1 or quotes in self._long_quotes:
            return None
        line = _STRING_LINE.match(self._text, at, end)
        return line.end() if line else None

    def _wanted(self, scanned: _Scanned) -> str:
        """The next closer of the rest."""
        n = scanned.n_written
        return self._closers[n][0] if n < len(self._closers) else ""


def _with_bracket(scanned: _Scanned, bracket: str, end: int, wanted: str, rest: str) -> _Scanned:
    """What is known after a bracket that ends before `end`."""
    opened = scanned.opened
    if bracket in CLOSER_OF:
        return replace(scanned, opened=opened + CLOSER_OF[bracket])
    if bracket in opened:
        return replace(scanned, opened=opened[: opened.rfind(bracket)])
    if bracket == wanted:
        return _written(scanned, bracket, end)
    if bracket in scanned.outer:
        return replace(scanned, outer=_outside(scanned.outer, bracket), opened="")
    if wanted and bracket in rest:
        return _ended(scanned, end - 1)
    return scanned  # it closes what stands around the rest, if anything


def _written(scanned: _Scanned, closer: str, end: int) -> _Scanned:
    start = end - len(closer)
    return replace(
        scanned,
        outer=_outside(scanned.outer, closer[0]),
        opened="",
        n_written=scanned.n_written + 1,
        written_end=end,
        inserted=start if scanned.inserted is None else scanned.inserted,
    )


def _ended(scanned: _Scanned, end: int) -> _Scanned:
    inserted = end if scanned.inserted is None else scanned.inserted
    return replace(scanned, inserted=inserted, ended=end)


def _before_half(scanned: _Scanned, wanted: str, text: str, at: int, end: int) -> _Scanned:
    """Ended before the quotes at the end of the text, if they may be the first of `wanted`."""
    half = _half_end_of_string(wanted).match(text, at, end) if len(wanted) > 1 else None
    return _ended(scanned, half.start(1)) if half else scanned


def _outside(outer: str, closer: str) -> str:
    """What stays open around what `closer` ends."""
    return outer[outer.index(closer) + 1 :] if closer in outer else outer


@lru_cache
def _end_of_string(quote: str) -> re.Pattern[str]:
    first, others = quote[0], quote[1:]
    inside = rf"[^\\{first}]++|\\." + (rf"|{first}(?!{others})" if others else "")
    return re.compile(rf"(?:{inside})*+{quote}", re.DOTALL)


@lru_cache
def _half_end_of_string(quote: str) -> re.Pattern[str]:
    return re.compile(rf"(?:\\.|[^\\])*?({quote[0]}{{1,2}})\Z", re.DOTALL)


def _quotes(closers: str) -> str:
    """The quotes among some closers, three of a kind as one."""
    return _NOT_QUOTES.sub("", _TRIPLE.sub(lambda triple: triple[0][0], closers))
