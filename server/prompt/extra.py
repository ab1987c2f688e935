"""Text from other files, put before the text at the cursor.

A family that was trained on whole repositories has its layout (`RepositoryLayout`), with real
paths. Most are like this one:

    [rep] NAME\\n  [sep] PATH\\n TEXT  …  [sep] PATH OF THE CURSOR'S FILE\\n  and then the hole

Any other model reads each file after a comment line that names it. Paths and names are text like
all else (F1).

The last chunk is the newest: chunks are dropped from the first on until the rest fits, and one
that does not fit even alone loses whole lines from its end. A chunk that mostly repeats the
lines at the cursor is left out, because a model would repeat it once more. Only the newest
`MAX_CHUNKS` are looked at, whatever they say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from suture.healing.boundary import Encode
from suture.healing.vocabulary import Vocabulary
from suture.server.prompt.families import COMMENTED, FimFamily
from suture.server.prompt.parts import UNNAMED, Part, one_line
from suture.server.prompt.text_encoding import TextEncoding
from suture.server.prompt.windows import (
    BYTES_PER_TOKEN,
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

_LINE_COMMENTS = {
    **dict.fromkeys(("py", "python", "pyi", "rb", "ruby", "sh", "bash", "shellscript"), "#"),
    **dict.fromkeys(("pl", "perl", "r", "jl", "julia", "ex", "exs", "elixir", "nix"), "#"),
    **dict.fromkeys(("yaml", "yml", "toml", "cmake", "make", "makefile", "dockerfile"), "#"),
    **dict.fromkeys(("lua", "sql", "hs", "haskell", "elm", "ada", "vhdl", "vhd"), "--"),
    **dict.fromkeys(("lisp", "el", "clj", "clojure", "scm", "scheme"), ";;"),
    **dict.fromkeys(("tex", "latex", "erl", "erlang", "m", "matlab"), "%"),
}


@dataclass(frozen=True, slots=True)
class ExtraParts:
    """The parts that stand before the cursor's; `truncated` if any text was left out."""

    parts: tuple[Part, ...] = ()
    truncated: bool = False


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
    cursor_text: str,
    room: int,
    family: FimFamily | None,
    encoding: TextEncoding,
    vocabulary: Vocabulary,
) -> ExtraParts:
    """What fits of the request's extra text into `room` tokens, titles and sentinels included.

    `cursor_text` is the text of the prompt's own windows.
    """
    if not request.extra:
        return ExtraParts()
    frame = _frame(request, family, encoding.inner)
    cursor_lines = _lines(cursor_text)
    room -= frame.n_tokens
    files: list[EncodedWindow] = []
    truncated = len(request.extra) > MAX_CHUNKS
    for chunk in filter(_says_something, islice(reversed(request.extra), MAX_CHUNKS)):
        room_of_file = room - frame.n_separator
        body = head_window(chunk.text, max(room_of_file, 0) * BYTES_PER_TOKEN)
        if _repeats(body.text, cursor_lines):
            truncated = True
            continue
        file = _fit(frame.title(chunk.path), body, room_of_file, encoding.inner, vocabulary)
        truncated = truncated or file.window.truncated
        if file.ids and (not file.window.truncated or not files):
            files.append(file)
            room = room_of_file - len(file.ids)
        if file.window.truncated:
            break
    if not files:
        return ExtraParts((), truncated)
    if frame.begins_with_file and encoding.has_dummy_space:
        files[-1] = _opening(files[-1], room, encoding)
    return ExtraParts(frame.around(files[::-1]), truncated)


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
    title = _comment_title if layout.title is None else partial(_file_title, layout.title)
    path: tuple[Part, ...] = ()
    if layout.cursor_titled:
        path = (Part("path", tuple(encode(title(request.path).encode()))),)
    return _Frame(
        opening,
        separator if layout.first_separated else (),
        separator,
        (*separator, *path),
        title,
    )


def _file_title(start: str, path: str | None) -> str:
    return f"{start}{one_line(path or UNNAMED)}\n"


def _comment_title(path: str | None) -> str:
    if not path:
        return ""
    extension = path.rsplit("/", 1)[-1].rsplit(".", 1)[-1].lower()
    return f"{_LINE_COMMENTS.get(extension, '//')} {one_line(path)}\n"


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


def _lines(text: str) -> frozenset[str]:
    return frozenset(line.strip() for line in text.split("\n")) - {""}


def _repeats(text: str, cursor_lines: frozenset[str]) -> bool:
    """Whether more than half of a chunk's lines stand at the cursor."""
    lines = _lines(text)
    return len(lines & cursor_lines) * 2 > len(lines)
