from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from suture.server.errors import ModelError
from suture.server.models.catalog import Catalog
from suture.server.models.source import Expected
from suture.server.models.store import list_models, place, verified_as, verify

CONTENT = b"GGUF and so on"
SHA = hashlib.sha256(CONTENT).hexdigest()
CATALOG = Catalog.parse(
    f"tiny  MIT  {len(CONTENT)}  {SHA}  pypi:tiny==1/a\nother  MIT  -  -  hf:o/r/b", "models.txt"
)
TINY, OTHER = CATALOG.entries


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fetched = tmp_path / "fetched"
    fetched.write_bytes(CONTENT)
    place(fetched, TINY, tmp_path, Expected(len(CONTENT), SHA))
    return tmp_path


def test_a_placed_file_is_verified_without_being_read(store: Path) -> None:
    (store / "tiny.gguf").chmod(0)
    assert verified_as(TINY, store) == Expected(len(CONTENT), SHA)


def test_a_file_changed_since_is_no_longer_verified(store: Path) -> None:
    path = store / "tiny.gguf"
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(0, 0))
    assert verified_as(TINY, store) is None


def test_a_file_verified_for_another_line_is_not_verified(store: Path) -> None:
    line = f"tiny  MIT  {len(CONTENT)}  {'0' * 64}  pypi:tiny==2/a"
    assert verified_as(Catalog.parse(line, "models.txt").default, store) is None


@pytest.mark.parametrize("note", [b"", b"[]", b"{}", b"\xff"])
def test_a_damaged_record_is_no_record(store: Path, note: bytes) -> None:
    (store / ".verified" / "tiny.gguf.json").write_bytes(note)
    assert verified_as(TINY, store) is None


def test_verify_reads_the_file_again(store: Path) -> None:
    verify(TINY, store)
    path = store / "tiny.gguf"
    times = path.stat()
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert verified_as(TINY, store) is not None
    with pytest.raises(ModelError, match=r"tiny\.gguf: wrong checksum"):
        verify(TINY, store)


def test_verify_of_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"other\.gguf: No such file"):
        verify(OTHER, tmp_path)


def test_models_are_listed_with_a_path_only_where_they_are_pulled(store: Path) -> None:
    assert list_models(CATALOG, store) == [
        {
            "name": "tiny",
            "path": str(store / "tiny.gguf"),
            "bytes": len(CONTENT),
            "sha256": SHA,
            "licence": "MIT",
            "default": True,
            "pulled": True,
        },
        {
            "name": "other",
            "path": None,
            "bytes": None,
            "sha256": None,
            "licence": "MIT",
            "default": False,
            "pulled": False,
        },
    ]
