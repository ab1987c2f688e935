"""O1 to O4: what each token was, beside the text, against definitions by enumeration."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text import byte_strings, partitions
from support.vocab import of_pieces
from suture.healing import (
    Detokenizer,
    LoggedToken,
    OnStop,
    TokenLog,
    TokenTransducer,
    display_name,
    display_text,
)

STOPS = st.lists(st.sampled_from(["a", "ab", "\n\n", "é", "👩", " "]), max_size=2)
REPLACEMENT = "\ufffd".encode()


def characters(data: bytes) -> list[tuple[int, int]]:
    """Begin and end of every character, or part that U+FFFD stands for, by trying all lengths."""
    spans, start = [], 0
    while start < len(data):
        one = [
            n for n in range(1, 5) if len(data[start : start + n].decode("utf-8", "replace")) == 1
        ]
        end = min(len(data), start + max(one))
        spans.append((start, end))
        start = end
    return spans


def offset_by_enumeration(data: bytes, at: int, n_chars: int) -> int:
    """Index of the character that has byte `at`, of a text that was cut to `n_chars`."""
    offset = sum(end <= at for _, end in characters(data))
    return min(offset, n_chars)


@settings(deadline=None, max_examples=300)
@given(
    data=st.data(),
    stops=STOPS,
    n_skip=st.integers(0, 3),
    on_stop=st.sampled_from(OnStop),
)
def test_o1_to_o4_entries_are_the_tokens_and_come_with_their_last_byte(
    data: st.DataObject, stops: list[str], n_skip: int, on_stop: OnStop
) -> None:
    pieces = data.draw(partitions(data.draw(byte_strings())))
    transducer = TokenTransducer(of_pieces(pieces), stops)
    detokenizer = Detokenizer(
        transducer, skip_bytes=n_skip, include_stop=on_stop, on_incomplete="drop"
    )
    log = TokenLog(transducer, n_skip)
    entries: list[LoggedToken] = []
    text, n_fed = "", 0

    for token_id in range(len(pieces)):
        if detokenizer.ended:
            break
        log.add(token_id)
        text += detokenizer.feed(token_id)
        entries += log.take(detokenizer)
        n_fed += 1
        if not detokenizer.ended:
            read = b"".join(pieces[:n_fed])[n_skip:]
            assert len(entries) == n_without_held(pieces[:n_fed], n_skip, read, detokenizer)
    text += detokenizer.flush()
    entries += log.take(detokenizer)

    assert [entry.token_id for entry in entries] == list(range(n_fed))
    assert [entry.piece for entry in entries] == pieces[:n_fed]
    read = b"".join(pieces[:n_fed])
    assert read[n_skip:].decode("utf-8", "replace").startswith(text)
    offsets = [entry.text_offset for entry in entries]
    assert offsets == sorted(offsets)
    starts = [max(0, len(b"".join(pieces[:n])) - n_skip) for n in range(n_fed)]
    for start, piece, offset in zip(starts, pieces, offsets, strict=False):
        if piece:
            assert offset == offset_by_enumeration(read[n_skip:], start, len(text))


def n_without_held(
    pieces: Sequence[bytes], n_skip: int, read: bytes, detokenizer: Detokenizer
) -> int:
    """How many tokens end before the first byte that is held."""
    n_sent = len(read) - detokenizer.held_bytes
    ends = [max(0, len(b"".join(pieces[: n + 1])) - n_skip) for n in range(len(pieces))]
    return sum(end <= n_sent for end in ends)


def test_o2_bytes_are_those_of_the_token_and_not_of_the_mark_that_stands_for_them() -> None:
    transducer = TokenTransducer(of_pieces([b"a\xf0\x9f", b"A"]))
    detokenizer, log = Detokenizer(transducer), TokenLog(transducer)

    log.add(0)
    assert (detokenizer.feed(0), log.take(detokenizer)) == ("a", [])
    log.add(1)
    text = detokenizer.feed(1)

    assert text == "\ufffdA"
    assert log.take(detokenizer) == [
        LoggedToken(0, b"a\xf0\x9f", 0),
        LoggedToken(1, b"A", 2),
    ]


def test_a_token_outside_the_vocabulary_is_an_error_and_no_entry() -> None:
    transducer = TokenTransducer(of_pieces([b"a"]))
    log = TokenLog(transducer)

    with pytest.raises(IndexError):
        log.add(1)
    assert log.take(Detokenizer(transducer)) == []


@pytest.mark.parametrize(
    ("piece", "text", "name"),
    [
        (b" the", " the", " the"),
        (b"", "", ""),
        (b"\xf0\x9f", "\ufffd", "bytes:\\xf0\\x9f"),
        (REPLACEMENT, "\ufffd", "\ufffd"),
        (b" \xe6", " \ufffd", "bytes:\\x20\\xe6"),
    ],
)
def test_pieces_are_shown_alone(piece: bytes, text: str, name: str) -> None:
    assert (display_text(piece), display_name(piece)) == (text, name)
