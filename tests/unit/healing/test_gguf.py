from pathlib import Path

import numpy as np
import pytest

from support.vocab import write_gguf
from suture.healing import GgufError, read_header, read_metadata
from suture.healing.gguf import read_value

PAIRS: dict[str, object] = {
    "general.architecture": "toy",
    "n": 7,
    "ratio": 0.5,
    "flag": True,
    "tokens": [b"a", b"\xff\xfe", b""],
    "kinds": [1, 2, -3],
    "nested": [[1, 2], [3]],
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "toy.gguf", PAIRS, {"token_embd.weight": (4, 3)})


def test_metadata_come_back_with_their_types(model: Path) -> None:
    metadata = read_metadata(model)

    assert {k: metadata[k] for k in ("general.architecture", "n", "ratio", "flag")} == {
        "general.architecture": "toy",
        "n": 7,
        "ratio": 0.5,
        "flag": True,
    }
    assert metadata["tokens"] == [b"a", b"\xff\xfe", b""]
    kinds = metadata["kinds"]
    assert isinstance(kinds, np.ndarray)
    assert kinds.tolist() == [1, 2, -3]
    nested = metadata["nested"]
    assert isinstance(nested, list)
    assert [part.tolist() for part in nested] == [[1, 2], [3]]


def test_tensor_shapes_are_read_without_their_data(model: Path) -> None:
    assert read_header(model).tensor_shapes == {"token_embd.weight": (4, 3)}


def test_a_file_cut_anywhere_raises_one_line(model: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    cut = tmp_path / "cut.gguf"

    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(GgufError) as raised:
            read_header(cut)
        assert "\n" not in str(raised.value)
        assert str(cut) in str(raised.value)


def test_a_value_is_read_without_what_stands_behind_it(model: Path, tmp_path: Path) -> None:
    assert (read_value(model, "flag"), read_value(model, "none")) == (True, None)
    cut = tmp_path / "cut.gguf"
    whole = model.read_bytes()
    cut.write_bytes(whole[: whole.index(b"ratio")])
    assert read_value(cut, "n") == 7
    for key in ("ratio", "none"):
        with pytest.raises(GgufError, match=r"cut\.gguf: the header is cut off"):
            read_value(cut, key)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html>", "not a GGUF file"),
        (b"GGUF\x01\0\0\0" + bytes(16), "version 1"),
        (b"GGUF\0\0\0\x03" + bytes(16), "not supported"),
        (b"GGUF\x03\0\0\0" + bytes(8) + b"\xff" * 8, "cut off"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)

    with pytest.raises(GgufError, match=reason):
        read_metadata(path)


def test_absurd_lengths_are_refused_before_memory_is_taken(model: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    absurd = tmp_path / "absurd.gguf"

    for at in range(8, len(whole) - 8):
        absurd.write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
        try:
            read_header(absurd)
        except GgufError:
            continue
