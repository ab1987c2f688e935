"""Streams that have broken systems of this kind: tokens, stop strings, and the right deltas."""

import pytest

from support.vocab import of_pieces
from suture.healing import Detokenizer, TokenTransducer

CASES: list[tuple[str, list[str], list[str], int, list[str]]] = [
    # name, token bytes, stop strings, min_tokens, deltas with the flush last
    ("Burmese", ["e1", "80", "99", "e180", "84"], [], 0, ["", "", "မ", "", "င", ""]),
    (
        "URGENCY and a chilli",
        ["55524745", "4e", "43", "59", "f09f", "8cb6", "efb88f"],
        [],
        0,
        ["URGE", "N", "C", "Y", "", "🌶", "\ufe0f", ""],
    ),
    ("stop as one token", ["3c2f616e737765723e"], ["</answer>"], 0, ["", ""]),
    (
        "stop in five, fused at both ends",
        ["783c2f", "61", "6e7377", "6572", "3e79"],
        ["</answer>"],
        0,
        ["x", "", "", "", "", ""],
    ),
    ("stop across tokens", ["61454e", "4462"], ["END"], 0, ["a", "", ""]),
    ("earlier stop under min_tokens", ["456e640a", "456e640a78"], ["End\n"], 2, ["End\n", "", ""]),
    ("two stops in one step", ["785354", "4f50455f"], ["STOP", "TO"], 0, ["x", "S", ""]),
    ("unfinished character, then a letter", ["f09f", "41"], [], 0, ["", "\ufffdA", ""]),
    ("a byte that begins no character", ["f5", "62"], [], 0, ["\ufffd", "b", ""]),
    ("a real U+FFFD", ["efbfbd"], [], 0, ["\ufffd", ""]),
]


@pytest.mark.parametrize(
    ("pieces", "stops", "min_tokens", "deltas"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_deltas_are_the_right_text_and_nothing_is_held_longer_than_it_must_be(
    pieces: list[str], stops: list[str], min_tokens: int, deltas: list[str]
) -> None:
    vocabulary = of_pieces([bytes.fromhex(piece) for piece in pieces])
    detokenizer = Detokenizer(TokenTransducer(vocabulary, stops), min_tokens=min_tokens)

    streamed = [detokenizer.feed(token_id) for token_id in range(len(pieces))]

    assert [*streamed, detokenizer.flush()] == deltas
