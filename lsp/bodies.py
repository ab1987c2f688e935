"""What the server is sent: the bodies of `/infill` for the cursors of an editor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from suture.lsp.context.chunks import Chunk
from suture.lsp.documents import Cursor, without_halves
from suture.lsp.gates import path_of
from suture.lsp.settings import Options
from suture.server.shaping.closers import line_rest

Json = dict[str, Any]

# What an engine has written by then is shown, up to its last whole line.
MAX_PREDICT_MS = 4000


class Bodies:
    """Numbers what is asked. `session` is a name that no other editor has.

    `others_with` and `path_in` tell of a document, by its URI, what is sent of other files with it,
    and its path as the model is told it.
    """

    def __init__(self, session: str) -> None:
        self.others_with: Callable[[str], Sequence[Chunk]] = _nothing
        self.path_in: Callable[[str], str | None] = _whole_path
        self._session = session
        self._seq = 0

    def at(self, cursor: Cursor, options: Options, kind: str = "") -> Json:
        """The body for a cursor. Sessions are documents: one has one cursor, for each `kind`."""
        self._seq += 1
        body = {
            "input_prefix": without_halves(cursor.prefix),
            "input_suffix": without_halves(cursor.suffix),
            "n_predict": options.max_tokens,
            "temperature": 0,
            "t_max_predict_ms": MAX_PREDICT_MS,
            "shape": "auto" if options.multiline and _may_go_on(cursor) else "line",
            "session": f"{self._session}/{hash(cursor.uri):x}{kind}",
            "seq": self._seq,
            "path": self.path_in(cursor.uri),
            "language": cursor.language or None,
            "healing": options.healing,
            "give_back": options.give_back,
            "layout": options.layout,
            "input_extra": extra_of(self.others_with(cursor.uri)) or None,
        }
        return {name: value for name, value in body.items() if value is not None}


def extra_of(chunks: Sequence[Chunk]) -> list[Json]:
    """Text of other files as a body has it."""
    return [{"text": chunk.text, "filename": chunk.name} for chunk in chunks]


def files_in(body: Json) -> tuple[str, ...]:
    """The files whose text a body bears beside the cursor's."""
    return tuple(chunk["filename"] for chunk in body.get("input_extra", ()))


def _nothing(uri: str) -> Sequence[Chunk]:
    return ()


def _whole_path(uri: str) -> str | None:
    path = path_of(uri)
    return path if path.startswith("/") else None


def _may_go_on(cursor: Cursor) -> bool:
    """Whether lines may follow: nothing stands behind the cursor in its line but closers."""
    return not cursor.after.strip() or bool(line_rest(cursor.prefix, cursor.suffix))
