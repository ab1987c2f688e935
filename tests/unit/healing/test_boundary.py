from collections.abc import Sequence

import pytest

from support.text import TRICKY_TEXTS
from support.vocab import byte_level, of_pieces, sentencepiece_like
from suture.healing import (
    BoundaryError,
    TokenKind,
    Vocabulary,
    fixed_boundary,
    stable_boundary,
    uncut_boundary,
)


def spelled(vocabulary: Vocabulary, ids: tuple[int, ...]) -> bytes:
    return b"".join(map(vocabulary.bytes_of, ids))


@pytest.mark.parametrize(
    ("typed", "pending"),
    [
        ("const userNa", b" userNa"),
        ("    retu", b" retu"),
        ("is_palindro", b"_palindro"),
        ("x = nump", b" nump"),
    ],
)
def test_a_word_is_given_back_from_where_a_longer_token_may_start(
    typed: str, pending: bytes
) -> None:
    vocabulary, encode = byte_level()

    boundary = stable_boundary(typed.encode(), encode, vocabulary)

    assert boundary.pending == pending
    assert spelled(vocabulary, boundary.kept_ids) + pending == typed.encode()
    assert boundary.dropped_tokens == len(encode(typed.encode())) - len(boundary.kept_ids)


def test_a_clean_boundary_gives_nothing_back() -> None:
    vocabulary, encode = byte_level()

    boundary = stable_boundary(b"x = ~", encode, vocabulary)

    assert (boundary.pending, boundary.dropped_tokens) == (b"", 0)
    assert boundary.kept_ids == tuple(encode(b"x = ~"))


def test_an_empty_segment_has_nothing_to_heal() -> None:
    vocabulary, encode = byte_level()

    for boundary in (
        stable_boundary(b"", encode, vocabulary),
        uncut_boundary(b"", encode, vocabulary),
        fixed_boundary(b"", 3, encode, vocabulary),
    ):
        assert (boundary.kept_ids, boundary.pending, boundary.dropped_tokens) == ((), b"", 0)


@pytest.mark.parametrize("n_tokens", range(6))
def test_fixed_gives_back_n_tokens_or_all_there_are(n_tokens: int) -> None:
    vocabulary, encode = byte_level()
    ids = encode(b"const userNa")

    boundary = fixed_boundary(b"const userNa", n_tokens, encode, vocabulary)

    n_dropped = min(n_tokens, len(ids))
    assert boundary.dropped_tokens == n_dropped
    assert boundary.kept_ids == tuple(ids[: len(ids) - n_dropped])
    assert boundary.pending == spelled(vocabulary, tuple(ids[len(ids) - n_dropped :]))


@pytest.mark.parametrize("text", TRICKY_TEXTS.values(), ids=TRICKY_TEXTS.keys())
def test_b3_an_unfinished_character_is_never_tokenized(text: str) -> None:
    """llama.cpp#8691: tokenizers make U+FFFD of half a character."""
    vocabulary, byte_encode = byte_level()

    def encode(segment: bytes) -> Sequence[int]:
        segment.decode()
        return byte_encode(segment)

    data = text.encode()
    for end in range(max(0, len(data) - 24), len(data) + 1):
        for boundary in (
            stable_boundary(data[:end], encode, vocabulary),
            fixed_boundary(data[:end], 1, encode, vocabulary),
            uncut_boundary(data[:end], encode, vocabulary),
        ):
            assert spelled(vocabulary, boundary.kept_ids) + boundary.pending == data[:end]


def test_uncut_gives_back_only_the_unfinished_character() -> None:
    vocabulary, encode = byte_level()

    boundary = uncut_boundary("x = '我".encode()[:-1], encode, vocabulary)

    assert boundary.pending == "我".encode()[:-1]
    assert spelled(vocabulary, boundary.kept_ids) == b"x = '"


def test_a_long_unbroken_run_gives_back_a_bounded_tail() -> None:
    vocabulary, encode = byte_level()
    run = b"abcdefghij" * 400

    boundary = stable_boundary(run, encode, vocabulary)

    assert len(boundary.pending) <= 48 + vocabulary.max_piece_bytes
    assert spelled(vocabulary, boundary.kept_ids) + boundary.pending == run


def test_encode_is_called_at_most_twice() -> None:
    vocabulary, byte_encode = byte_level()
    calls = []

    def encode(segment: bytes) -> Sequence[int]:
        calls.append(segment)
        return byte_encode(segment)

    stable_boundary(b"def f(a):\n    return userNa", encode, vocabulary)

    assert len(calls) <= 2


def test_the_space_that_sentencepiece_adds_is_not_pending() -> None:
    vocabulary, encode = sentencepiece_like()

    boundary = stable_boundary(b"return userNa", encode, vocabulary)

    assert spelled(vocabulary, boundary.kept_ids) + boundary.pending == b" return userNa"


def test_a_tokenizer_that_changes_the_text_is_refused() -> None:
    vocabulary = of_pieces([b"a", b"b"])

    with pytest.raises(BoundaryError):
        fixed_boundary(b"ab", 1, lambda segment: [0], vocabulary)
    assert uncut_boundary(b"ab", lambda segment: [0], vocabulary).kept_ids == (0,)


@pytest.mark.parametrize("above", [b"\x04", b"x = '\x04\x04'\n", b"\x04" * 300 + b"\n"])
def test_bytes_that_no_token_spells_do_not_matter_farther_up(above: bytes) -> None:
    """llama.cpp drops them without a word; SmolLM2 has eight such bytes."""
    vocabulary, encode = byte_level()

    def lossy(segment: bytes) -> list[int]:
        return list(encode(segment.replace(b"\x04", b"")))

    plain = stable_boundary(b"x\nconst userNa", encode, vocabulary)
    boundary = stable_boundary(above + b"x\nconst userNa", lossy, vocabulary)
    assert (boundary.pending, boundary.dropped_tokens) == (plain.pending, plain.dropped_tokens)
    kept = spelled(vocabulary, boundary.kept_ids)
    assert kept + boundary.pending == above.replace(b"\x04", b"") + b"x\nconst userNa"
    with pytest.raises(BoundaryError):
        fixed_boundary(b"x\x04", 1, lossy, vocabulary)


def test_a_beginning_added_token_stays_open() -> None:
    """Its tokenizer would take ``<tool_call>`` out of the text before anything else."""
    pieces = [bytes([byte]) for byte in range(256)]
    added = Vocabulary(
        [*pieces, b"<tool_call>"],
        kinds=[*[TokenKind.NORMAL] * 256, TokenKind.USER_DEFINED],
        pretokenizer="qwen2",
    )

    boundary = stable_boundary(b"x <tool_", lambda segment: list(segment), added)

    assert boundary.pending == b"<tool_"
