import math
from pathlib import Path

import pytest

from support.vocab import of_pieces, with_specials, write_gguf
from suture.healing import GgufError, TokenKind, UnsupportedVocabulary, Vocabulary
from suture.healing.pieces import byte_level_alphabet


def spelled(data: bytes) -> bytes:
    """`data` in the byte-level alphabet, as files hold it."""
    alphabet = byte_level_alphabet()
    return "".join(alphabet[byte] for byte in data).encode()


def gguf(tmp_path: Path, tokens: list[bytes], kinds: list[int], **pairs: object) -> Path:
    """A model file with this vocabulary; keyword names are `tokenizer.ggml` keys."""
    metadata: dict[str, object] = {
        "general.architecture": "toy",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
    }
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in pairs.items()}
    return write_gguf(tmp_path / "model.gguf", metadata, {})


def test_v1_only_text_has_bytes() -> None:
    vocabulary = with_specials()

    pieces = [vocabulary.bytes_of(token_id) for token_id in range(vocabulary.n_vocab)]

    assert pieces[:6] == [b"", b"", b"a", b"b", b"ab", b"<tool_call>"]
    assert pieces[6:] == [b"    ", b"", b"<", b" ", *[b""] * 6]


def test_v1_specials_unused_and_padding_are_never_drawn() -> None:
    vocabulary = with_specials()

    assert sorted(vocabulary.sorted_ids.tolist()) == [2, 3, 4, 6, 8, 9]
    assert vocabulary.rank.shape == (16,)
    assert {i for i in range(16) if vocabulary.rank[i] < 0} == {0, 1, 5, 7, *range(10, 16)}


@pytest.mark.parametrize("token_id", [-1, -16, 16, 10**9])
def test_ids_outside_the_rows_raise(token_id: int) -> None:
    with pytest.raises(IndexError):
        with_specials().bytes_of(token_id)
    with pytest.raises(IndexError):
        with_specials().text_of(token_id)


def test_specials_show_their_own_text() -> None:
    vocabulary = with_specials()

    assert vocabulary.text_of(0) == "<|endoftext|>"
    assert vocabulary.text_of(2) == "a"
    assert vocabulary.text_of(15) == ""
    assert vocabulary.is_special(0)
    assert not vocabulary.is_special(5)
    assert vocabulary.special_id("<|endoftext|>") == 0
    assert vocabulary.special_id("<tool_call>") == 5
    assert vocabulary.special_id("a") is None


def test_v2_a_piece_maps_to_all_its_ids() -> None:
    vocabulary = of_pieces([b"a", b"b", b"a", b"", b"ab"])

    assert vocabulary.ids_of(b"a") == (0, 2)
    assert vocabulary.ids_of(b"x") == ()
    assert vocabulary.ids_of(b"") == ()


def test_v2_added_tokens_count_as_ids_of_their_piece() -> None:
    assert with_specials().ids_of(b"<tool_call>") == (5,)
    assert with_specials().ids_of(b"    ") == (6,)


def test_extending_ends_at_the_highest_byte() -> None:
    vocabulary = of_pieces(
        [b"\xff", b"\xff\xff", b"\xfe", b"\xfe\xff", b"\xfe\xff\x01", b"\xff\x00"]
    )

    assert [vocabulary.sorted_ids[r] for r in vocabulary.extending(b"\xfe\xff")] == [3, 4]
    assert [vocabulary.sorted_ids[r] for r in vocabulary.extending(b"\xff\xff")] == [1]
    assert len(vocabulary.extending(b"\xff")) == 3
    assert len(vocabulary.extending(b"")) == 6


def test_rows_fewer_than_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="2 tokens do not fit in 1 rows"):
        Vocabulary([b"a", b"b"], n_vocab=1)


def test_byte_level_strings_become_bytes(tmp_path: Path) -> None:
    words = [b" user", b"\n\n\t", bytes([0]), b"\xe6\x88", "é".encode(), b"\xad\xa0\x7f"]
    path = gguf(tmp_path, [spelled(word) for word in words], [1] * 6)

    vocabulary = Vocabulary.from_gguf(path)

    assert [vocabulary.bytes_of(i) for i in range(6)] == words


def test_every_byte_survives_the_byte_level_alphabet(tmp_path: Path) -> None:
    words = [bytes([byte]) for byte in range(256)]
    path = gguf(tmp_path, [spelled(word) for word in words], [1] * 256)

    vocabulary = Vocabulary.from_gguf(path)

    assert [vocabulary.bytes_of(i) for i in range(256)] == words


def test_strings_outside_the_alphabet_keep_their_utf8(tmp_path: Path) -> None:
    strings = ["naïve é".encode(), "我".encode(), b"a b", spelled(b" x"), b"\xff", "😀a".encode()]
    path = gguf(tmp_path, strings, [1] * 6)

    vocabulary = Vocabulary.from_gguf(path)

    assert [vocabulary.bytes_of(i) for i in range(6)] == [*strings[:3], b" x", *strings[4:]]


def test_added_tokens_of_alphabet_characters_keep_their_utf8(tmp_path: Path) -> None:
    """tokenizers#1392: an added ``é!`` was decoded as if it were byte-level."""
    path = gguf(tmp_path, ["é!".encode(), "é!".encode()], [TokenKind.USER_DEFINED, 1])

    vocabulary = Vocabulary.from_gguf(path)

    assert vocabulary.bytes_of(0) == "é!".encode()
    assert vocabulary.bytes_of(1) == b"\xe9!"


def test_sentencepiece_marks_become_spaces_and_bytes(tmp_path: Path) -> None:
    tokens = [b"<unk>", b"<s>", b"</s>", b"<0x0A>", "▁the".encode(), "▁▁".encode(), b"<0x0A>"]
    path = gguf(tmp_path, tokens, [2, 3, 3, 6, 1, 1, 1], model="llama")

    vocabulary = Vocabulary.from_gguf(path)

    assert [vocabulary.bytes_of(i) for i in range(7)] == [
        *(b"", b"", b"", b"\n", b" the", b"  ", b"<0x0A>")
    ]
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.add_bos) == (1, 2, True)


def test_sentencepiece_reads_its_mark_as_a_space(tmp_path: Path) -> None:
    text = "a▁b▁".encode()

    spm = Vocabulary.from_gguf(gguf(tmp_path, ["▁b".encode()], [1], model="llama"))
    byte_level = Vocabulary.from_gguf(gguf(tmp_path, [b"a"], [1]))

    assert spm.as_read(text) == b"a b "
    assert byte_level.as_read(text) == text
    assert spm.may_become_space(b"\xe2\x96")
    assert not spm.may_become_space(b"")
    assert not spm.may_become_space(b"\xe2\x97")
    assert not byte_level.may_become_space(b"\xe2\x96")


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", "plamo2", ""])
def test_vocabularies_without_fixed_bytes_are_refused_by_name(tmp_path: Path, model: str) -> None:
    path = gguf(tmp_path, [b"a"], [1], model=model)

    with pytest.raises(UnsupportedVocabulary, match=f"'{model}'"):
        Vocabulary.from_gguf(path)


def test_a_file_without_tokens_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "empty.gguf", {"general.architecture": "toy"}, {})

    with pytest.raises(GgufError, match="no vocabulary"):
        Vocabulary.from_gguf(path)


def test_kinds_for_too_few_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="token_type"):
        Vocabulary.from_gguf(gguf(tmp_path, [b"a", b"b"], [1]))


def test_end_of_generation_is_known_by_key_and_by_text(tmp_path: Path) -> None:
    tokens = [b"a", b"<|im_end|>", b"<|fim_pad|>", b"<|repo_name|>", b"<|file_sep|>", b"stop"]
    path = gguf(tmp_path, tokens, [1, 1, 3, 3, 3, 1], eot_token_id=5, fim_pad_token_id=2)

    vocabulary = Vocabulary.from_gguf(path)

    assert vocabulary.eog_ids == {1, 2, 3, 4, 5}
    assert vocabulary.kind_of(1) is TokenKind.CONTROL
    assert vocabulary.fim_ids == {"pad": 2}


def test_fim_tokens_declared_as_text_are_control_tokens(tmp_path: Path) -> None:
    tokens = [b"<|fim_prefix|>", b"<|fim_suffix|>", b"<|fim_middle|>", b"x"]
    path = gguf(tmp_path, tokens, [4, 4, 4, 1], middle_token_id=2)

    vocabulary = Vocabulary.from_gguf(path)

    assert [vocabulary.bytes_of(i) for i in range(4)] == [b"", b"", b"", b"x"]
    assert vocabulary.fim_ids == {"mid": 2}
    assert vocabulary.special_id("<|fim_middle|>") == 2


def test_harmony_channel_marks_are_text_and_end_is_no_end(tmp_path: Path) -> None:
    tokens = [b"<|end|>", b"<|return|>", b"<|call|>", b"<|channel|>"]

    vocabulary = Vocabulary.from_gguf(gguf(tmp_path, tokens, [3, 3, 3, 3]))

    assert vocabulary.eog_ids == {1, 2}
    assert vocabulary.bytes_of(3) == b"<|channel|>"
    assert vocabulary.bytes_of(0) == b"<|end|>"


def test_placeholder_rows_count_as_padding(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_gguf(gguf(tmp_path, [b"a", b"[PAD1]", b"[PAD7]"], [1, 4, 4]))

    assert [vocabulary.bytes_of(i) for i in range(3)] == [b"a", b"", b"[PAD7]"]


def test_rows_of_the_output_matrix_bound_the_vocabulary(tmp_path: Path) -> None:
    pairs: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [b"a", b"b"],
    }
    path = write_gguf(tmp_path / "padded.gguf", pairs, {"token_embd.weight": (8, 5)})

    assert Vocabulary.from_gguf(path).n_vocab == 5


def test_longest_piece_counts_drawable_tokens_only() -> None:
    assert with_specials().max_piece_bytes == len(b"    ")


def test_rows_that_no_model_could_have_are_refused(tmp_path: Path) -> None:
    pairs: dict[str, object] = {
        "general.architecture": "toy",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [b"a"],
    }
    by_shape = write_gguf(tmp_path / "shape.gguf", pairs, {"output.weight": (8, 2**63)})
    by_key = write_gguf(tmp_path / "key.gguf", pairs | {"toy.vocab_size": 2**32 - 1}, {})

    for path in (by_shape, by_key):
        with pytest.raises(GgufError, match="rows of logits"):
            Vocabulary.from_gguf(path)


@pytest.mark.parametrize("values", [[[1, 2], [3]], [[b"a"]]])
def test_tokens_and_merges_that_are_no_strings_are_as_if_absent(
    tmp_path: Path, values: list[object]
) -> None:
    key = "tokenizer.ggml.tokens"
    no_tokens = write_gguf(tmp_path / "no_tokens.gguf", {key: values}, {})
    with pytest.raises(GgufError, match="no vocabulary"):
        Vocabulary.from_gguf(no_tokens)

    no_merges = gguf(tmp_path, [b"a"], [1], merges=values, add_bos_token=[1, 2])
    assert Vocabulary.from_gguf(no_merges).merges is None


def test_kinds_that_are_no_integers_are_refused(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "floats.gguf",
        {"tokenizer.ggml.tokens": [b"a"], "tokenizer.ggml.token_type": [math.nan]},
        {},
    )

    with pytest.raises(GgufError, match="token_type"):
        Vocabulary.from_gguf(path)
