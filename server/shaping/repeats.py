"""A model in a loop: the same lines, or the same few characters, again and again.

  copy    some lines that are those right before them, blank lines not counted
  loop    more copies in a row than anybody writes

R1  The text ends before the first line of the copy that proves the loop. A line of letters is said
    six times before, one without (`0, 0, 0,`) as often as a table may, two lines four times, and
    three to eight lines three times.
R2  Within a line it ends where 256 characters are copies of the 32 before them or of fewer, and the
    next one would go on with that.
R3  What stands before the cursor was written on purpose: it does not count, and a block of lines
    that are there twice may go on as long as one without letters.
"""

from __future__ import annotations

from collections import Counter

from suture.server.shaping.lines import LineRule, Verdict, lines_of
from suture.server.shaping.surroundings import Surroundings

_MAX_LINES = 8
_MAX_PERIOD = 32
_RUN = 256
# Full copies of so many lines that may stand; of more lines, three.
_N_COPIES = {1: 6, 2: 4}
_N_COPIES_OF_MANY = 3
_N_COPIES_ON_PURPOSE = 32
# So many lines above the cursor show what the author is about.
_N_ABOVE = 20


class Repeats(LineRule):
    """Ends a text that comes in parts where it is a loop."""

    name = "repeats"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.cursor_line)
        self._lines: list[str] = []
        self._above = Counter(around.prefix.split("\n")[-_N_ABOVE:])
        # By the distance: how many lines in a row are the ones so far before them.
        self._runs = dict.fromkeys(range(1, _MAX_LINES + 1), 0)
        self._n_in_line = 0
        self._recent = ""

    def feed(self, text: str) -> str:
        """What of the text is sure now and was not before; nothing once it has ended."""
        released = []
        for part in lines_of(text):
            end = self._end_of_run(part)
            released.append(super().feed(part[:end]))
            if end is not None and not self._ended:
                released.append(self.flush())
                self._ended = True
        return "".join(released)

    def _judge(self, line: str, is_whole: bool) -> Verdict:
        expected = [self._lines[-n] for n in self._proving]
        if is_whole:
            return Verdict.ENDS if line in expected else Verdict.GOES_ON
        may_be = any(other.startswith(line) for other in expected)
        return Verdict.UNSURE if may_be else Verdict.GOES_ON

    def _pass(self, line: str) -> None:
        if not line.strip():
            return
        line = line.removesuffix("\n")
        for n in self._runs:
            is_copy = n <= len(self._lines) and self._lines[-n] == line
            self._runs[n] = self._runs[n] + 1 if is_copy else 0
        self._lines = [*self._lines[-_MAX_LINES:], line]

    @property
    def _proving(self) -> list[int]:
        """Of how many lines there are so many copies that one more line of them is a loop."""
        return [
            n
            for n, n_copied in self._runs.items()
            if n_copied and n_copied >= (self._n_copies(n) - 1) * n and n_copied % n == 0
        ]

    def _n_copies(self, n: int) -> int:
        block = self._lines[-n:]
        has_letters = any(c.isalpha() for line in block for c in line)
        if not has_letters or all(self._above[line] > 1 for line in block):
            return _N_COPIES_ON_PURPOSE
        return _N_COPIES.get(n, _N_COPIES_OF_MANY)

    def _end_of_run(self, part: str) -> int | None:
        """Where a loop within a line is proven in the next part of it (R2)."""
        before = self._recent
        self._recent = "" if part.endswith("\n") else (before + part)[-_RUN:]
        text = before + part
        for end in range(max(len(before), _RUN), len(text)):
            if _is_run(text[end - _RUN : end + 1]):
                return end - len(before)
        return None


def _is_run(text: str) -> bool:
    """Whether a text is the same few characters all along."""
    return any(text.startswith(text[n:]) for n in range(1, _MAX_PERIOD + 1))
