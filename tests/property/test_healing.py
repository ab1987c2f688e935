"""H1 to H4: the recursive healer against its twin."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.text import byte_strings
from support.vocab import (
    byte_level,
    sentencepiece_like,
    with_specials,
    without_single_bytes,
)
from suture.healing import (
    Detokenizer,
    HealingError,
    TokenHealer,
    TokenTransducer,
    Vocabulary,
    coverable,
    reference,
)

NAMES = ("byte-level", "sentencepiece", "no single bytes", "specials")


@cache
def toy(name: str) -> Vocabulary:
    match name:
        case "byte-level":
            return byte_level(n_merges=80)[0]
        case "sentencepiece":
            return sentencepiece_like(n_merges=60)[0]
        case "specials":
            return with_specials()
    return without_single_bytes()


def pending_bytes(vocabulary: Vocabulary) -> st.SearchStrategy[bytes]:
    """Some tokens' bytes, often cut short, sometimes followed by bytes that fit nowhere."""
    pieces = st.sampled_from([vocabulary.bytes_of(i) for i in range(vocabulary.n_vocab)])
    spelled = st.lists(pieces, min_size=1, max_size=3).map(b"".join)
    cut = st.tuples(spelled, st.integers(0, 3)).map(lambda pair: pair[0][: len(pair[0]) - pair[1]])
    return st.one_of(cut, byte_strings(5)).map(lambda data: data[:10])


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_h1_allowed_tokens_equal_enumeration_and_all_others_raise(
    name: str, data: st.DataObject
) -> None:
    vocabulary = toy(name)
    pending = data.draw(pending_bytes(vocabulary).filter(bool))
    allowed = reference.allowed_ids(vocabulary, pending)

    assert coverable(vocabulary, pending) == bool(allowed)
    if not allowed:
        return
    constraint = TokenHealer(vocabulary, pending).constraint()
    assert {i for i in range(-1, vocabulary.n_vocab + 1) if constraint.allows(i)} == allowed
    for token_id in range(vocabulary.n_vocab):
        healer = TokenHealer(vocabulary, pending)
        if token_id in allowed:
            piece = vocabulary.bytes_of(token_id)
            assert healer.consume(token_id) == min(len(piece), len(pending))
            assert healer.pending == pending[len(piece) :]
        else:
            with pytest.raises(HealingError):
                healer.consume(token_id)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_h2_any_allowed_path_ends_and_spells_the_pending_bytes(
    name: str, data: st.DataObject
) -> None:
    vocabulary = toy(name)
    pending = data.draw(pending_bytes(vocabulary).filter(lambda p: coverable(vocabulary, p)))
    healer = TokenHealer(vocabulary, pending)
    detokenizer = Detokenizer(TokenTransducer(vocabulary), skip_bytes=len(pending))
    generated, n_healed, shown = b"", 0, ""

    while not healer.done:
        constraint = healer.constraint()
        allowed = [i for i in range(vocabulary.n_vocab) if constraint.allows(i)]
        token_id = data.draw(st.sampled_from(allowed))
        n_healed += healer.consume(token_id)
        generated += vocabulary.bytes_of(token_id)
        shown += detokenizer.feed(token_id)

    assert generated.startswith(pending)
    assert n_healed == len(pending)
    shown += detokenizer.flush()
    assert shown == generated[len(pending) :].decode("utf-8", "replace")


@settings(deadline=None, max_examples=60)
@given(data=st.data(), min_tokens=st.integers(0, 4))
def test_h4_tokens_that_only_repeat_pending_bytes_do_not_count(
    data: st.DataObject, min_tokens: int
) -> None:
    vocabulary = toy("byte-level")
    transducer = TokenTransducer(vocabulary, ["b"])
    repeated = data.draw(st.lists(st.sampled_from(b"ab"), max_size=4))
    new = data.draw(st.lists(st.sampled_from(b"ab"), max_size=6))

    healed = Detokenizer(transducer, skip_bytes=len(repeated), min_tokens=min_tokens)
    plain = Detokenizer(transducer, min_tokens=min_tokens)

    assert [healed.feed(i) for i in repeated] == [""] * len(repeated)
    assert [healed.feed(i) for i in new] == [plain.feed(i) for i in new]
    assert (healed.flush(), healed.stop_match) == (plain.flush(), plain.stop_match)
