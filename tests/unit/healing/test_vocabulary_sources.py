"""One vocabulary out of a GGUF file, a `tokenizer.json` and a tiktoken encoding."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from support.vocab import write_gguf
from suture.healing import TokenKind, UnsupportedVocabulary, Vocabulary
from suture.healing.pieces import byte_level_alphabet
from suture.healing.pretokenizer import UNKNOWN, family_of_pattern
from suture.healing.tokenizer_json import TokenizerFileError

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = [*(bytes([byte]) for byte in range(256)), b" x", b"\xe6\x88", b"\n\n", "é".encode()]
SPECIALS = {"<|endoftext|>": 260, "<|fim_prefix|>": 261, "<|fim_pad|>": 262}
SPM = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁the", "a", "<b>"]
SPM_KINDS = [2, 3, 3, *[6] * 256, 1, 1, 1, 4]
BYTE_FALLBACK = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}


def spelled(piece: bytes) -> str:
    alphabet = byte_level_alphabet()
    return "".join(alphabet[byte] for byte in piece)


def same_rows(left: Vocabulary, right: Vocabulary) -> bool:
    rows = range(left.n_vocab)
    return (
        left.n_vocab == right.n_vocab
        and all(left.bytes_of(row) == right.bytes_of(row) for row in rows)
        and all(left.kind_of(row) == right.kind_of(row) for row in rows)
        and all(left.text_of(row) == right.text_of(row) for row in rows)
        and left.sorted_ids.tolist() == right.sorted_ids.tolist()
        and left.eog_ids == right.eog_ids
        and (left.bos_id, left.eos_id, left.add_bos) == (right.bos_id, right.eos_id, right.add_bos)
    )


def byte_level_json(**fields: Any) -> dict[str, Any]:
    added = [{"content": text, "id": i, "special": True} for text, i in SPECIALS.items()]
    return {
        "model": {
            "type": "BPE",
            "vocab": {spelled(piece): i for i, piece in enumerate(BYTES)},
            "merges": [],
        },
        "added_tokens": [*added, {"content": "<tool_call>", "id": 263, "special": False}],
        "decoder": {"type": "ByteLevel"},
        **fields,
    }


def spm_json(**fields: Any) -> dict[str, Any]:
    specials = [{"content": text, "id": i, "special": True} for i, text in enumerate(SPM[:3])]
    template = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}]
    return {
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate(SPM[:-1])},
            "merges": [],
            "byte_fallback": True,
            "unk_token": "<unk>",
        },
        "added_tokens": [*specials, {"content": SPM[-1], "id": len(SPM) - 1, "special": False}],
        "post_processor": {"type": "TemplateProcessing", "single": template},
        "decoder": BYTE_FALLBACK,
        **fields,
    }


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def byte_level_gguf(tmp_path: Path) -> Path:
    tokens = [spelled(piece).encode() for piece in BYTES]
    tokens += [text.encode() for text in [*SPECIALS, "<tool_call>"]]
    pairs: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [*[1] * 260, 3, 3, 3, 4],
        "tokenizer.ggml.eos_token_id": 260,
    }
    return write_gguf(tmp_path / "model.gguf", pairs, {"token_embd.weight": (8, 270)})


def test_v1_a_byte_level_tokenizer_json_has_the_rows_of_the_gguf(tmp_path: Path) -> None:
    from_gguf = Vocabulary.from_gguf(byte_level_gguf(tmp_path))

    from_json = Vocabulary.from_tokenizer_json(
        written(tmp_path, byte_level_json()), n_vocab=270, eos="<|endoftext|>"
    )

    assert same_rows(from_json, from_gguf)
    assert from_json.kind_of(263) is TokenKind.USER_DEFINED


def test_v1_v2_a_sentencepiece_tokenizer_json_has_the_rows_of_the_gguf(tmp_path: Path) -> None:
    pairs: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text.encode() for text in SPM],
        "tokenizer.ggml.token_type": SPM_KINDS,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    from_gguf = Vocabulary.from_gguf(write_gguf(tmp_path / "model.gguf", pairs, {}))

    from_json = Vocabulary.from_tokenizer_json(written(tmp_path, spm_json()), eos="</s>")

    assert same_rows(from_json, from_gguf)
    assert from_json.ids_of(b"a") == (3 + ord("a"), SPM.index("a"))
    assert from_json.as_read("▁".encode()) == b" "


def test_v1_a_tiktoken_encoding_has_the_rows_of_the_gguf(tmp_path: Path) -> None:
    encoding = tiktoken.Encoding(
        "toy",
        pat_str=QWEN2,
        mergeable_ranks={piece: rank for rank, piece in enumerate(BYTES)},
        special_tokens={**SPECIALS, "<|last|>": 265},
    )

    from_encoding = Vocabulary.from_tiktoken(encoding, n_vocab=270)

    from_gguf = Vocabulary.from_gguf(byte_level_gguf(tmp_path))
    for row in (*range(263), 264, *range(266, 270)):
        assert from_encoding.bytes_of(row) == from_gguf.bytes_of(row)
        assert from_encoding.kind_of(row) == from_gguf.kind_of(row)
        assert from_encoding.text_of(row) == from_gguf.text_of(row)
    assert from_encoding.bytes_of(263) == b""
    assert from_encoding.kind_of(265) is TokenKind.CONTROL
    assert (from_encoding.eos_id, from_encoding.eog_ids) == (260, frozenset({260, 262}))
    assert from_encoding.pretokenizer == "qwen2"


def test_a_tiktoken_encoding_without_the_named_token_is_refused() -> None:
    encoding = tiktoken.Encoding(
        "toy", pat_str=".", mergeable_ranks={b"a": 0}, special_tokens={"<s>": 1}
    )

    assert Vocabulary.from_tiktoken(encoding).eos_id is None
    assert Vocabulary.from_tiktoken(encoding, bos="<s>").add_bos
    with pytest.raises(ValueError, match="no special token '<x>'"):
        Vocabulary.from_tiktoken(encoding, bos="<x>")


@pytest.mark.parametrize(
    ("pre_tokenizer", "family"),
    [
        ({"type": "ByteLevel", "use_regex": True}, "gpt-2"),
        ({"type": "ByteLevel", "use_regex": False}, UNKNOWN),
        (None, UNKNOWN),
        (
            [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel"}],
            "starcoder",
        ),
        (
            [
                {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated"},
                {"type": "ByteLevel", "use_regex": False},
            ],
            "qwen2",
        ),
        (
            [
                {"type": "Split", "pattern": {"Regex": r"\w+"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "use_regex": False},
            ],
            UNKNOWN,
        ),
    ],
)
def test_splits_are_known_by_their_expression(
    tmp_path: Path, pre_tokenizer: object, family: str
) -> None:
    if isinstance(pre_tokenizer, list):
        pre_tokenizer = {"type": "Sequence", "pretokenizers": pre_tokenizer}
    path = written(tmp_path, byte_level_json(pre_tokenizer=pre_tokenizer))

    assert Vocabulary.from_tokenizer_json(path).pretokenizer == family


def test_the_expressions_of_known_families() -> None:
    assert family_of_pattern(QWEN2) == "qwen2"
    assert family_of_pattern(QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")) == "llama-bpe"
    assert family_of_pattern("") == UNKNOWN


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "'WordPiece'"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, "'Unigram'"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "end_of_word_suffix": "</w>"}}, "'</w>'"),
        ({"decoder": {"type": "WordPiece"}}, "WordPiece"),
        ({"decoder": {"type": "Metaspace"}}, "Metaspace"),
        ({"decoder": None}, "none"),
    ],
)
def test_tokenizers_without_fixed_bytes_are_refused_by_name(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    path = written(tmp_path, byte_level_json(**fields))

    with pytest.raises(UnsupportedVocabulary, match=reason):
        Vocabulary.from_tokenizer_json(path)


BPE = {"type": "BPE"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "no model"),
        ({"model": []}, "no model"),
        (byte_level_json(model=BPE), "give every token an id"),
        (byte_level_json(model={**BPE, "vocab": {"a": -1}}), "give every token an id"),
        (byte_level_json(model={**BPE, "vocab": {"a": True}}), "give every token an id"),
        (byte_level_json(model={**BPE, "vocab": {"a": 10**12}}), "give every token an id"),
        (byte_level_json(model={**BPE, "vocab": {"a": 0, "b": 0}}), "two tokens one id"),
        (byte_level_json(model={**BPE, "vocab": {}}, added_tokens=[]), "no tokens"),
        (byte_level_json(added_tokens=[{"id": 1}]), "lack an id"),
        (byte_level_json(added_tokens=[7]), "lack an id"),
        (byte_level_json(added_tokens=5), "lack an id"),
        (byte_level_json(added_tokens=[{"id": "1", "content": "a"}]), "lack an id"),
    ],
)
def test_files_that_make_no_sense_are_refused_in_one_line(
    tmp_path: Path, data: object, reason: str
) -> None:
    with pytest.raises(TokenizerFileError, match=reason) as error:
        Vocabulary.from_tokenizer_json(written(tmp_path, data))
    assert "\n" not in str(error.value)
    assert "tokenizer.json" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00"])
def test_files_that_are_not_json_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)

    with pytest.raises(TokenizerFileError, match="not a JSON file"):
        Vocabulary.from_tokenizer_json(path)


def test_names_and_rows_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, byte_level_json())

    with pytest.raises(TokenizerFileError, match="no token '<nope>'"):
        Vocabulary.from_tokenizer_json(path, eos="<nope>")
    with pytest.raises(TokenizerFileError, match="do not fit in 10 rows"):
        Vocabulary.from_tokenizer_json(path, n_vocab=10)
