"""The invariants on the vocabularies of real models.

`real_vocabulary` gives a vocabulary and its tokenizer for each model of models.txt.
"""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import suture.healing
from support.text import TRICKY_TEXTS, code_texts
from suture.healing import (
    Detokenizer,
    Encode,
    TokenHealer,
    TokenTransducer,
    Vocabulary,
    fixed_boundary,
    reference,
    stable_boundary,
    uncut_boundary,
)

pytestmark = pytest.mark.model

Real = tuple[Vocabulary, Encode]
SOURCES = sorted(Path(suture.healing.__file__).parent.glob("*.py"))
TYPED = {
    "    retu": b" retu",
    "def is_palindro": b"palindro",
    "an intermed": b" intermed",
    "from collections impor": b" impor",
}
FORCED = "我很感谢你的热情 👩‍👩‍👧‍👦 မင်္ဂလာပါ"
RELAXED = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def spelled(vocabulary: Vocabulary, ids: tuple[int, ...]) -> bytes:
    return b"".join(map(vocabulary.bytes_of, ids))


@pytest.mark.parametrize("typed", TYPED)
def test_what_is_given_back_reaches_the_start_of_the_word(
    real_vocabulary: Real, typed: str
) -> None:
    vocabulary, encode = real_vocabulary

    boundary = stable_boundary(typed.encode(), encode, vocabulary)

    assert boundary.pending.endswith(TYPED[typed])
    assert boundary.dropped_tokens >= 2
    constraint = TokenHealer(vocabulary, boundary.pending).constraint()
    assert constraint.hi > constraint.lo or len(constraint.prefix_ids)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_b1_b2_random_cursors_in_real_code(real_vocabulary: Real, source: Path) -> None:
    vocabulary, encode = real_vocabulary
    whole = source.read_bytes()[:4000]
    whole = whole[: len(whole) - reference.incomplete_tail(whole)]
    ids = tuple(encode(whole))
    cursors = random.Random(source.name).sample(range(len(whole)), min(60, len(whole)))

    for cursor in cursors:
        boundary = stable_boundary(whole[:cursor], encode, vocabulary)
        assert spelled(vocabulary, boundary.kept_ids) + boundary.pending == whole[:cursor]
        assert ids[: len(boundary.kept_ids)] == boundary.kept_ids, whole[cursor - 20 : cursor]


@RELAXED
@given(text=code_texts(), more=code_texts())
def test_b2_holds_for_generated_continuations(real_vocabulary: Real, text: str, more: str) -> None:
    vocabulary, encode = real_vocabulary

    boundary = stable_boundary(text.encode(), encode, vocabulary)

    continued = tuple(encode((text + more).encode()))
    assert continued[: len(boundary.kept_ids)] == boundary.kept_ids


@pytest.mark.parametrize("text", TRICKY_TEXTS.values(), ids=TRICKY_TEXTS.keys())
def test_b1_b3_hold_at_every_byte(real_vocabulary: Real, text: str) -> None:
    vocabulary, encode = real_vocabulary
    data = text.encode()

    for end in range(max(0, len(data) - 30), len(data) + 1):
        for boundary in (
            stable_boundary(data[:end], encode, vocabulary),
            fixed_boundary(data[:end], 1, encode, vocabulary),
            uncut_boundary(data[:end], encode, vocabulary),
        ):
            assert spelled(vocabulary, boundary.kept_ids) + boundary.pending == data[:end]


@RELAXED
@given(text=code_texts(), seed=st.integers(0, 2**16))
def test_h2_any_allowed_path_spells_the_pending_bytes(
    real_vocabulary: Real, text: str, seed: int
) -> None:
    vocabulary, encode = real_vocabulary
    pending = stable_boundary(text.encode(), encode, vocabulary).pending
    healer, choose = TokenHealer(vocabulary, pending), random.Random(seed)
    generated = b""

    while not healer.done:
        constraint = healer.constraint()
        allowed = vocabulary.sorted_ids[constraint.lo : constraint.hi].tolist()
        token_id = choose.choice([*allowed, *constraint.prefix_ids.tolist()])
        assert constraint.allows(token_id)
        healer.consume(token_id)
        generated += vocabulary.bytes_of(token_id)

    assert generated.startswith(pending)


@pytest.mark.parametrize("text", [FORCED, *TRICKY_TEXTS.values()])
def test_t1_t5_t7_streamed_tokens_join_to_the_text(real_vocabulary: Real, text: str) -> None:
    vocabulary, encode = real_vocabulary
    detokenizer = Detokenizer(TokenTransducer(vocabulary))

    deltas = [detokenizer.feed(token_id) for token_id in encode(text.encode())]

    assert "".join(deltas) == text
    assert detokenizer.flush() == ""
    assert "".join(deltas).count("\ufffd") == text.count("\ufffd")


def test_v1_v2_rows_and_index_agree(real_vocabulary: Real) -> None:
    vocabulary, _ = real_vocabulary
    pieces = [vocabulary.bytes_of(token_id) for token_id in range(vocabulary.n_vocab)]

    assert len(vocabulary.rank) == vocabulary.n_vocab
    for token_id in vocabulary.eog_ids:
        assert pieces[token_id] == b""
        assert vocabulary.rank[token_id] == -1
    ordered = [pieces[token_id] for token_id in vocabulary.sorted_ids.tolist()]
    assert ordered == sorted(ordered)
    assert all(ordered)
    for token_id in random.Random(0).sample(range(vocabulary.n_vocab), 500):
        assert (token_id in vocabulary.ids_of(pieces[token_id])) == bool(pieces[token_id])
