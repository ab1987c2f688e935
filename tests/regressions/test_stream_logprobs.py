"""Reported faults of log probability entries: their bytes, texts, offsets and chunks (T12)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.vocab import of_pieces
from suture.healing import (
    Detokenizer,
    LoggedToken,
    TokenLog,
    TokenTransducer,
    display_name,
    display_text,
)


def logged(
    pieces: Sequence[bytes], stops: Sequence[str] = (), skip_bytes: int = 0
) -> list[tuple[str, list[LoggedToken]]]:
    """Per token the text and the entries that go out with it, and last those of the flush."""
    transducer = TokenTransducer(of_pieces(pieces), stops)
    detokenizer = Detokenizer(transducer, skip_bytes=skip_bytes)
    log = TokenLog(transducer, skip_bytes)
    chunks = []
    for token_id in range(len(pieces)):
        log.add(token_id)
        text = detokenizer.feed(token_id)
        chunks.append((text, log.take(detokenizer)))
    return [*chunks, (detokenizer.flush(), log.take(detokenizer))]


def ids(entries: Sequence[LoggedToken]) -> list[int]:
    return [entry.token_id for entry in entries]


@pytest.mark.parametrize(
    ("where", "pieces"),
    [
        ("llama.cpp#18454 a character of three tokens", [b" \xe6", b"\x95", b"\xa3"]),
        ("llama.cpp#11210 a character and a half", [b"\xe5\x8d\x95\xe5", b"\x8d\x95"]),
        ("llama.cpp#11738 a quote after half a character", [b"\xe5\x8d", b"'"]),
        ("ollama#13497 a first byte", [b"\xf0", b"\x9f\x98\x80"]),
        ("vllm#19177 a blank before a word", [b" the", b"\n", b"\t"]),
        ("vllm#16838 byte tokens", [b"\xc4", b"\xa0", b"\xc4\x8a"]),
    ],
)
def test_t12_every_token_has_an_entry_with_its_own_bytes(where: str, pieces: list[bytes]) -> None:
    entries = [entry for _, chunk in logged(pieces) for entry in chunk]

    assert [entry.piece for entry in entries] == pieces, where


@pytest.mark.parametrize(
    ("where", "piece", "text"),
    [
        ("vllm#19177 no letter of an alphabet stands for the blank", b" the", " the"),
        ("vllm#27300 a curly quote alone is one", "”".encode(), "”"),
        ("vllm#28874 a part of one is not nothing", b"\xe2\x80", "\ufffd"),
        ("vllm#34875 nor is its last byte", b"\x9d", "\ufffd"),
        ("llama.cpp#11210 JSON can have it", b"\xe5\x8d", "\ufffd"),
        ("ollama#15231 a letter of two bytes", "ą".encode(), "ą"),
    ],
)
def test_t12_an_alternative_is_decoded_alone(where: str, piece: bytes, text: str) -> None:
    assert display_text(piece) == text, where


def test_t12_two_tokens_of_one_display_text_have_two_names() -> None:
    """vllm#9557, vllm#9625: a mapping by display text lost one of them."""
    pieces = [b"\xf0\x9f", b"\xf0\x9e"]

    assert len(set(map(display_text, pieces))) == 1
    assert list(map(display_name, pieces)) == ["bytes:\\xf0\\x9f", "bytes:\\xf0\\x9e"]


def test_t12_an_entry_comes_with_the_text_of_its_last_byte() -> None:
    """llama.cpp#18454: tokens of an unfinished character had no entry, or one for all."""
    chunks = logged([b" \xe6", b"\x95", b"\xa3", b"x"])

    assert [(text, ids(entries)) for text, entries in chunks] == [
        (" ", []),
        ("", []),
        ("散", [0, 1, 2]),
        ("x", [3]),
        ("", []),
    ]


def test_t12_entries_wait_with_the_text_of_a_possible_stop_string() -> None:
    """vllm#51641: text was held back, its ids were not."""
    chunks = logged([b"a", b"</th", b"ink", b"ing"], ["</think>"])

    assert [(text, ids(entries)) for text, entries in chunks] == [
        ("a", [0]),
        ("", []),
        ("", []),
        ("</thinking", [1, 2, 3]),
        ("", []),
    ]


def test_t12_the_tokens_of_a_stop_string_are_in_the_last_chunk_with_the_cut_as_offset() -> None:
    chunks = logged([b"ab", b"S", b"TOPx"], ["STOP"])

    assert chunks[2] == ("", [LoggedToken(1, b"S", 2), LoggedToken(2, b"TOPx", 2)])


def test_t12_offsets_count_characters_and_not_tokens() -> None:
    entries = [
        entry
        for _, chunk in logged(["é".encode(), b"\xf0\x9f", b"\x98\x80x", b"y"])
        for entry in chunk
    ]

    assert [entry.text_offset for entry in entries] == [0, 1, 1, 3]


def test_t12_healed_bytes_have_entries_and_no_place_in_the_text() -> None:
    entries = [
        entry for _, chunk in logged([b"re", b"turn x", b"y"], skip_bytes=4) for entry in chunk
    ]

    assert entries == [
        LoggedToken(0, b"re", 0),
        LoggedToken(1, b"turn x", 0),
        LoggedToken(2, b"y", 4),
    ]
