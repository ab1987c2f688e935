from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from support.progress import RecordingProgress
from suture.server.errors import ModelError
from suture.server.models.catalog import Catalog
from suture.server.models.resolve import resolve_model
from suture.server.models.source import Expected
from suture.server.models.store import place

SHA = hashlib.sha256(b"GGUF").hexdigest()
CATALOG = Catalog.parse(
    f"tiny  MIT  4  {SHA}  pypi:tiny==1/a\nother  MIT  4  {SHA}  pypi:tiny==1/a", "models.txt"
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    store.mkdir()
    for entry in CATALOG.entries:
        fetched = tmp_path / "fetched"
        fetched.write_bytes(b"GGUF")
        place(fetched, entry, store, Expected(4, SHA))
    return store


def resolve(model: str | None, store: Path) -> Path:
    return resolve_model(model, CATALOG, store, RecordingProgress())


def test_no_model_is_the_default_and_a_name_is_its_entry(store: Path) -> None:
    assert resolve(None, store) == store / "tiny.gguf"
    assert resolve("other", store) == store / "other.gguf"


def test_a_path_is_used_as_it_is(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert resolve(str(tmp_path / "mine"), store) == tmp_path / "mine"
    assert resolve("mine", store) == Path("mine")


def test_a_name_comes_before_a_file_of_that_name(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    assert resolve("tiny", store) == store / "tiny.gguf"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("none.gguf", r"none\.gguf: No such file"),
        ("./none", "none: No such file"),
        ("/", "/: Is a directory"),
        ("a/\0", "null byte"),
        ("tinny", "no model 'tinny' .* nearest: tiny"),
        ("", "no model ''"),
    ],
)
def test_what_is_neither_is_one_line(store: Path, model: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        resolve(model, store)
    assert "\n" not in str(caught.value)
