from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text import byte_strings
from support.vocab import byte_level, sentencepiece_like, with_specials, without_single_bytes
from suture.healing import Vocabulary, reference

NAMES = ("byte-level", "sentencepiece", "no single bytes", "specials")


@cache
def toy(name: str) -> Vocabulary:
    match name:
        case "byte-level":
            return byte_level()[0]
        case "sentencepiece":
            return sentencepiece_like()[0]
        case "specials":
            return with_specials()
    return without_single_bytes()


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_searches_equal_a_scan_of_all_tokens(name: str, data: st.DataObject) -> None:
    vocabulary = toy(name)
    piece = data.draw(st.sampled_from([vocabulary.bytes_of(i) for i in range(vocabulary.n_vocab)]))
    prefix = data.draw(byte_strings(4)) + piece + data.draw(byte_strings(2))

    for query in (prefix, piece, piece[:-1], prefix[:1] * 2):
        ranks = vocabulary.extending(query)
        extending = vocabulary.sorted_ids[ranks.start : ranks.stop].tolist()
        assert set(extending) == reference.extending_ids(vocabulary, query)
        assert len(set(extending)) == len(extending)
        assert vocabulary.extends_strictly(query) == any(
            vocabulary.bytes_of(i) != query for i in extending
        )
        assert vocabulary.added_extends(query) == any(
            vocabulary.bytes_of(i).startswith(query) and vocabulary.bytes_of(i) != query
            for i in vocabulary.added_ids
        )
        prefixes = vocabulary.proper_prefixes(query).tolist()
        assert set(prefixes) == reference.proper_prefix_ids(vocabulary, query)
        longest = max(
            (len(vocabulary.bytes_of(i)) for i in [*prefixes, *vocabulary.ids_of(query)]), default=0
        )
        if vocabulary.added_ids.isdisjoint(vocabulary.ids_of(query)):
            assert vocabulary.longest_prefix(query) == longest


@pytest.mark.parametrize("name", NAMES)
def test_v1_v2_bytes_and_ids_agree_over_all_rows(name: str) -> None:
    vocabulary = toy(name)
    drawable = set(reference.drawable_ids(vocabulary))

    assert set(vocabulary.sorted_ids.tolist()) == drawable
    for token_id in range(vocabulary.n_vocab):
        piece = vocabulary.bytes_of(token_id)
        assert (vocabulary.rank[token_id] >= 0) == (token_id in drawable)
        assert (token_id in vocabulary.ids_of(piece)) == bool(piece)
    pieces = [vocabulary.bytes_of(i) for i in vocabulary.sorted_ids.tolist()]
    assert pieces == sorted(pieces)
