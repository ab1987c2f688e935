"""When tiktoken may stand in for llama.cpp's tokenizer, on files made by hand."""

from pathlib import Path

import pytest

from support.vocab import write_gguf
from suture.healing.pieces import byte_level_alphabet
from suture.healing.tiktoken_encoding import first_difference, tokenizer_from_gguf

MERGES = [b"a b", b"ab c", "Ġ a".encode()]
MERGED = [b"ab", b"abc", "Ġa".encode()]
KINDS = [*[1] * (256 + len(MERGED)), 3, 4]


def gguf(
    tmp_path: Path,
    merged: list[bytes] = MERGED,
    added: bytes = b"<tool_call>",
    model: str = "gpt2",
    pre: str = "qwen2",
    missing: int | None = None,
) -> Path:
    alphabet = byte_level_alphabet()
    tokens = [alphabet[byte].encode() for byte in range(256)]
    if missing is not None:
        tokens[missing] = b"<none>"
    pairs: dict[str, object] = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, *merged, b"<|endoftext|>", added],
        "tokenizer.ggml.token_type": KINDS,
        "tokenizer.ggml.merges": MERGES,
    }
    return write_gguf(tmp_path / "model.gguf", pairs, {})


def test_text_is_merged_as_the_file_says_and_control_tokens_stay_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_gguf(gguf(tmp_path))
    assert tokenizer is not None
    spelled = list(b"<|endoftext|>")

    assert tokenizer.encode(b"abc ab a") == [257, 32, 256, 258]
    assert tokenizer.encode(b"<|endoftext|>") == spelled
    assert tokenizer.encode_markup(b"ab<|endoftext|>ab") == [256, 259, 256]
    for encode in (tokenizer.encode, tokenizer.encode_markup):
        assert encode(b"ab<tool_call>ab") == [256, 260, 256]


def test_bytes_without_a_token_give_none(tmp_path: Path) -> None:
    """llama.cpp drops them; tiktoken by itself panics."""
    tokenizer = tokenizer_from_gguf(gguf(tmp_path, missing=0x04))
    assert tokenizer is not None

    assert tokenizer.encode(b"ab\x04ab") == [256, 256]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "llama"},
        {"pre": "falcon"},
        {"pre": "never heard of"},
        {"merged": [MERGED[1], MERGED[0], MERGED[2]]},
        {"added": b"<|endoftext|>>"},
    ],
    ids=["sentencepiece", "several expressions", "unknown", "out of order", "ambiguous"],
)
def test_what_tiktoken_cannot_do_is_said(tmp_path: Path, fields: dict[str, str]) -> None:
    assert tokenizer_from_gguf(gguf(tmp_path, **fields)) is None  # type: ignore[arg-type]


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_gguf(gguf(tmp_path))
    assert tokenizer is not None

    with pytest.raises(UnicodeDecodeError):
        tokenizer.encode(b"a\xff")


def test_the_first_difference_is_a_text() -> None:
    texts = ["a", "b", "c"]

    assert first_difference(list, lambda text: list(text.upper()), ["", *texts]) == "a"
    assert first_difference(list, list, texts) is None
