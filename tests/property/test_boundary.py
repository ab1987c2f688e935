"""B1 to B3 on toy tokenizers: every continuation is tokenized and compared."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text import code_texts
from support.vocab import SAMPLE, byte_level, sentencepiece_like
from suture.healing import (
    Encode,
    Vocabulary,
    fixed_boundary,
    reference,
    stable_boundary,
    uncut_boundary,
)
from suture.healing.pretokenizer import Pretokenizer

FAMILIES = (
    *("gpt2", "starcoder", "qwen2", "qwen35", "llama3", "minicpm5", "deepseek-coder"),
    *("deepseek-llm", "deepseek-v3", "falcon", "default", "gpt-4o", "tekken"),
)
ENDINGS = (
    *(
        "a",
        "e",
        "A",
        "é",
        "我",
        "的",
        "0",
        "12",
        "345",
        ".",
        "/",
        "'",
        "'s",
        "ll",
        "_",
        "=",
        "\u00a0",
    ),
    *(" ", "  ", "\n", "\r\n", "\t", " a", " \n", "\na", "  a", "(", "name", "Name", "rn", " user"),
    *("\u0301", "€", "\x01", "👩", "::", "//", "''", "'re"),
)
CONTINUATIONS = [text.encode() for text in ENDINGS]


@cache
def toy(family: str) -> tuple[Vocabulary, Encode]:
    return sentencepiece_like() if family == "spm" else byte_level(family)


@pytest.mark.parametrize("family", [*FAMILIES, "unknown", "spm"])
@settings(deadline=None, max_examples=25)
@given(text=code_texts())
def test_b1_b2_kept_tokens_survive_every_continuation(family: str, text: str) -> None:
    vocabulary, encode = toy("qwen2" if family == "unknown" else family)
    if family == "unknown":
        pieces = [vocabulary.bytes_of(i) for i in range(vocabulary.n_vocab)]
        vocabulary = Vocabulary(pieces, pretokenizer="never heard of")

    boundary = stable_boundary(text.encode(), encode, vocabulary)

    spelled = b"".join(map(vocabulary.bytes_of, boundary.kept_ids)) + boundary.pending
    assert spelled.removeprefix(b" " if family == "spm" else b"") == text.encode() or (
        spelled == text.encode()
    )
    if text:
        stable = reference.count_stable(text.encode(), encode, CONTINUATIONS)
        assert len(boundary.kept_ids) <= stable


@settings(deadline=None, max_examples=200)
@given(text=code_texts(), n_missing=st.integers(0, 3), n_tokens=st.integers(0, 5))
def test_b1_holds_for_every_rule_at_every_byte(text: str, n_missing: int, n_tokens: int) -> None:
    vocabulary, encode = toy("qwen2")
    segment = text.encode()[: len(text.encode()) - n_missing]

    for boundary in (
        stable_boundary(segment, encode, vocabulary),
        fixed_boundary(segment, n_tokens, encode, vocabulary),
        uncut_boundary(segment, encode, vocabulary),
    ):
        kept = b"".join(map(vocabulary.bytes_of, boundary.kept_ids))
        assert kept + boundary.pending == segment


def test_b2_at_every_cursor_of_a_file() -> None:
    vocabulary, encode = toy("qwen2")
    whole = SAMPLE.encode()
    ids = tuple(encode(whole))

    for cursor in range(len(whole)):
        boundary = stable_boundary(whole[:cursor], encode, vocabulary)
        assert ids[: len(boundary.kept_ids)] == boundary.kept_ids, whole[cursor - 20 : cursor]


@pytest.mark.parametrize("family", FAMILIES)
def test_stable_starts_survive_all_short_continuations(family: str) -> None:
    pretokenizer = Pretokenizer(family)
    endings = ["".join(letters) for n in (1, 2, 3) for letters in product("ae.' \n0我", repeat=n)]

    for text in (
        "x",
        " ",
        "\n ",
        "\r\n",
        "don't",
        "a'",
        "a'l",
        "12",
        "1234",
        "a ..",
        "(\n",
        "a \n ",
    ):
        starts, open_end = pretokenizer.stable_starts(text)
        for ending in endings:
            words = pretokenizer.split(text + ending)
            at = [sum(map(len, words[:n])) for n in range(len(words) + 1)]
            assert set(starts) <= set(at), (text, ending, words)
            assert not any(starts[-1] < start < open_end for start in at), (text, ending, words)


@settings(deadline=None)
@given(text=code_texts())
def test_a_clean_boundary_is_one_that_no_token_extends(text: str) -> None:
    vocabulary, encode = toy("qwen2")
    data = text.encode()

    boundary = stable_boundary(data, encode, vocabulary)

    tails = [data[at:] for at in range(len(data))]
    # How blanks are split depends on what follows, even if no token extends them.
    if not any(map(vocabulary.extends_strictly, tails)) and not text[-1:].isspace():
        assert boundary.pending == b""
    if not boundary.pending:
        assert boundary.kept_ids == tuple(encode(data))
