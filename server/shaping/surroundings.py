"""What shaping knows of the place that a text is for."""

from __future__ import annotations

from dataclasses import dataclass

from suture.server.shaping.line_ends import LineEnd

# Of a side no more characters are parsed, or read for brackets.
MAX_SIDE = 4096


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The text around a cursor as the model was shown it, LF only.

    A side that is `cut` does not reach the document's start or end. `rest` are closers between the
    cursor and `suffix` that the model was not shown (`closers.py`). `line_end` is the document's;
    the cursor may stand between the CR and the LF of one, which counts as before it.
    `path` and `language` are as the client calls them.
    """

    prefix: str
    suffix: str = ""
    is_prefix_cut: bool = False
    is_suffix_cut: bool = False
    rest: str = ""
    line_end: LineEnd = "\n"
    is_between_cr_and_lf: bool = False
    path: str | None = None
    language: str | None = None

    @property
    def cursor_line(self) -> str:
        """What stands before the cursor in its line."""
        return self.prefix[self.prefix.rfind("\n") + 1 :]

    @property
    def lines_above(self) -> list[str]:
        """The lines before the cursor's, the first of which may be the end of one."""
        return self.prefix.split("\n")[:-1]

    @property
    def last_line_above(self) -> str | None:
        """The last of them that is not blank."""
        return next((line for line in reversed(self.lines_above) if line.strip()), None)
