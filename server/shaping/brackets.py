"""Closers that the file already balances: an answer ends before the one that it doubles.

  needed     what the text before the cursor opens and the suffix closes, the innermost first
  missing    what the text before the cursor opens and nothing closes: the answer may close it
  doubled    a closer of the answer behind which something needed is not open any more
  restored   what is needed is open again, in the same line (`foo(‸)`: `a) + g(`) or where a later
             one ends
  delimiter  what ends the string that the cursor is in, where the suffix has it

Closers of the rest of the cursor's line that the prompt leaves out are not needed: the answer may
write them (`closers.py`). Farther from the cursor than 4,096 characters, or than the prompt shows,
all that is open counts as closed, but for what a line of closers ends that is deeper than the
suffix's. Strings are known by their quotes (`marks.py`).

Where something stays doubled, keeping it and cutting it are judged by the parse errors that the
file has then: it is cut where it has fewer. Where it has none, it is cut where the closer is one in
a parse, and kept in a comment, say. Where they are as many, or there is no opinion, the balance
decides: it is cut where no word stands behind the closer in its line (`a, b)`, `});`).

K1  What is left out begins with a closer, or with the line ends and blanks before it where it
    stands alone in its line and the suffix begins with a line end.
K2  Nothing is cut where the answer closes only what it has opened, what is missing, and the rest.
K3  Held is from a doubled closer on the text up to the end of the next line that has more than
    closers, or of the one behind 512 characters; in a string, up to the end of its line; and line
    ends, until one knows what follows them.
K4  How the text comes apart changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from suture.server.shaping.balance import Balance, balance_at, is_deeper
from suture.server.shaping.marks import QUOTES, next_mark, with_bracket
from suture.server.shaping.surroundings import Surroundings

_MAX_HELD = 512
# So many closers may turn out to be none (in comments, say) before the rule lets an answer be.
_MAX_KEPT = 8
_CLOSER = re.compile(r"[)\]}]")
_MORE_THAN_CLOSERS = re.compile(r"[^)\]}\"'`;, \t]")
_WORD = re.compile(r"\w")
_BELOW = re.compile(r"[ \t]*(?:\n|\Z)")
_LINE_ENDS = re.compile(r"\n[ \t\n]*\Z")
# A lifetime of Rust's, once one sees what follows it.
_LIFETIME = re.compile(r"(?<=[&<])'[A-Za-z_]\w*(?=[^'\w])")


class Judge(Protocol):
    """Parses the file with a text at the cursor; None is no opinion (`syntax.py`)."""

    def n_errors(self, text: str) -> int | None:
        """How many errors it has."""
        ...

    def is_token(self, text: str, at: int) -> bool | None:
        """Whether the bracket or quote at a place of the text is one in the file."""
        ...


class Brackets:
    """What of an answer that comes in parts doubles no closer of the suffix."""

    name = "brackets"

    def __init__(self, around: Surroundings, judge: Judge) -> None:
        self._around, self._judge = around, judge
        self._text = line = around.cursor_line
        self._start = self._n_released = len(line)
        self._line_start = 0
        self._scan = _scan_for(around)
        self._is_below = bool(_BELOW.match(around.suffix))
        self._n_kept = 0
        self._ended = False

    @property
    def fired(self) -> bool:
        return self._ended

    @property
    def ended(self) -> bool:
        return self._ended

    def feed(self, text: str) -> str:
        """What of the answer is known now and was not before; nothing once it has ended."""
        if self._ended:
            return ""
        self._text += text
        cut = self._over_lines()
        if cut is not None:
            return self._end(cut)
        if self._scan is None:
            return self._release(len(self._text))
        self._scan.to(self._text, len(self._text), is_over=False)
        return self._release(self._sure_end(self._scan))

    def flush(self) -> str:
        """What is left of the answer, which ends here."""
        end = len(self._text)
        while self._scan and not self._ended:
            cut = self._over_lines()
            if cut is None and self._scan:
                self._scan.to(self._text, end, is_over=True)
                if self._scan.doubled is None:
                    break
                cut = self._judged(self._scan, end)
            if cut is not None:
                return self._end(cut)
        return "" if self._ended else self._release(end)

    def _over_lines(self) -> int | None:
        """Goes over the lines that have ended; where the answer ends in them, if it does."""
        while self._scan and (end := self._text.find("\n", self._line_start)) >= 0:
            self._scan.to(self._text, end, is_over=True)
            if not self._is_due(self._scan, end):
                self._line_start = end + 1
            elif (cut := self._judged(self._scan, end)) is not None:
                return cut
        return None

    def _is_due(self, scan: _Scan, end: int) -> bool:
        """Whether nothing more is waited for at the end of a line."""
        if scan.doubled is None:
            return False
        is_below = self._line_start > scan.doubled
        says_more = bool(_MORE_THAN_CLOSERS.search(self._text, self._line_start, end))
        return scan.ends_with_line or (is_below and says_more) or end - scan.doubled > _MAX_HELD

    def _judged(self, scan: _Scan, end: int) -> int | None:
        """Where the answer ends before what it doubles; None goes on behind it, as it is none."""
        assert scan.doubled is not None
        text, at = self._text[self._start : end], scan.doubled - self._start
        n_cut = self._judge.n_errors(self._text[self._start : self._cut_at(scan.doubled)])
        n_kept = self._judge.n_errors(text)
        is_last = not _WORD.search(text[at:].partition("\n")[0])
        if n_cut is None or n_kept is None:
            is_cut = is_last
        elif n_cut != n_kept:
            is_cut = n_cut < n_kept
        else:
            # In a file that does not parse, who knows what a token is.
            is_cut = bool(self._judge.is_token(text, at)) or (n_cut > 0 and is_last)
        if is_cut:
            return self._cut_at(scan.doubled)
        self._line_start = scan.doubled + 1
        scan.keep(self._line_start)
        self._n_kept += 1
        if self._n_kept >= _MAX_KEPT:
            self._scan = None
        return None

    def _cut_at(self, closer: int) -> int:
        """Where the answer ends if it ends before a closer (K1); line ends before it are held."""
        found = _LINE_ENDS.search(self._text, self._n_released, closer) if self._is_below else None
        return found.start() if found else closer

    def _sure_end(self, scan: _Scan) -> int:
        """What cannot be cut any more, whatever comes."""
        at = _first((scan.doubled, scan.unsure))
        return self._cut_at(len(self._text) if at is None else at)

    def _end(self, cut: int) -> str:
        self._ended = True
        if self._n_kept:
            # What was kept may have been so for the sake of what is cut now.
            again = Brackets(self._around, self._judge)
            text = self._text[self._start : cut]
            cut = self._start + len(again.feed(text) + again.flush())
        return self._release(cut)

    def _release(self, end: int) -> str:
        text = self._text[self._n_released : end]
        self._n_released = max(end, self._n_released)
        return text


class _Scan(Protocol):
    """What is known of a text up to some place.

    `doubled` is where the closer stands that doubles another, unless that was restored; `unsure`,
    from where on there may be one, depending on what comes.
    """

    @property
    def doubled(self) -> int | None: ...

    @property
    def unsure(self) -> int | None: ...

    @property
    def ends_with_line(self) -> bool:
        """Whether only the line of a doubled closer can restore it."""
        ...

    def to(self, text: str, end: int, is_over: bool) -> None:
        """Goes on to `end`, in the same line; `is_over` where the line or the text ends there."""
        ...

    def keep(self, at: int) -> None:
        """What was doubled, before `at`, is none; goes on there."""
        ...


class _InCode:
    """The brackets of a text in a place with some balance; `start` is where the answer starts."""

    ends_with_line = False

    def __init__(self, balance: Balance, start: int) -> None:
        self.doubled: int | None = None
        self.unsure: int | None = None
        self._opened, self._needed = balance.opened, balance.needed
        self._n_above, self._indent_above = balance.n_above, balance.indent_above
        self._at = balance.code_start
        self._start = start
        self._before = balance.opened  # what is doubled
        self._is_above = False  # whether a line above has it

    def to(self, text: str, end: int, is_over: bool) -> None:
        self.unsure = None
        while mark := next_mark(text, self._at, end):
            at = mark.start
            if not mark.end and at < self._start:
                # Who knows what stands behind a quote in the cursor's line that none ends?
                self._at = end if is_over else at
                break
            if not mark.end and not is_over and not _LIFETIME.match(text, at, end):
                closer = _CLOSER.search(text, at, end)
                self.unsure = closer.start() if closer else None
                self._at = at
                return
            self._at = mark.end or at + 1
            if mark.sign not in QUOTES:
                self._with_bracket(mark.sign, text, at)
        else:
            self._at = max(self._at, end)
        if is_over and self._is_above and self._opened.startswith(self._needed[0]):
            self.doubled = None if self._has_needed() else self.doubled
        if is_over:
            self._is_above = self.doubled is not None

    def _with_bracket(self, bracket: str, text: str, at: int) -> None:
        before = self._opened
        n_seen = max(len(before) - self._n_above, 0)
        if bracket in ")]}" and bracket not in before[:n_seen] and self._is_unseen(text, at):
            self._opened = before[n_seen:]
        else:
            self._opened = with_bracket(before, bracket)
        if self._is_above:
            return
        if self._has_needed():
            self.doubled = None
        elif self.doubled is None:
            self.doubled, self._before = at, before

    def _is_unseen(self, text: str, at: int) -> bool:
        """Whether a closer ends what was opened above all that is read, and the suffix does not."""
        line = text[text.rfind("\n", 0, at) + 1 : at]
        indent = line.rstrip(")]}")
        is_first = not indent.strip(" \t")
        return is_first and self._indent_above is not None and is_deeper(indent, self._indent_above)

    def _has_needed(self) -> bool:
        return _has_in_order(self._opened, self._needed)

    def keep(self, at: int) -> None:
        self.doubled, self._opened, self._at = None, self._before, at
        self._is_above = False


class _InString:
    """The delimiters of a text that begins in a string at `at`."""

    def __init__(self, delimiter: str, at: int) -> None:
        self.doubled: int | None = None
        self.unsure: int | None = None
        self._pattern = re.compile(rf"\\.|{delimiter}", re.DOTALL)
        self._half = re.compile(rf"(?<!\\){delimiter[0]}{{1,2}}\Z")
        self._delimiter, self._at = delimiter, at

    @property
    def ends_with_line(self) -> bool:
        return self._delimiter in "\"'"

    def to(self, text: str, end: int, is_over: bool) -> None:
        while found := self._pattern.search(text, self._at, end):
            self._at = found.end()
            if found[0] == self._delimiter:
                self.doubled = found.start() if self.doubled is None else None
        half = self._half.search(text, self._at, end) if len(self._delimiter) > 1 else None
        self.unsure = half.start() if half and not is_over else None

    def keep(self, at: int) -> None:
        self.doubled, self._at = None, at - 1 + len(self._delimiter)


class _InBoth:
    """A string with brackets that the suffix closes before its delimiter."""

    def __init__(self, string: _InString, code: _InCode) -> None:
        self._string = string
        self._code = code
        self._scans: tuple[_Scan, _Scan] = (string, code)
        self.ends_with_line = string.ends_with_line

    @property
    def doubled(self) -> int | None:
        return _first(scan.doubled for scan in self._scans)

    @property
    def unsure(self) -> int | None:
        return _first(scan.unsure for scan in self._scans)

    def to(self, text: str, end: int, is_over: bool) -> None:
        self._string.to(text, end, is_over)
        # Behind its end nothing restores what is inside, unless there is another string.
        closed = self._string.doubled
        self._code.to(text, end if closed is None else closed, is_over)

    def keep(self, at: int) -> None:
        for scan in self._scans:
            if scan.doubled is not None and scan.doubled < at:
                scan.keep(at)


def _scan_for(around: Surroundings) -> _Scan | None:
    """What may be doubled at a place; None if nothing can."""
    balance = balance_at(around)
    start = len(around.cursor_line)
    code = _InCode(balance, start)
    if not balance.delimiter:
        return code if balance.needed else None
    string = _InString(balance.delimiter, start)
    return _InBoth(string, code) if balance.needed else string


def _first(places: Iterable[int | None]) -> int | None:
    return min((at for at in places if at is not None), default=None)


def _has_in_order(opened: str, needed: str) -> bool:
    """Whether all that is needed is open, in this order."""
    open_ones = iter(opened)
    return all(closer in open_ones for closer in needed)
