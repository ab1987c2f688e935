"""What is taken for canonical is what the tokenizer makes.

N1 and N2 are the invariants of `healing/canonical.py`; the oracle is the tokenizer, asked again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import suture.healing
from support.text import TRICKY_TEXTS, code_texts
from support.vocab import byte_level, sentencepiece_like, with_specials
from support.vocabularies import pulled
from suture.healing import (
    CanonicalPairs,
    Encode,
    TokenKind,
    Vocabulary,
    is_canonical,
    reference,
)
from suture.healing.merges import Merges
from suture.healing.pretokenizer import Pretokenizer
from suture.healing.seams import Seams
from suture.server.engine.tokenizer import LlamaTokenizer

NAMES = [
    *("vocab-qwen2", "vocab-llama-bpe", "vocab-starcoder", "vocab-deepseek-coder", "vocab-gpt-2"),
    *("vocab-phi-3", "vocab-llama-spm", "vocab-falcon", "vocab-gpt-neox"),
]
SOURCES = sorted(Path(suture.healing.__file__).parent.glob("*.py"))
CONTINUATIONS = [
    text.encode()
    for text in ("", "a", " ", "\n", ".", " a", "0", "00", "  ", "s", "é", "我", "\t", "()", "'")
]
ATOMS = [
    *(
        "user",
        "Name",
        "return",
        "é",
        "我很",
        " ",
        "  ",
        "    ",
        "\n",
        "\r\n",
        "\t",
        "\n\n",
        "\u00a0",
    ),
    *(
        "(",
        ")",
        ":",
        "'",
        ".",
        "/",
        "//",
        "_",
        "=",
        "0",
        "12",
        "345",
        "'s",
        "'re",
        "don't",
        "x",
        "s",
    ),
]


# Merges


@st.composite
def merge_tables(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Merges of pieces that earlier merges made, in any order, some of them twice."""
    pieces = [b"a", b"b", b"c"]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(1, 12))):
        pair = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        merges.append(pair)
        pieces.append(pair[0] + pair[1])
    return draw(st.permutations(merges)) if draw(st.booleans()) else merges


@given(merges=merge_tables(), data=st.data())
def test_neighbours_are_kept_apart_as_merging_both_at_once_does(
    merges: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    pieces = list(dict.fromkeys([b"a", b"b", b"c", *(left + right for left, right in merges)]))
    ids = {piece: token_id for token_id, piece in enumerate(pieces)}
    rows = np.array([(ids[a], ids[b], ids[a + b]) for a, b in merges], np.int32)
    byte_ids = [ids.get(bytes([byte]), -1) for byte in range(256)]
    table = Merges(rows, byte_ids, pieces.__getitem__, len(pieces))
    left, right = data.draw(st.sampled_from(pieces)), data.draw(st.sampled_from(pieces))

    assert table.make(ids[left]) == (reference.merged(left, merges) == [left])
    apart = reference.merged(left + right, merges) == [left, right]
    assert table.keep_apart(ids[left], ids[right]) == apart
    merged = [pieces[token_id] for token_id in table.merged(left + right)]
    assert merged == reference.merged(left + right, merges)


def test_a_byte_that_no_token_has_merges_with_nothing() -> None:
    """Nor where its pair would have the number of another one, a and c."""
    rows = np.array([(0, 2, -1)], np.int32)
    byte_ids = [b"abc".find(bytes([byte])) for byte in range(256)]
    table = Merges(rows, byte_ids, [b"a", b"b", b"c"].__getitem__, 3)

    assert table.merged(b"bx") == [1, -1]
    assert table.merged(b"xb") == [-1, 1]


# Toy vocabularies


@pytest.mark.parametrize("family", ["qwen2", "gpt-2", "deepseek-coder", "gpt-4o", "llama-bpe"])
@settings(max_examples=40)
@given(text=code_texts(), data=st.data())
def test_n1_n2_on_a_toy_vocabulary(family: str, text: str, data: st.DataObject) -> None:
    vocabulary, encode = toy(family)
    pairs = CanonicalPairs(vocabulary, encode)
    ids = encode(text.encode())
    check_canonical(pairs, ids, vocabulary)
    assert all(pairs.extends(ids[:n_left], ids[n_left]) for n_left in range(len(ids)))
    rows = st.integers(0, vocabulary.n_vocab - 1)
    check_pair(pairs, data.draw(rows), data.draw(rows), vocabulary, encode)


@pytest.mark.parametrize("family", ["gpt-2", "starcoder", "falcon"])
def test_n1_a_character_that_is_not_there_yet_may_be_the_last_of_some_blanks(family: str) -> None:
    """U+2028 before a letter, in GPT-2: ``' \\u2028x'`` is split before it."""
    seams = Seams(Pretokenizer(family))
    blank, unfinished = b" ", "\u2028".encode()[:2]

    assert seams.between(blank, unfinished).may_split
    layouts = seams.layouts(blank + unfinished)
    assert layouts is not None and any(len(blank) in splits for splits in layouts)


@settings(max_examples=40)
@given(text=code_texts(), data=st.data())
def test_n1_n2_without_merges_or_a_known_family_the_tokenizer_is_asked(
    text: str, data: st.DataObject
) -> None:
    """SentencePiece's tokenizer reads a space before every text but must not here."""
    vocabulary, encode = sentencepiece_like()
    assume("\u00a0" not in text)
    pairs = CanonicalPairs(vocabulary, encode)
    check_canonical(pairs, encode(text.encode()), vocabulary)
    rows = st.sampled_from(vocabulary.sorted_ids.tolist())
    check_pair(pairs, data.draw(rows), data.draw(rows), vocabulary, encode)


def toy(family: str) -> tuple[Vocabulary, Encode]:
    return TOYS.setdefault(family, byte_level(family))


TOYS: dict[str, tuple[Vocabulary, Encode]] = {}


def check_canonical(pairs: CanonicalPairs, ids: Sequence[int], vocabulary: Vocabulary) -> None:
    """No two neighbours of a tokenized text are refused."""
    refused = [(a, b) for a, b in pairwise(ids) if not pairs.is_pair(a, b)]
    assert [tuple(map(vocabulary.bytes_of, pair)) for pair in refused] == []


def check_pair(
    pairs: CanonicalPairs, left: int, right: int, vocabulary: Vocabulary, encode: Encode
) -> None:
    """A pair that is right by itself is taken; another one only if what is around it decides."""
    data = vocabulary.bytes_of(left) + vocabulary.bytes_of(right)
    if is_text(data):
        alone = is_canonical([left, right], vocabulary, encode)
        taken = pairs.is_pair(left, right)
        depends = pairs.depends(left, right)
        assert taken if alone else not taken or depends, (data, taken, depends)


def is_text(data: bytes) -> bool:
    return not data.decode("utf-8", "replace").count("\ufffd")


# Real vocabularies


class Real:
    """A vocabulary, and its tokenizer reading texts as they stand."""

    def __init__(self, path: Path) -> None:
        self.vocabulary = Vocabulary.from_gguf(path)
        self._tokenizer = LlamaTokenizer(path)
        self._anchor = b"\x01" if self.vocabulary.model == "llama" else b""
        self._n_anchor = len(self._tokenizer.encode(self._anchor)) if self._anchor else 0
        self.pairs = CanonicalPairs(self.vocabulary, self._tokenizer.encode)
        self.close = self._tokenizer.close

    def encode(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(self._anchor + text)[self._n_anchor :]

    def encode_as_it_is(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text)


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest, model_store: Path) -> Iterator[Real]:
    loaded = Real(pulled([request.param], model_store)[request.param])
    yield loaded
    loaded.close()


@pytest.mark.model
def test_n1_no_neighbours_of_a_real_text_are_refused(real: Real, model_store: Path) -> None:
    texts = [path.read_bytes()[:6000] for path in SOURCES]
    texts += [text.encode() for text in TRICKY_TEXTS.values()]
    texts += [pulled(["vocab-qwen2.inp"], model_store)["vocab-qwen2.inp"].read_bytes()]
    for text in texts:
        ids = real.encode(text)
        check_canonical(real.pairs, ids, real.vocabulary)
        beginning = ids[:40]
        for n_left, token_id in enumerate(beginning):
            assert real.pairs.extends(beginning[:n_left], token_id), (text[:40], n_left)


@pytest.mark.model
def test_n2_random_pairs_are_what_the_tokenizer_makes_of_them(real: Real) -> None:
    choose = partial(random.Random(0).choice, real.vocabulary.sorted_ids.tolist())
    n_taken = 0
    for _ in range(1000):
        left, right = choose(), choose()
        check_pair(real.pairs, left, right, real.vocabulary, real.encode_as_it_is)
        n_taken += real.pairs.is_pair(left, right)
    assert 0 < n_taken < 1000


@pytest.mark.model
def test_n2_what_goes_on_with_a_text_is_what_some_continuation_is_tokenized_to(real: Real) -> None:
    """With all that stands on the left since the last split; candidates are mostly short."""
    vocabulary, rng = real.vocabulary, random.Random(1)
    short = [i for i in vocabulary.sorted_ids.tolist() if len(vocabulary.bytes_of(i)) <= 3]
    telling = [i for i in short if not vocabulary.bytes_of(i).isalpha()]
    n_taken = n_refused = 0
    for _ in range(120):
        text = "".join(rng.choices(ATOMS, k=rng.randrange(6)))
        left = real.encode(text.encode())
        for token_id in [*rng.choices(short, k=2), *rng.choices(telling, k=4)]:
            ids = [*left, token_id]
            if not is_text(b"".join(map(vocabulary.bytes_of, ids))):
                continue
            may = reference.may_go_on(ids, vocabulary, real.encode, CONTINUATIONS)
            assert real.pairs.extends(left, token_id) == may, list(map(vocabulary.bytes_of, ids))
            n_taken, n_refused = n_taken + may, n_refused + (not may)
    assert n_taken > 200
    assert n_refused > 20


# Other rows


def test_control_and_added_tokens_are_barriers_and_unused_rows_never_follow() -> None:
    vocabulary = with_specials()
    pairs = CanonicalPairs(vocabulary, lambda text: [2 if text == b"a" else 3])
    end, unknown, a, tool, gap, padding = 0, 1, 2, 5, 7, 12

    assert pairs.is_pair(a, end) and pairs.is_pair(a, tool) and pairs.is_pair(end, tool)
    assert pairs.is_pair(end, a) and pairs.extends((), a) and pairs.extends((a, end), a)
    assert not pairs.is_pair(a, gap) and not pairs.is_pair(gap, a)
    assert not pairs.is_pair(a, unknown) and not pairs.is_pair(a, padding)
    for outside in (-1, -2, vocabulary.n_vocab):
        for left, right in ((a, outside), (outside, a)):
            with pytest.raises(IndexError):
                pairs.is_pair(left, right)


def test_two_tokens_that_spell_an_added_one_are_refused() -> None:
    rows = np.zeros((0, 3), np.int32)
    given = Vocabulary(
        [b"<", b"t>", b"<t>", b"t", b">"],
        kinds=[*[TokenKind.NORMAL] * 2, TokenKind.USER_DEFINED, *[TokenKind.NORMAL] * 2],
        model="gpt2",
        pretokenizer="qwen2",
        merges=lambda: rows,
    )
    pairs = CanonicalPairs(given, lambda text: [2] if text == b"<t>" else [])

    assert not pairs.is_pair(0, 1)
    assert pairs.is_pair(0, 2)


def test_no_more_pairs_are_remembered_than_said() -> None:
    vocabulary, encode = toy("qwen2")
    few, many = CanonicalPairs(vocabulary, encode, max_cached=5), CanonicalPairs(vocabulary, encode)
    ids = encode(" ".join(TRICKY_TEXTS.values()).encode())

    for left, right in pairwise(ids):
        assert few.is_pair(left, right) == many.is_pair(left, right)
        assert few.n_cached <= 5
    assert many.n_cached == len(set(pairwise(ids)))


def test_blanks_behind_a_line_feed_are_learnt_without_asking_the_tokenizer() -> None:
    vocabulary, encode = toy("qwen2")
    learnt, asked = CanonicalPairs(vocabulary, encode), CanonicalPairs(vocabulary, encode)
    learnt.learn_blanks()
    n_learnt = learnt.n_cached
    [line_feed] = vocabulary.ids_of(b"\n")
    blanks = [i for i in range(vocabulary.n_vocab) if vocabulary.bytes_of(i).isspace()]

    assert n_learnt == len(blanks) > 2
    for token_id in blanks:
        assert learnt.is_pair(line_feed, token_id) == asked.is_pair(line_feed, token_id)
    assert learnt.n_cached == n_learnt

    def refuse(piece: bytes) -> list[int]:
        raise AssertionError(piece)

    without_merges, _ = sentencepiece_like()
    CanonicalPairs(without_merges, refuse).learn_blanks()
