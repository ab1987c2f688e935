import numpy as np
import pytest

from support.vocab import byte_level, of_pieces, with_specials, without_single_bytes
from suture.healing import HealingError, TokenHealer, coverable


def test_h2_pending_bytes_come_first_and_are_counted() -> None:
    vocabulary = of_pieces([b"n", b"na", b"name", b"a", b"x"])
    healer = TokenHealer(vocabulary, b"na")

    assert healer.consume(0) == 1
    assert (healer.pending, healer.done) == (b"a", False)
    assert healer.consume(3) == 1
    assert (healer.pending, healer.done) == (b"", True)
    assert TokenHealer(vocabulary, b"na").consume(2) == 2


def test_h1_tokens_outside_the_sets_raise_and_change_nothing() -> None:
    healer = TokenHealer(of_pieces([b"n", b"na", b"name", b"a", b"x"]), b"na")

    for token_id in (3, 4, 5, -1, 99):
        with pytest.raises(HealingError):
            healer.consume(token_id)
    assert healer.pending == b"na"


def test_h1_end_of_generation_and_added_tokens_are_refused_while_bytes_are_pending() -> None:
    vocabulary = with_specials()
    healer = TokenHealer(vocabulary, b"<")

    for token_id in (0, 1, 5, 7, 10, 12):
        assert not healer.constraint().allows(token_id)
        with pytest.raises(HealingError):
            healer.consume(token_id)
    assert healer.consume(8) == 1


def test_blank_added_tokens_may_heal_indentation() -> None:
    healer = TokenHealer(with_specials(), b"  ")

    assert healer.constraint().allows(6)
    assert healer.consume(6) == 2


def test_a_prefix_whose_rest_nothing_spells_is_not_offered() -> None:
    vocabulary = of_pieces([b"a", b"ab", b"c"])
    constraint = TokenHealer(vocabulary, b"abc").constraint()

    assert [constraint.allows(token_id) for token_id in range(3)] == [False, True, False]
    with pytest.raises(HealingError):
        TokenHealer(vocabulary, b"abc").consume(0)


@pytest.mark.parametrize("pending", [b"abx", b"\xff\xff\xfe", b"x", b"ab  d "])
def test_pending_bytes_that_nothing_spells_are_refused(pending: bytes) -> None:
    assert not coverable(without_single_bytes(), pending)
    with pytest.raises(HealingError, match="spell"):
        TokenHealer(without_single_bytes(), pending)


def test_nothing_pending_is_done_and_constrains_nothing() -> None:
    vocabulary = with_specials()
    healer = TokenHealer(vocabulary, b"")

    assert healer.done
    assert healer.consume(0) == 0
    assert healer.constraint().hi == len(vocabulary.sorted_ids)


def test_h3_apply_gathers_raw_logits_of_exactly_the_allowed_tokens() -> None:
    vocabulary, _ = byte_level()
    logits = np.arange(vocabulary.n_vocab, dtype=np.float32)

    for pending in (b" userNa", b" ", b"\n  ", b"\xe6"):
        constraint = TokenHealer(vocabulary, pending).constraint()
        ids, values = constraint.apply(logits, vocabulary)
        allowed = [i for i in range(vocabulary.n_vocab) if constraint.allows(i)]
        assert sorted(ids.tolist()) == allowed
        assert values.tolist() == [float(i) for i in ids.tolist()]
