"""A suggestion as the item that a client shows and accepts rightly. PURE.

VS Code compares an item with the text in its range, and closes brackets behind the cursor: its
range goes from the start of the line over the closers that the text writes itself, and the text
begins with what is typed. It shows nothing of an item with a character beyond the basic plane in
its range, which begins behind that; nor on an empty line one that ends with a line end: there
suggestions are cut as they come (`completions.py`). Neovim covers what stands in a range, so its
range begins at the cursor; its buffers have no CR, whatever the file has. Others get a range at the
cursor.

A row of a popup begins with the word before the cursor: editors show those rows that it begins.

With a row of the popup selected, VS Code shows only what goes on from that row: the model is asked
as if it were typed, and the item begins with it.

R1  The item, accepted, makes of the document what the suggestion makes of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from suture.lsp.documents import Cursor, Position
from suture.lsp.positions import Encoding, index_of, length
from suture.lsp.shown import Suggestion

_WORD = re.compile(r"\w*\Z")
_BEYOND = re.compile(r".*[\U00010000-\U0010ffff]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Profile:
    """How a client shows items: from where in the line, with whose line ends, and whether on an
    empty line ones that end with a line end.
    """

    starts_at: Literal["line", "word", "cursor"] = "cursor"
    keeps_line_ends: bool = True
    shows_last_line_end: bool = True


LINE = Profile(starts_at="line", shows_last_line_end=False)
NEOVIM = Profile(keeps_line_ends=False)
CURSOR = Profile()
# The editors that are VS Code, as they name themselves.
_VSCODE = ("visual studio code", "vscode", "vscodium", "code-server", "code - oss")


def profile_of(client_name: str) -> Profile:
    """The profile of a client by the name that it gave."""
    name = client_name.lower()
    if any(one in name for one in _VSCODE) or name in ("cursor", "windsurf"):
        return LINE
    return NEOVIM if name.startswith("neovim") else CURSOR


@dataclass(frozen=True, slots=True)
class Row:
    """The selected row of a popup: accepted, `text` takes the place of a range."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The cursor that the model is asked at; what is accepted begins at index `start` of its line.

    `real` is the cursor in the document.
    """

    real: Cursor
    cursor: Cursor
    start: int


def ask_at(cursor: Cursor, row: Row | None, encoding: Encoding) -> Asked | None:
    """Where to ask; None where what goes on from the row could not be shown at the cursor."""
    if row is None:
        return Asked(cursor, cursor, len(cursor.before))
    line = cursor.before + cursor.after
    start = index_of(line, row.start.character, encoding)
    end = index_of(line, row.end.character, encoding)
    at = len(cursor.before)
    typed = cursor.before[start:]
    is_here = row.start.line == row.end.line == cursor.line and start <= at <= end
    if not is_here or not row.text.lower().startswith(typed.lower()):
        return None
    virtual = replace(
        cursor,
        before=cursor.before[:start] + row.text,
        after=cursor.after[end - at :],
        prefix=cursor.prefix[: len(cursor.prefix) - len(typed)] + row.text,
        suffix=cursor.suffix[end - at :],
    )
    return Asked(cursor, virtual, start)


@dataclass(frozen=True, slots=True)
class Item:
    """What is inserted in the place of a range, which is in one line."""

    start: Position
    end: Position
    text: str
    filter_text: str | None


def item_of(asked: Asked, suggestion: Suggestion, profile: Profile, encoding: Encoding) -> Item:
    """The item of a suggestion (R1)."""
    real, cursor = asked.real, asked.cursor
    first = _first(real.before[: asked.start], profile)
    n_behind = len(real.after) - len(cursor.after) + suggestion.delete_after
    end = length(real.before, encoding) + length(real.after[:n_behind], encoding)
    text = cursor.before[first:] + suggestion.text
    if not profile.keeps_line_ends:
        text = text.replace("\r\n", "\n")
    return Item(
        start=Position(real.line, length(real.before[:first], encoding)),
        end=Position(real.line, end),
        text=text,
        filter_text=text if profile.starts_at != "cursor" else None,
    )


def _first(before: str, profile: Profile) -> int:
    """The index in the line at which an item begins."""
    if profile.starts_at == "cursor":
        return len(before)
    if profile.starts_at == "line":
        beyond = _BEYOND.match(before)
        return 0 if beyond is None else beyond.end()
    word = _WORD.search(before)
    return 0 if word is None else word.start()
