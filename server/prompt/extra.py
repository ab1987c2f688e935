"""Text from other files, put before the text at the cursor.

A family that was trained on whole repositories has its layout (`RepositoryLayout`), with real
paths. Most are like this one:

    [rep] NAME\\n  [sep] PATH\\n TEXT  …  [sep] PATH OF THE CURSOR'S FILE\\n  and then the hole

Any other model reads each file after a comment line that names it. Paths and names are text like
all else (F1).

The last chunk is the newest: chunks are dropped from the first on until the rest fits, and one
that does not fit even alone loses whole lines from its end. What says the text at the cursor once
more is left out (`overlap.py`), and so is what is no text. Only the newest `MAX_CHUNKS` are looked
at, whatever they say.

Q1  A chunk whose file is secret, or whose text holds a secret, is left out as a whole.
Q2  A newer chunk behind the others changes no token before it, as long as there is room. Where
    there is none, chunks are dropped in steps, so that the prompt's head outlasts several of them:
    at least half of the room is filled, and of the chunks that could be the first then, the one is
    whose text has the least hash. It stays first for as long as it can be.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice

from suture.healing.boundary import Encode
from suture.healing.vocabulary import Vocabulary
from suture.server.prompt.families import COMMENTED, FimFamily, RepositoryLayout
from suture.server.prompt.overlap import CursorLines
from suture.server.prompt.parts import Part
from suture.server.prompt.paths import comment_title, shown_path
from suture.server.prompt.secrets import has_secret, is_secret_path
from suture.server.prompt.text_encoding import TextEncoding
from suture.server.prompt.windows import (
    BYTES_PER_TOKEN,
    CursorWindows,
    EncodedWindow,
    Window,
    encode_window,
    head_window,
    trim_suffix,
)
from suture.server.request import CompletionRequest, ExtraText

# Requests do not carry the repository's name, and a made-up one would be read as a fact.
REPOSITORY = "repository"

MAX_CHUNKS = 256

# Control characters that texts do not have, and the mark of what was none when it was read.
_NO_TEXT = re.compile("[\\x01-\\x08\\x0e-\\x1a\\x1c-\\x1f\ufffd]")


@dataclass(frozen=True, slots=True)
class ExtraParts:
    """The parts that stand before the cursor's; `truncated` if any text was left out.

    `n_excluded` chunks hold secrets, which does not count as truncated.
    """

    parts: tuple[Part, ...] = ()
    truncated: bool = False
    n_excluded: int = 0


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands before all files, before each, and last, naming the cursor's file.

    `first_separator` stands before the first file. `title` makes a file's first line of its path.
    """

    opening: tuple[Part, ...]
    first_separator: tuple[Part, ...]
    separator: tuple[Part, ...]
    closing: tuple[Part, ...]
    title: Callable[[str | None], str]

    @property
    def n_tokens(self) -> int:
        return sum(len(part.ids) for part in (*self.opening, *self.closing))

    @property
    def n_separator(self) -> int:
        """The tokens that a file takes beside its own."""
        return sum(len(part.ids) for part in self.separator)

    @property
    def begins_with_file(self) -> bool:
        """Whether the first file is the first text of the prompt, or of its document."""
        return not self.opening and not self.first_separator

    def around(self, files: Sequence[EncodedWindow]) -> tuple[Part, ...]:
        """The files in their frame."""
        parts = list(self.opening)
        separator = self.first_separator
        for file in files:
            parts += [*separator, Part("extra", file.ids)]
            separator = self.separator
        return (*parts, *self.closing)


def plan_extra(
    request: CompletionRequest,
    windows: CursorWindows,
    room: int,
    family: FimFamily | None,
    encoding: TextEncoding,
    vocabulary: Vocabulary,
) -> ExtraParts:
    """What fits of the request's extra text into `room` tokens, titles and sentinels included.

    `windows` are the prompt's own, at the cursor.
    """
    if not request.extra:
        return ExtraParts()
    frame = _frame(request, family, encoding.inner)
    cursor_lines = CursorLines.of(windows)
    room_of_all = room = room - frame.n_tokens
    files: list[EncodedWindow] = []
    n_excluded = 0
    truncated = is_full = len(request.extra) > MAX_CHUNKS
    for chunk in filter(_says_something, islice(reversed(request.extra), MAX_CHUNKS)):
        room_of_file = room - frame.n_separator
        body = head_window(chunk.text, max(room_of_file, 0) * BYTES_PER_TOKEN)
        if is_secret_path(chunk.path) or has_secret(body.text):
            n_excluded += 1
            continue
        if _is_binary(body.text) or cursor_lines.are_in(body.text):
            truncated = True
            continue
        file = _fit(frame.title(chunk.path), body, room_of_file, encoding.inner, vocabulary)
        truncated = truncated or file.window.truncated
        if file.ids and (not file.window.truncated or not files):
            files.append(file)
            room = room_of_file - len(file.ids)
        if file.window.truncated:
            is_full = True
            break
    if is_full:
        files = files[: _n_kept(files, room_of_all, frame.n_separator)]
    if not files:
        return ExtraParts((), truncated, n_excluded)
    if frame.begins_with_file and encoding.has_dummy_space:
        room = room_of_all - sum(len(file.ids) + frame.n_separator for file in files)
        files[-1] = _opening(files[-1], room, encoding)
    return ExtraParts(frame.around(files[::-1]), truncated, n_excluded)


def _n_kept(files: Sequence[EncodedWindow], room: int, n_separator: int) -> int:
    """How many of the files, the newest first, are shown where there is no room for more (Q2)."""
    ends = accumulate(len(file.ids) + n_separator for file in files)
    could_be_first = [n for n, end in enumerate(ends, 1) if 2 * end >= room]
    if not could_be_first:
        return len(files)
    return min(could_be_first, key=lambda n: zlib.crc32(files[n - 1].window.text.encode()))


def _is_binary(text: str) -> bool:
    """Whether a text is none: it has a NUL, or every tenth character is no character of a text."""
    return "\0" in text or len(_NO_TEXT.findall(text)) * 10 > len(text)


def _says_something(chunk: ExtraText) -> bool:
    return not (chunk.text == "" or chunk.text.isspace())


def _frame(request: CompletionRequest, family: FimFamily | None, encode: Encode) -> _Frame:
    ids = family.sentinel_ids if family else {}
    layout = family.repository if family and (request.infill or "user" not in ids) else COMMENTED
    opening: tuple[Part, ...] = ()
    if "rep" in ids:
        name = Part("repository", tuple(encode(f"{REPOSITORY}{layout.name_end}".encode())))
        opening = (Part("rep", (ids["rep"],)), name)
    separator: tuple[Part, ...] = ()
    if "sep" in ids:
        separator = (Part("sep", (ids["sep"],)),)
    elif layout.separator:
        separator = (Part("path", tuple(encode(layout.separator.encode()))),)
    title = comment_title if layout.title is None else partial(_file_title, layout.title)
    path: tuple[Part, ...] = ()
    if layout.cursor_titled:
        path = (Part("path", tuple(encode(_cursor_title(layout, request).encode()))),)
    return _Frame(
        opening,
        separator if layout.first_separated else (),
        separator,
        (*separator, *path),
        title,
    )


def _cursor_title(layout: RepositoryLayout, request: CompletionRequest) -> str:
    if layout.title is None:
        return comment_title(request.path, request.language)
    return _file_title(layout.title, request.path)


def _file_title(start: str, path: str | None) -> str:
    return f"{start}{shown_path(path)}\n"


def _fit(
    title: str, body: Window, n_tokens: int, encode: Encode, vocabulary: Vocabulary
) -> EncodedWindow:
    """A titled file in whole lines, each with its end; no tokens if no line of it fits."""
    text = body.text[: body.text.rfind("\n") + 1] if body.truncated else _ended(body.text)
    whole = encode_window(Window(title + text, 0, truncated=body.truncated), encode)
    file = trim_suffix(whole, n_tokens, encode, vocabulary)
    end = file.window.text.rfind("\n") + 1
    if end < len(file.window.text):
        file = encode_window(file.window.head(end), encode)
    if end > len(title) and len(file.ids) <= n_tokens:
        return file
    return EncodedWindow(Window("", 0, truncated=True), ())


def _opening(file: EncodedWindow, room: int, encoding: TextEncoding) -> EncodedWindow:
    """The file as it begins a document (S1), if that takes at most `room` tokens more."""
    opening = encode_window(file.window, encoding.opening)
    return opening if len(opening.ids) <= len(file.ids) + room else file


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
