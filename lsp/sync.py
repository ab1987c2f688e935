"""What clients say of their documents, taken as far as it makes sense. PURE.

Read from the JSON itself: it is read with every key, and a change that was refused for one number
would leave the document another one than the editor's from there on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suture.lsp.documents import Change, Documents, Position

OPEN, CHANGE, CLOSE = (f"textDocument/did{event}" for event in ("Open", "Change", "Close"))
EVENTS = frozenset({OPEN, CHANGE, CLOSE})


def apply_event(documents: Documents, method: str, params: Any) -> str | None:
    """Tell `documents` of an event; the URI that it is about, None where it has none."""
    about = read_object(read_object(params).get("textDocument"))
    uri = about.get("uri")
    if not isinstance(uri, str):
        return None
    version = _int(about.get("version"))
    if method == OPEN:
        documents.open(uri, _str(about.get("languageId")), version, _str(about.get("text")))
    elif method == CHANGE:
        changes = read_object(params).get("contentChanges")
        told = map(_change, changes if isinstance(changes, list) else [])
        documents.change(uri, version, [change for change in told if change is not None])
    else:
        documents.close(uri)
    return uri


def read_position(raw: Any) -> Position:
    """A position; what is no number is 0."""
    place = read_object(raw)
    return Position(_int(place.get("line")) or 0, _int(place.get("character")) or 0)


def _change(raw: Any) -> Change | None:
    change = read_object(raw)
    text = change.get("text")
    if not isinstance(text, str):
        return None
    if not isinstance(place := change.get("range"), dict):
        return Change(text)
    return Change(text, read_position(place.get("start")), read_position(place.get("end")))


def read_object(value: Any) -> Mapping[str, Any]:
    """The object that a client sent, or an empty one in the place of anything else."""
    return value if isinstance(value, Mapping) else {}


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _int(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
