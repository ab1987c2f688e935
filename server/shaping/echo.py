"""Answers that say again what stands above the cursor.

  above   the lines above the answer's first own line, blank ones not counted; the cursor's line is
          one of them if it was begun
  echo    from the answer's first own line on, the last lines above, all of them up to there, with
          so many letters that it is no coincidence; or anywhere, while its block lasts, the line
          that begins the definition which the cursor is in

H1  The text ends before an echo, and is untouched without one.
H2  How the text comes apart changes nothing.
H3  Held are the lines said so far while they may be all of the lines above, up to the cursor, of a
    block of at most eight; and the line being said while it may be the definition's first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from suture.server.shaping.lines import LineRule, Verdict, lines_of
from suture.server.shaping.scope import header_above
from suture.server.shaping.style import style_of
from suture.server.shaping.surroundings import Surroundings

_MAX_LINES = 8
# So many characters of words in lines that are said twice in a row are no coincidence.
_ENOUGH = 24
_ENOUGH_OF_HEADER = 6
_WORD = re.compile(r"\w")
# A definition's name behind its keyword or its type: no call with a closure has it.
_NAMED = re.compile(
    r"(?:[a-z]+(?:\(\w+\))?\s+)*(?:class|struct|enum|interface|trait|impl|module|namespace|type|def|"
    r"fn|fun|func|function|sub)\s|[\w<>\[\]*&:,]+(?:\s+[\w<>\[\]*&:,]+)*\s[*&]*\w+\("
)


class Echo:
    """Ends a text that comes in parts before it says the lines above the cursor again."""

    name = "echo"

    def __init__(self, around: Surroundings) -> None:
        self._blocks = _Blocks(around)
        self._header = _Header(around)

    @property
    def fired(self) -> bool:
        return self.ended

    @property
    def ended(self) -> bool:
        return self._blocks.found or self._header.ended

    def feed(self, text: str) -> str:
        """What of the text is sure now and was not before; nothing once it has ended."""
        return "" if self.ended else self._header.feed(self._blocks.feed(text))

    def flush(self) -> str:
        """What is left of the text, which ends here."""
        if self._header.ended:
            return ""
        text = self._header.feed(self._blocks.flush())
        return text if self._header.ended else text + self._header.flush()


class _Blocks:
    """Holds the first lines of a text while they may be the last ones above the cursor."""

    def __init__(self, around: Surroundings) -> None:
        self._typed = around.cursor_line
        self._is_rest = bool(self._typed.strip(" \t"))
        above = around.prefix[: len(around.prefix) - len(self._typed)].split("\n")
        if around.is_prefix_cut:
            del above[0]
        self._above = [line for line in above if line.strip()][-2 * _MAX_LINES :]
        self._blocks = list(_blocks(self._above))
        # The whole lines that are held, without blank ones, and the beginning of the next.
        self._said: list[str] = []
        self._part = "" if self._is_rest else self._typed
        self._held = ""
        self._is_over = False
        self.found = False

    def feed(self, text: str) -> str:
        if self._is_over:
            return "" if self.found else text
        released = ""
        if self._is_rest:
            # The first own line is the next one.
            rest, line_end, text = text.partition("\n")
            released = rest + line_end
            self._typed += rest
            if not line_end:
                return released
            self._above = [*self._above, self._typed][-2 * _MAX_LINES :]
            self._blocks = list(_blocks(self._above))
            self._is_rest = False
        self._hold(text)
        return released + self._decide(is_last=False)

    def flush(self) -> str:
        if self._is_over:
            return ""
        return self._decide(is_last=True)

    def _hold(self, text: str) -> None:
        self._held += text
        for part in lines_of(text):
            self._part += part
            if part.endswith("\n"):
                if self._part.strip():
                    self._said.append(self._part[:-1])
                self._part = ""

    def _decide(self, is_last: bool) -> str:
        """Nothing while the lines may be an echo, and all of them if they are none."""
        said, part = self._said, self._part
        lines = [*said, part] if is_last and part.strip() else said
        if any(lines[: len(block)] == block for block in self._blocks):
            self._is_over = self.found = True
            self._held = ""
            return ""
        if not is_last and any(_may_become(said, part, block) for block in self._blocks):
            return ""
        self._is_over = True
        return self._held


class _Header(LineRule):
    """Ends a text where it begins the definition that the cursor is in once more."""

    name = "header"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.cursor_line)
        # That of the last line above: the cursor's own may not be indented yet.
        found = header_above(around.prefix.rstrip(" \t\n"), style_of(around).columns)
        self._header = found if _is_one_of_its_kind(found) else ""

    def _judge(self, line: str, is_whole: bool) -> Verdict:
        if not self._header:
            return Verdict.GOES_ON
        if is_whole:
            return Verdict.ENDS if line == self._header else Verdict.GOES_ON
        return Verdict.UNSURE if self._header.startswith(line) else Verdict.GOES_ON

    def _pass(self, line: str) -> None:
        """Behind a line that is less deep the same header is one of another block."""
        if line.strip() and _n_blanks(line) < _n_blanks(self._header):
            self._header = ""


def _blocks(above: list[str]) -> Iterator[list[str]]:
    """The last lines above that it would be an echo to say again: not if it was done before."""
    for n in range(1, min(len(above), _MAX_LINES) + 1):
        block = above[-n:]
        if above[-2 * n : -n] == block:
            return
        if _n_letters(block) >= _ENOUGH:
            yield block


def _may_become(said: list[str], part: str, block: list[str]) -> bool:
    """Whether some lines and the beginning of one may be the first of a block."""
    if len(said) >= len(block) or said != block[: len(said)]:
        return False
    return not part.strip() or block[len(said)].startswith(part)


def _is_one_of_its_kind(header: str) -> bool:
    """Not if another definition may well have the same line: a closure's, one of several lines."""
    body = header.strip()
    is_whole = bool(body) and body[0] not in ")]}" and body[-1] not in "(,"
    return is_whole and bool(_NAMED.match(body)) and _n_letters([body]) >= _ENOUGH_OF_HEADER


def _n_letters(lines: list[str]) -> int:
    return sum(len(_WORD.findall(line)) for line in lines)


def _n_blanks(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
