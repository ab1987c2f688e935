"""What cannot work is defined, and told where it is given."""

import numpy as np
import pytest

from suture.healing import (
    Detokenizer,
    HealingError,
    TokenHealer,
    TokenKind,
    TokenTransducer,
    Vocabulary,
    coverable,
    fixed_boundary,
    stable_boundary,
    uncut_boundary,
)

NEVER_UTF8 = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80\x80"]
BYTES = Vocabulary([bytes([byte]) for byte in range(256)])


@pytest.mark.parametrize("n_vocab", [0, 4])
def test_a_vocabulary_without_tokens_has_only_padding(n_vocab: int) -> None:
    vocabulary = Vocabulary([], n_vocab=n_vocab)

    assert [vocabulary.bytes_of(i) for i in range(n_vocab)] == [b""] * n_vocab
    assert vocabulary.silent_ids == tuple(range(n_vocab))
    assert (len(vocabulary.sorted_ids), vocabulary.max_piece_bytes) == (0, 0)
    assert not vocabulary.extending(b"a") and not vocabulary.extending(b"")
    assert vocabulary.proper_prefixes(b"ab").tolist() == []
    assert vocabulary.ids_of(b"") == ()


def test_a_vocabulary_without_tokens_heals_nothing() -> None:
    vocabulary = Vocabulary([], n_vocab=4)

    assert not coverable(vocabulary, b"a")
    with pytest.raises(HealingError, match="no tokens"):
        TokenHealer(vocabulary, b"a")
    assert TokenHealer(vocabulary, b"").done
    assert stable_boundary(b"", lambda _: [], vocabulary).pending == b""


@pytest.mark.parametrize("token_id", [-1, 256, 2**31, -(2**31)])
def test_ids_out_of_range_are_errors_everywhere(token_id: int) -> None:
    for read in (BYTES.bytes_of, BYTES.text_of, BYTES.kind_of, BYTES.is_special):
        with pytest.raises(IndexError):
            read(token_id)
    healer = TokenHealer(BYTES, b"a")
    assert not healer.constraint().allows(token_id)
    with pytest.raises(HealingError):
        healer.consume(token_id)
    with pytest.raises(IndexError):
        Detokenizer(TokenTransducer(BYTES)).feed(token_id)


@pytest.mark.parametrize("hopeless", NEVER_UTF8)
def test_bytes_that_never_are_utf8_pass_through_the_boundary_and_the_healer(
    hopeless: bytes,
) -> None:
    segment = b"ab " + hopeless

    for boundary in (
        stable_boundary(segment, list, BYTES),
        fixed_boundary(segment, 2, list, BYTES),
        uncut_boundary(segment, list, BYTES),
    ):
        assert bytes(boundary.kept_ids) + boundary.pending == segment
    healer = TokenHealer(BYTES, hopeless)
    for byte in hopeless:
        assert healer.constraint().allows(byte)
        healer.consume(byte)
    assert healer.done


def test_a_piece_with_many_ids_heals_by_any_of_them() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"a", b"a"])
    constraint = TokenHealer(vocabulary, b"a").constraint()

    ids, logits = constraint.apply(np.arange(4, dtype=np.float32), vocabulary)

    assert sorted(ids.tolist()) == [0, 2, 3]
    assert sorted(logits.tolist()) == [0.0, 2.0, 3.0]
    assert vocabulary.ids_of(b"a") == (0, 2, 3)


@pytest.mark.parametrize("token_id", [-1, 256])
def test_an_id_out_of_range_is_named_with_its_limit(token_id: int) -> None:
    with pytest.raises(IndexError, match=f"{token_id} is (negative|not below 256)"):
        BYTES.bytes_of(token_id)


def test_arguments_that_make_no_sense_are_refused_where_they_are_given() -> None:
    transducer = TokenTransducer(BYTES)

    with pytest.raises(TypeError, match="sequence"):
        TokenTransducer(BYTES, "END")
    with pytest.raises(ValueError, match="hide"):
        TokenTransducer(BYTES, special_tokens="hide")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep"):
        Detokenizer(transducer, on_incomplete="keep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        Detokenizer(transducer, skip_bytes=-1)
    with pytest.raises(ValueError, match="negative"):
        Detokenizer(transducer, min_tokens=-4)
    with pytest.raises(ValueError, match="-1 tokens"):
        fixed_boundary(b"ab", -1, list, BYTES)
    with pytest.raises(ValueError, match="1 kinds for 2 tokens"):
        Vocabulary([b"a", b"b"], kinds=[TokenKind.NORMAL])
