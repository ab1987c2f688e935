"""A vocabulary out of the cache is the one that was read, whatever became of the cache.

C1 to C3 are the invariants of `healing/vocabulary_cache.py`.
"""

from __future__ import annotations

import hashlib
import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.vocab import write_gguf
from support.vocabularies import pulled
from suture.healing import GgufError, UnsupportedVocabulary, Vocabulary, vocabulary_cache

PAIRS: dict[str, object] = {
    "general.architecture": "toy",
    "general.name": "Toy",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": [b"a", b"b", b"ab", "Ġ".encode(), b"<|endoftext|>", b"<t>", b"x"],
    "tokenizer.ggml.token_type": [1, 1, 1, 1, 3, 4, 5],
    "tokenizer.ggml.merges": [b"a b", b"b zz"],
    "tokenizer.ggml.eos_token_id": 4,
}
SHAPES: dict[str, tuple[int, ...]] = {"output.weight": (2, 9)}
REAL = ("vocab-qwen2", "vocab-llama-bpe", "vocab-gemma-4", "vocab-phi-3", "vocab-deepseek-coder")


def everything(vocabulary: Vocabulary) -> dict[str, object]:
    """All attributes, arrays as lists; the merges read, not how to read them."""
    read = {name: value for name, value in vars(vocabulary).items() if name != "_merges"}
    read["merges"] = vocabulary.merges
    return {
        name: (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value
        for name, value in read.items()
    }


def model(folder: Path, pairs: dict[str, object] | None = None) -> Path:
    return write_gguf(folder / "toy.gguf", PAIRS if pairs is None else pairs, SHAPES)


def entry_in(folder: Path) -> Path:
    (entry,) = folder.iterdir()
    return entry


def refuse_to_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(data: object) -> None:
        raise AssertionError("the model file was read")

    monkeypatch.setattr(vocabulary_cache, "parse_header", parse)


def test_c1_the_second_time_nothing_is_read_but_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = model(tmp_path), tmp_path / "deep" / "cache"
    fresh = Vocabulary.from_gguf(path)
    first = Vocabulary.from_gguf(path, folder)
    refuse_to_parse(monkeypatch)
    second = Vocabulary.from_gguf(path, folder)

    assert everything(fresh) == everything(first) == everything(second)
    assert second.merges is not None
    assert second.merges.tolist() == [[0, 1, 2], [1, -1, -1]]
    assert (second.architecture, second.title) == ("toy", "Toy")


@pytest.mark.model
@pytest.mark.parametrize("name", REAL)
def test_c1_real_vocabularies_come_back_equal(
    model_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = pulled([name], model_store)[name]
    fresh = everything(Vocabulary.from_gguf(path))
    assert everything(Vocabulary.from_gguf(path, tmp_path)) == fresh
    refuse_to_parse(monkeypatch)

    assert everything(Vocabulary.from_gguf(path, tmp_path)) == fresh


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer.ggml.tokens": [b"a", b"b", b"ba", b"c", b"<|endoftext|>", b"<t>", b"x"]},
        {"general.name": "Other"},
        {"tokenizer.ggml.merges": [b"b a", b"b zz"]},
    ],
    ids=["tokens", "name", "merges"],
)
def test_c1_another_header_is_read_anew(tmp_path: Path, change: dict[str, object]) -> None:
    folder = tmp_path / "cache"
    Vocabulary.from_gguf(model(tmp_path), folder)

    changed = model(tmp_path, PAIRS | change)
    assert everything(Vocabulary.from_gguf(changed, folder)) == everything(
        Vocabulary.from_gguf(changed)
    )


def test_c1_headers_that_differ_behind_their_beginning_are_told_apart(tmp_path: Path) -> None:
    """They share an entry's name, so each reading replaces the other's."""
    folder = tmp_path / "cache"
    long = [b"%06d" % number for number in range(10_000)]
    plain = {key: value for key, value in PAIRS.items() if key != "tokenizer.ggml.token_type"}
    for last in (b"y", b"z", b"y"):
        path = model(tmp_path, plain | {"tokenizer.ggml.tokens": [*long, last]})
        assert Vocabulary.from_gguf(path, folder).bytes_of(10_000) == last
    assert len(list(folder.iterdir())) == 1


def test_c1_an_entry_of_other_sources_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = model(tmp_path), tmp_path / "cache"
    Vocabulary.from_gguf(path, folder)
    before = entry_in(folder).read_bytes()
    monkeypatch.setattr(vocabulary_cache, "_sources", lambda: "another release")
    Vocabulary.from_gguf(path, folder)

    assert entry_in(folder).read_bytes() != before


def _flipped(content: bytes) -> bytes:
    at = random.Random(len(content)).randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _signed(body: bytes) -> bytes:
    return hashlib.sha256(body).digest() + body


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:31],
        lambda content: content[:39],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: b"something else" * 100,
        lambda content: _signed(b"{}"),
        lambda content: _signed(struct.pack("<Q", 2) + b"{}"),
        lambda content: _signed(struct.pack("<Q", 2**63) + b"[1]"),
        _flipped,
        lambda content: b"\0" * len(content),
    ],
)
def test_c2_a_damaged_entry_is_replaced(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path, folder = model(tmp_path), tmp_path / "cache"
    fresh = everything(Vocabulary.from_gguf(path, folder))
    entry = entry_in(folder)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))

    assert everything(Vocabulary.from_gguf(path, folder)) == fresh
    assert entry.read_bytes() == whole


def test_c2_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    path, blocked = model(tmp_path), tmp_path / "file"
    blocked.write_text("a file where the folder would be")
    fresh = everything(Vocabulary.from_gguf(path))
    assert everything(Vocabulary.from_gguf(path, blocked)) == fresh
    assert everything(Vocabulary.from_gguf(path, blocked / "deeper")) == fresh

    folder = tmp_path / "cache"
    Vocabulary.from_gguf(path, folder)
    entry = entry_in(folder)
    entry.unlink()
    entry.mkdir()  # where the entry would be renamed to
    assert everything(Vocabulary.from_gguf(path, folder)) == fresh
    assert list(folder.iterdir()) == [entry]


def test_c2_an_installation_without_sources_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise FileNotFoundError("gguf.py")

    monkeypatch.setattr(vocabulary_cache, "_sources", gone)
    path, folder = model(tmp_path), tmp_path / "cache"
    fresh = everything(Vocabulary.from_gguf(path))

    for _ in range(2):
        assert everything(Vocabulary.from_gguf(path, folder)) == fresh
    assert not folder.exists()


def test_c2_what_is_wrong_with_the_model_file_is_said_as_without_a_cache(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    empty = tmp_path / "empty.gguf"
    empty.write_bytes(b"")
    with pytest.raises(GgufError, match=r"empty\.gguf: the file is empty"):
        Vocabulary.from_gguf(empty, folder)
    with pytest.raises(UnsupportedVocabulary, match="'bert'"):
        Vocabulary.from_gguf(model(tmp_path, PAIRS | {"tokenizer.ggml.model": "bert"}), folder)
    with pytest.raises(FileNotFoundError):
        Vocabulary.from_gguf(tmp_path / "none.gguf", folder)
    assert not folder.exists()


def test_c3_many_at_once_read_and_write_the_same_entry(tmp_path: Path) -> None:
    path, folder = model(tmp_path), tmp_path / "cache"
    fresh = everything(Vocabulary.from_gguf(path))
    seen: list[dict[str, object]] = []

    def read() -> None:
        for _ in range(5):
            seen.append(everything(Vocabulary.from_gguf(path, folder)))
            for entry in folder.glob("*.vocabulary"):
                entry.unlink(missing_ok=True)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 30
    assert all(one == fresh for one in seen)
    assert all(entry.suffix == ".vocabulary" for entry in folder.iterdir())
