"""Where an answer rejoins the text after the cursor, read all at once: patterns and a count.

It knows `(` and `)` only, a `}` without its `{`, and no quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LEAD = r"\n(?:[ \t]*\n)*"
IN_PLACE = 4
ELSEWHERE = 12
LONG = 256


@dataclass(frozen=True, slots=True)
class Hole:
    """The texts at a cursor; of a suffix that is cut off the last line may not be whole."""

    prefix: str
    suffix: str
    is_cut_off: bool = False

    def rejoin(self, text: str) -> int | None:
        """Where what `text` repeats of the suffix begins; None where it repeats nothing."""
        return next((at for at in range(len(text)) if self._rejoins(text, at)), None)

    def is_open_at(self, text: str) -> int | None:
        """Where a rejoin may begin that some continuation of `text` would have."""
        lines = self.suffix.split("\n")
        heads = {"\n".join(lines[:n]) for n in range(1, len(lines) + 1)}
        tails = {head[at:] for head in heads for at in range(len(head) + 1)}
        ends = ("", "\n", " ")
        found = [self.rejoin(text + tail + end) for tail in tails for end in ends]
        return min((at for at in found if at is not None and at < len(text)), default=None)

    def _rejoins(self, text: str, at: int) -> bool:
        for pattern in self._patterns(text[:at]):
            found = pattern.match(text, at)
            if found:
                return self._is_balanced(text[:at], found[0])
        return False

    def _patterns(self, before: str) -> list[re.Pattern[str]]:
        """What the rest of an answer must begin with to rejoin behind `before`."""
        is_below = bool(re.match(r"[ \t]*\n", self.suffix))
        body = re.sub(r"\A(?:[ \t]*\n)+", "", self.suffix)
        line_before = self.prefix.split("\n")[-1]
        is_blank = not line_before.strip(" \t")
        lines_before = before.split("\n")
        is_in_column = len(lines_before) > 1 and lines_before[-1] == line_before
        is_in_place = is_below or not before or (is_blank and is_in_column)
        n_enough = IN_PLACE if is_in_place else ELSEWHERE
        is_whole = is_below or is_blank
        said_again = [
            (line_before if is_blank and not is_below and n == 0 else "") + line
            for n, line in enumerate(body.split("\n"))
        ]
        every = (self.prefix + self.suffix).split("\n")
        says_nothing = [every.count(line) > 1 for line in said_again]
        says_nothing[0] = says_nothing[0] and is_whole
        lines, is_enough = _lines(body, self.is_cut_off, n_enough, says_nothing)
        if not lines:
            return []
        if is_below:
            patterns = _whole_lines(LEAD, lines, is_enough)
            if not before and is_blank and lines.startswith(line_before):
                patterns += _whole_lines("", lines[len(line_before) :], is_enough)
            return patterns
        word = re.match(r"\w*", lines)
        assert word
        return self._beside(before, lines, is_enough, word[0])

    def _beside(self, before: str, lines: str, is_enough: bool, word: str) -> list[re.Pattern[str]]:
        line_before = self.prefix.split("\n")[-1]
        is_in_word = bool(word) and bool(re.search(r"\w\Z", self.prefix))
        is_inside = bool(re.search(r"\w\Z", before))
        patterns = []
        if is_in_word and not re.search(r"\W", before) and (not before or len(word) > 1):
            patterns.append(re.compile(re.escape(word) + r"(?=\W)"))
        is_blank = not line_before.strip(" \t")
        if len(word) > 2 and re.fullmatch(r"\w+", before) and not (is_in_word or is_blank):
            behind = self.suffix[len(word) : len(word) + 1]
            patterns.append(re.compile(re.escape(word + behind) if behind else r"(?!)"))
        if before and not line_before.strip(" \t"):
            lines_before = before.split("\n")
            is_in_column = len(lines_before) > 1 and lines_before[-1] == line_before
            may_begin = is_in_column or lines[0] in ")}"
        else:
            may_begin = True
        if not may_begin:
            return patterns
        if word and (not before or not is_inside or len(word) > 1):
            behind = _heads(lines[len(word) :])
            patterns.append(re.compile(re.escape(word) + behind + r"(?<=\w)\Z"))
        return patterns + _whole_lines("", lines, is_enough)

    def _is_balanced(self, before: str, repeated: str) -> bool:
        if not re.search(r"[)}]", repeated):
            return True
        n_without = _n_open(self.prefix + before + self.suffix)
        n_with = _n_open(self.prefix + before + repeated + self.suffix)
        return n_without <= n_with and n_without <= _n_open(self.prefix + self.suffix)


def _whole_lines(lead: str, lines: str, is_enough: bool) -> list[re.Pattern[str]]:
    """All of some lines; at the answer's end a whole one, and of the others a beginning."""
    first, line_end, more = lines.partition("\n")
    patterns = [re.compile(lead + re.escape(lines))] if is_enough else []
    if line_end:
        blanks = "" if is_enough else r"[ \t\n]*"
        patterns.append(re.compile(lead + re.escape(first) + _heads("\n" + more, blanks) + r"\Z"))
    return patterns


def _heads(text: str, at_end: str = "") -> str:
    """Any beginning of `text`; `at_end` may follow all of it."""
    pattern = at_end
    for character in reversed(text):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return pattern


def _lines(
    body: str, is_cut_off: bool, n_enough: int, says_nothing: list[bool]
) -> tuple[str, bool]:
    if not body.strip():
        return "", False
    if len(body) < LONG and not is_cut_off:
        body = re.sub(r"\n[ \t\n]*\Z", "", body) + "\n"
    *whole, part = body[:LONG].split("\n")
    for n in range(1, len(whole) + 1):
        lines = "".join(line + "\n" for line in whole[:n])
        has_letters = re.search(r"\w", whole[n - 1])
        if has_letters and len(re.findall(r"\w", lines)) >= n_enough and not says_nothing[n - 1]:
            return lines, True
    if len(body) >= LONG:
        return body[:LONG], True
    return body[: len(body) - len(part)], False


def _n_open(text: str) -> int:
    n_open = 0
    for bracket in re.findall(r"[()]", text):
        n_open = n_open + 1 if bracket == "(" else max(n_open - 1, 0)
    return n_open
