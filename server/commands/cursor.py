"""The place to complete at: `FILE:LINE:COL`, or standard input with a NUL at the cursor.

Lines end at LF, CRLF or a lone CR, and nowhere else. Lines and columns count from 1, columns in
code points; a line's end is not part of it, so the last column is one after its last character.
A byte order mark stands before column 1, where editors do not show it; it stays text.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from suture.server.errors import SetupError

_TARGET = re.compile(r"(?s)(?P<file>.+):(?P<line>[0-9]{1,12}):(?P<col>[0-9]{1,12})")
_BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A text cut at a cursor; `path` is None for standard input."""

    prefix: str
    suffix: str
    path: str | None = None


def is_target(text: str) -> bool:
    """Whether `text` has the form of a target."""
    return text == "-" or _TARGET.fullmatch(text) is not None


def read_cursor(target: str, stdin: bytes | None) -> Cursor:
    """The cursor that `target` names; `stdin` is what was piped in, for `-`."""
    if target == "-":
        return split_at_nul(decode(stdin or b"", "standard input"))
    match = _TARGET.fullmatch(target)
    if match is None:
        raise SetupError(f"expected FILE:LINE:COL or -, not {target!r}")
    path = match["file"]
    prefix, suffix = split_at(read_text(Path(path)), int(match["line"]), int(match["col"]), path)
    return Cursor(prefix, suffix, sendable(path))


def sendable(path: str) -> str:
    """`path` as text: one that is not UTF-8 helps the model no less with a mark in it."""
    return os.fsencode(path).decode("utf-8", "replace")


def read_text(path: Path) -> str:
    """A file's text, byte for byte."""
    try:
        return decode(path.read_bytes(), str(path))
    except (OSError, ValueError) as error:
        raise SetupError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def decode(raw: bytes, name: str) -> str:
    """The text of `raw`, which must be UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SetupError(f"{name} is not UTF-8: byte {error.start}") from None


def split_at(text: str, line: int, col: int, name: str) -> tuple[str, str]:
    """`text` before and after a position; raises `SetupError` where there is no such position."""
    ends = list(_LINE_END.finditer(text))
    if not 1 <= line <= len(ends) + 1:
        raise SetupError(f"{name}: no line {line}: it has {_count(len(ends) + 1, 'line')}")
    start = ends[line - 2].end() if line > 1 else int(text.startswith(_BYTE_ORDER_MARK))
    end = ends[line - 1].start() if line <= len(ends) else len(text)
    if not 1 <= col <= end - start + 1:
        has = _count(end - start, "character")
        raise SetupError(f"{name}: no column {col} in line {line}: it has {has}")
    cut = start + col - 1
    return text[:cut], text[cut:]


def split_at_nul(text: str) -> Cursor:
    """The text before and after its one NUL."""
    n = text.count("\0")
    if n != 1:
        raise SetupError(f"standard input must have one NUL at the cursor: it has {n}")
    prefix, _, suffix = text.partition("\0")
    if prefix.endswith("\r") and suffix.startswith("\n"):
        return Cursor(prefix[:-1], "\r" + suffix)  # what is inserted must not break a line end
    return Cursor(prefix, suffix)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
