from __future__ import annotations

from dataclasses import replace

import pytest

from support.toy import special, toy_codec, toy_encode, toy_vocabulary
from suture.healing import TokenKind, Vocabulary
from suture.server.prompt.families import detect_family
from suture.server.token_texts import NoText, TokenTexts, token_texts

VOCABULARY = toy_vocabulary()
TOY = token_texts(VOCABULARY, toy_codec(toy_encode), detect_family(VOCABULARY, "toy"))

# SentencePiece in small: control tokens, a byte that is no character, and pieces behind spaces.
PIECES = [b"<s>", b"</s>", b"\xc3", b"\xa9", b" a", b"b", b" "]
SPACED = TokenTexts(
    Vocabulary(
        PIECES,
        kinds=[TokenKind.CONTROL] * 2 + [TokenKind.NORMAL] * 5,
        bos_id=0,
        eos_id=1,
        add_bos=True,
        model="llama",
    ),
    frozenset({0, 1}),
    has_dummy_space=True,
)


def reason(texts: TokenTexts, parts: list[int | str]) -> str:
    with pytest.raises(NoText) as raised:
        texts.prompt_text(parts)
    return str(raised.value)


def test_ids_are_their_text_and_texts_are_themselves() -> None:
    text = "const userName = 'é🎉'\n"
    assert TOY.prompt_text(list(toy_encode(text.encode()))) == text
    assert TOY.prompt_text(["é", *toy_encode(b" user"), "<|fim_prefix|>"]) == "é user<|fim_prefix|>"


def test_a_character_may_be_cut_between_ids_and_texts_but_not_at_the_end() -> None:
    assert TOY.prompt_text([0xC3, 0xA9]) == "é"
    assert "inside a character" in reason(TOY, [97, 0xC3])
    assert "not UTF-8" in reason(TOY, [0xC3, "x"])
    assert "not UTF-8" in reason(TOY, [0xFF])


@pytest.mark.parametrize(
    "token_id", [special("<|fim_prefix|>"), special("<|endoftext|>"), VOCABULARY.n_vocab - 1]
)
def test_an_id_without_text_is_refused_and_its_place_told(token_id: int) -> None:
    assert "item 1 is a token that no text has" in reason(TOY, [97, token_id])


@pytest.mark.parametrize("token_id", [-1, VOCABULARY.n_vocab, 2**70])
def test_what_is_no_id_is_refused(token_id: int) -> None:
    assert f"from 0 to {VOCABULARY.n_vocab - 1}: item 0 is none" in reason(TOY, [token_id])


def test_what_every_prompt_begins_with_may_be_there() -> None:
    assert SPACED.opening_ids == (0,) and TOY.opening_ids == ()
    assert SPACED.prompt_text([0, 4, 5]) == SPACED.prompt_text([4, 5]) == "ab"
    assert SPACED.prompt_text([0]) == ""
    assert "item 1 is a token" in reason(SPACED, [0, 0, 4])


def test_the_space_that_the_tokenizer_puts_before_a_text_is_none_of_it() -> None:
    assert SPACED.prompt_text([6, 4]) == " a"
    assert SPACED.prompt_text(["b", 4]) == "b a"
    assert SPACED.prompt_text([" ", 5]) == " b"


def test_ids_of_a_vocabulary_that_loses_text_are_refused() -> None:
    lossy = replace(TOY, is_lossless=False)
    assert "must be text" in reason(lossy, [97])
    assert lossy.prompt_text(["a", "b"]) == "ab"


def test_a_token_is_shown_with_its_bytes_or_its_own_text() -> None:
    shown = [TOY.shown(token_id) for token_id in (97, 0xC3, special("<|fim_pad|>"))]
    assert shown == [b"a", b"\xc3", b"<|fim_pad|>"]
    assert TOY.shown(VOCABULARY.n_vocab - 1) == b""
