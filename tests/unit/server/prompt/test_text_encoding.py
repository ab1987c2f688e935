from __future__ import annotations

import pytest

from support.vocab import byte_level, sentencepiece_like
from suture.healing import TokenKind, Vocabulary
from suture.server.errors import EngineError
from suture.server.prompt.families import FimFamily
from suture.server.prompt.text_encoding import TextEncoding, starts_with_space, text_encoding

VOCABULARY, ENCODE = sentencepiece_like()
SPACED = text_encoding(ENCODE, VOCABULARY)


def spelled(ids: object, vocabulary: Vocabulary = VOCABULARY) -> bytes:
    assert isinstance(ids, (list, tuple))
    return b"".join(map(vocabulary.bytes_of, ids))


@pytest.mark.parametrize(
    "text",
    ["x", " x", "  return x", "\n", "\n    return", "\t", "é", "我", "▁x", "\x01", "\x01x\x02"],
)
def test_s1_inside_a_prompt_nothing_is_put_before_a_text(text: str) -> None:
    read = VOCABULARY.as_read(text.encode())
    assert spelled(list(SPACED.inner(text.encode()))) == text.encode() or "▁" in text
    assert VOCABULARY.as_read(spelled(list(SPACED.inner(text.encode())))) == read
    assert VOCABULARY.as_read(spelled(list(SPACED.opening(text.encode())))) == b" " + read


def test_s1_the_text_that_begins_a_document_is_encoded_as_the_tokenizer_does() -> None:
    for text in (b"x", b" x", b"def x", b"\n"):
        assert list(SPACED.opening(text)) == list(ENCODE(text))


def test_no_text_has_no_tokens() -> None:
    assert list(SPACED.inner(b"")) == list(SPACED.opening(b"")) == []


def test_an_inner_text_has_the_tokens_that_it_has_behind_other_text() -> None:
    """Behind a line end, which no token of this vocabulary has together with letters."""
    n_line_end = len(ENCODE(b"\n"))
    for text in (b"return self.url", b"userName", b"  x", b"def"):
        assert list(SPACED.inner(text)) == list(ENCODE(b"\n" + text))[n_line_end:]


def test_a_tokenizer_without_a_dummy_space_has_one_encoding() -> None:
    vocabulary, encode = byte_level()
    encoding = text_encoding(encode, vocabulary)
    assert not encoding.has_dummy_space and SPACED.has_dummy_space
    assert list(encoding.inner(b"return x")) == list(encode(b"return x"))


def without_byte_tokens(*pieces: bytes) -> TextEncoding:
    """Of a SentencePiece tokenizer of single characters; what it does not know has no tokens."""
    vocabulary = Vocabulary([b" ", *pieces], model="llama")
    ids = {piece: token_id for token_id, piece in enumerate([b" ", *pieces])}

    def encode(text_bytes: bytes) -> list[int]:
        characters = (c.encode() for c in " " + text_bytes.decode())
        return [ids[c] for c in characters if c in ids]

    assert starts_with_space(encode, vocabulary)
    return text_encoding(encode, vocabulary)


def test_without_byte_tokens_a_character_is_taken_that_no_other_token_contains() -> None:
    encoding = without_byte_tokens(b"x", b"y", b"xz", "é".encode())
    assert encoding.has_dummy_space
    assert list(encoding.inner(b"xy")) == [1, 2]
    assert list(encoding.inner(b"yx")) == [2, 1]


def test_where_all_characters_merge_the_space_stays() -> None:
    encoding = without_byte_tokens(b"x", b"xy", b"y")
    assert not encoding.has_dummy_space
    assert list(encoding.inner(b"x")) == [0, 1]


def test_a_tokenizer_that_joins_text_to_the_anchor_is_caught() -> None:
    vocabulary = Vocabulary([b" ", b"\x01", b"x"], model="llama")

    def encode(text_bytes: bytes) -> list[int]:
        return [0, 1] if text_bytes == b"\x01" else [0, 2]

    encoding = text_encoding(encode, vocabulary)
    with pytest.raises(EngineError, match="joins text"):
        encoding.inner(b"xx")


def test_an_added_token_may_swallow_the_blanks_behind_it() -> None:
    pieces = [b" ", b"\x01", b"x", b"<t>"]
    kinds = [*[TokenKind.NORMAL] * 3, TokenKind.USER_DEFINED]
    vocabulary = Vocabulary(pieces, kinds=kinds, model="llama")

    def encode(text_bytes: bytes) -> list[int]:
        first, *others = text_bytes.split(b"<t>")
        ids = [0, *(pieces.index(bytes([byte])) for byte in first)] if first else []
        for other in others:
            ids += [3, *(pieces.index(bytes([byte])) for byte in other.lstrip())]
        return ids

    encoding = text_encoding(encode, vocabulary)
    assert list(encoding.inner(b"<t>  x")) == [3, 2]
    assert list(encoding.inner(b" <t>x")) == [0, 3, 2]


def html() -> tuple[Vocabulary, FimFamily, TextEncoding]:
    """Of a tokenizer that merges ``<P>`` behind a space to a control token, as CodeLlama's does."""
    pieces = [b" ", b"\x01", b"<", b"P", b">", b"", b" <P", b"x"]
    texts = [" ", "\x01", "<", "P", ">", "▁<P>", " <P", "x"]
    kinds = [*[TokenKind.NORMAL] * 5, TokenKind.CONTROL, *[TokenKind.NORMAL] * 2]
    vocabulary = Vocabulary(pieces, kinds=kinds, texts=texts, model="llama")

    def encode(text_bytes: bytes) -> list[int]:
        text = (b" " + text_bytes).replace(b" <P>", b"\x05").replace(b" <P", b"\x06")
        return [byte if byte in (5, 6) else pieces.index(bytes([byte])) for byte in text]

    family = FimFamily("html", "psm", {"pre": 5, "suf": 5}, frozenset({5}))
    return vocabulary, family, text_encoding(encode, vocabulary, family)


def test_f1_text_that_merges_to_a_control_token_is_spelled_in_two_parts() -> None:
    vocabulary, _, encoding = html()
    assert list(encoding.inner(b"P <P>")) == [3, 6, 4]
    assert list(encoding.inner(b"<P>")) == [2, 3, 4]
    assert list(encoding.opening(b"<P>")) == [6, 4]
    assert spelled(list(encoding.opening(b"<P> <P>")), vocabulary) == b" <P> <P>"


def one_token_for_all_but_x(kind: TokenKind) -> TextEncoding:
    vocabulary = Vocabulary([b"x", b"<unk>"], kinds=[TokenKind.NORMAL, kind], model="llama")
    return text_encoding(lambda text_bytes: [0] if text_bytes == b"x" else [1], vocabulary)


def test_f1_a_control_token_of_another_text_is_an_error() -> None:
    with pytest.raises(EngineError, match="control token"):
        one_token_for_all_but_x(TokenKind.CONTROL).inner("é".encode())


def test_text_that_the_vocabulary_cannot_spell_is_no_error() -> None:
    assert list(one_token_for_all_but_x(TokenKind.UNKNOWN).inner("é".encode())) == [1]
