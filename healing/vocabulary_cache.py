"""What was read of model files, kept in a folder.

    3f1c….vocabulary    named by the beginning of the model file, where its names and sizes stand

A file is: the SHA-256 of the rest; the length of a JSON object; that; then arrays.

C1  An entry is believed only if it is whole, was made by these very sources, and the model file
    begins with exactly the bytes that the entry was made from: all of its header.
C2  What is wrong with an entry or with the folder is never an error: then the model file is read.
C3  An entry gets to its name by a rename, so that several processes may read and write at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import mmap
import pkgutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suture.healing.gguf import mapped, parse_header
from suture.healing.gguf_vocabulary import table_of
from suture.healing.token_table import TokenTable, drawable_order
from suture.healing.whole_file import write_whole

_HEAD_BYTES = 1 << 16
_DIGEST_BYTES = 32
_LENGTH = struct.Struct("<Q")
# The modules that decide what is in a table.
_SOURCES = ("gguf", "gguf_vocabulary", "pieces", "specials", "token_table", "vocabulary_cache")
_FIELDS = (
    *("n_vocab", "bos_id", "eos_id", "add_bos", "model", "pretokenizer", "fim_ids"),
    *("architecture", "title"),
)


def cached_table(path: Path, folder: Path) -> TokenTable:
    """The tokens of a model file, out of the folder if they are there, else put into it.

    Raises as `parse_header` and `table_of` do about the model file, and `OSError` where that
    cannot be opened.
    """
    with mapped(path) as data:
        entry = folder / f"{hashlib.sha256(data[:_HEAD_BYTES]).hexdigest()[:32]}.vocabulary"
        known = _load(entry, data)
        if known is not None:
            return known
        header = parse_header(data)
        table = _worked_out(table_of(header))
        with contextlib.suppress(OSError):  # our sources may be gone, too
            _store(entry, table, _origin(data, header.n_bytes))
    return table


def _worked_out(table: TokenTable) -> TokenTable:
    """The table with all that is else made when it is needed."""
    order = drawable_order(table.pieces, table.kinds)
    rows = None if table.merges is None else table.merges()
    return replace(table, order=order, merges=None if rows is None else lambda: rows)


def _origin(data: mmap.mmap, n_bytes: int) -> dict[str, object]:
    """What an entry was made from: the model file's header, and our own sources."""
    digest = hashlib.sha256(data[:n_bytes]).hexdigest()
    return {"n_bytes": n_bytes, "sha256": digest, "sources": _sources()}


@functools.cache
def _sources() -> str:
    """Changes with what we make of a header, without a version number that one may forget."""
    digest = hashlib.sha256()
    for module in _SOURCES:
        digest.update(pkgutil.get_data(__package__, f"{module}.py") or b"")
    return digest.hexdigest()


def _load(entry: Path, data: mmap.mmap) -> TokenTable | None:
    """The entry's table; None if there is none, or none that can be believed."""
    try:
        content = entry.read_bytes()
        body = memoryview(content)[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != content[:_DIGEST_BYTES]:
            return None
        (n_json,) = _LENGTH.unpack_from(body)
        start = _LENGTH.size + n_json
        described = json.loads(bytes(body[_LENGTH.size : start]))
        origin = described["origin"]
        if origin != _origin(data, origin["n_bytes"]):
            return None
        return _table(described, dict(_arrays(body[start:], described["arrays"])))
    except (OSError, ValueError, LookupError, TypeError, struct.error):
        return None  # not there, or whole and yet not of our making


def _arrays(
    blob: memoryview, layout: Mapping[str, tuple[str, int]]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    at = 0
    for name, (dtype, n_items) in layout.items():
        array: npt.NDArray[Any] = np.frombuffer(blob, dtype, n_items, at)
        yield name, array
        at += array.nbytes


def _table(described: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> TokenTable:
    spelled = arrays["pieces"].tobytes()
    ends = np.cumsum(arrays["lengths"], dtype=np.int64).tolist()
    rows = arrays["merges"].reshape(-1, 3) if "merges" in arrays else None
    return TokenTable(
        [spelled[a:b] for a, b in pairwise([0, *ends])],
        kinds=arrays["kinds"],
        eog_ids=frozenset(described["eog_ids"]),
        merges=None if rows is None else lambda: rows,
        order=arrays["order"],
        **{name: described[name] for name in _FIELDS},
    )


def _store(entry: Path, table: TokenTable, origin: Mapping[str, object]) -> None:
    lengths = np.fromiter(map(len, table.pieces), "<i4", len(table.pieces))
    # Whatever is of four bytes goes first, so that nothing is unaligned.
    arrays = {"lengths": lengths, "kinds": table.kinds, "order": table.order}
    if table.merges is not None:
        arrays["merges"] = table.merges()
    arrays["pieces"] = np.frombuffer(b"".join(table.pieces), np.uint8)
    blobs = {name: array for name, array in arrays.items() if array is not None}
    described = {
        "origin": origin,
        "arrays": {name: [array.dtype.str, array.size] for name, array in blobs.items()},
        "eog_ids": sorted(table.eog_ids),
        **{name: getattr(table, name) for name in _FIELDS},
    }
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % _LENGTH.size)
    body = b"".join([_LENGTH.pack(len(text)), text, *(a.tobytes() for a in blobs.values())])
    entry.parent.mkdir(parents=True, exist_ok=True)
    write_whole(entry, hashlib.sha256(body).digest() + body)
