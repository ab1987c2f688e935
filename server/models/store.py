"""The folder where pulled models live.

    smollm2-135m.gguf                  the model, whole and verified
    .verified/smollm2-135m.gguf.json   size, time and checksum when it was verified
    .partial/smollm2-135m/             what has arrived of a model that is being pulled
    .partial/smollm2-135m.lock         held by the one who pulls it

1. A file at a model's path is whole: it gets there by a rename, after its checksum.
2. A verified file is hashed again only when its size or time has changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TypedDict

from suture.server.errors import ModelError
from suture.server.models.catalog import Catalog, ModelEntry
from suture.server.models.source import Expected


class ListedModel(TypedDict):
    """One row of ``suture models --json``."""

    name: str
    path: str | None
    bytes: int | None
    sha256: str | None
    licence: str
    default: bool
    pulled: bool


def list_models(catalog: Catalog, store: Path) -> list[ListedModel]:
    """One row an entry, in the catalogue's order; `path` only where the model is pulled."""
    return [_listed(entry, store, entry is catalog.default) for entry in catalog.entries]


def _listed(entry: ModelEntry, store: Path, default: bool) -> ListedModel:
    verified = verified_as(entry, store)
    known = verified or entry.expected
    return ListedModel(
        name=entry.name,
        path=str(model_path(entry, store)) if verified else None,
        bytes=known.n_bytes,
        sha256=known.sha256,
        licence=entry.licence,
        default=default,
        pulled=verified is not None,
    )


def model_path(entry: ModelEntry, store: Path) -> Path:
    """Where the entry's file is, or will be."""
    return store / entry.filename


def verified_as(entry: ModelEntry, store: Path) -> Expected | None:
    """Size and checksum with which the file was verified; None if it must be (again).

    Reads no model: the file must be as long and as old as it was then, and what the entry wants.
    """
    path = model_path(entry, store)
    try:
        status = path.stat()
        record = json.loads(_record_path(path).read_text())
        verified = Expected(int(record["n_bytes"]), str(record["sha256"]))
        unchanged = (status.st_size, status.st_mtime_ns) == (verified.n_bytes, record["mtime_ns"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return verified if unchanged and mismatch(verified, entry.expected) is None else None


def verify(entry: ModelEntry, store: Path) -> None:
    """Read the entry's whole file again. Raises ModelError if it is missing or not as listed."""
    path = model_path(entry, store)
    recorded = verified_as(entry, store) or entry.expected
    try:
        reason = mismatch(measure(path), recorded)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    if reason is not None:
        raise ModelError(f"{path}: {reason}")


def measure(path: Path) -> Expected:
    """Size and checksum of a file, by reading all of it."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Expected(file.tell(), sha256)


def mismatch(found: Expected, wanted: Expected) -> str | None:
    """Why `found` is not `wanted`, in words; None if it is."""
    if wanted.n_bytes not in (None, found.n_bytes):
        return f"wrong size: {found.n_bytes} bytes, not {wanted.n_bytes}"
    if wanted.sha256 not in (None, found.sha256):
        return f"wrong checksum: sha256 is {found.sha256}, not {wanted.sha256}"
    return None


def place(fetched: Path, entry: ModelEntry, store: Path, verified: Expected) -> None:
    """Make a verified file the entry's model, in one step that survives a power cut."""
    path = model_path(entry, store)
    with fetched.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(fetched, path)
    _sync_folder(store)
    record(entry, store, verified)


def record(entry: ModelEntry, store: Path, verified: Expected) -> None:
    """Note that the entry's file, as it is now, was verified."""
    path = model_path(entry, store)
    note = _record_path(path)
    note.parent.mkdir(exist_ok=True)
    unfinished = note.with_suffix(".unfinished")
    fields = {
        "n_bytes": verified.n_bytes,
        "sha256": verified.sha256,
        "mtime_ns": path.stat().st_mtime_ns,
    }
    unfinished.write_text(json.dumps(fields))
    os.replace(unfinished, note)


def _record_path(path: Path) -> Path:
    return path.parent / ".verified" / f"{path.name}.json"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
