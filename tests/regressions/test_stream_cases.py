"""Streams that have broken systems of this kind: tokens, stop strings, and the right deltas."""

import pytest

from support.cases import STREAMS
from support.vocab import of_pieces
from suture.healing import Detokenizer, TokenTransducer


@pytest.mark.parametrize(
    ("pieces", "stops", "min_tokens", "deltas"),
    [case[1:] for case in STREAMS],
    ids=[case[0] for case in STREAMS],
)
def test_deltas_are_the_right_text_and_nothing_is_held_longer_than_it_must_be(
    pieces: list[str], stops: list[str], min_tokens: int, deltas: list[str]
) -> None:
    vocabulary = of_pieces([bytes.fromhex(piece) for piece in pieces])
    detokenizer = Detokenizer(TokenTransducer(vocabulary, stops), min_tokens=min_tokens)

    streamed = [detokenizer.feed(token_id) for token_id in range(len(pieces))]

    assert [*streamed, detokenizer.flush()] == deltas
