"""C1 to C3: the covers of pending bytes and their posterior, against enumeration.

The oracle is `reference.cover_masses`. On the vocabulary of random merges it asks the tokenizer
itself what is canonical; elsewhere the pairs, of which `test_canonical.py` has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.text import byte_strings, code_texts
from support.vocab import byte_level, sentencepiece_like, with_specials, without_single_bytes
from suture.healing import (
    CanonicalPairs,
    CoverTree,
    Encode,
    HealingError,
    Posterior,
    TokenKind,
    Vocabulary,
    cover_tree,
    log_softmax_row,
    reference,
    stable_boundary,
)

Path = tuple[int, ...]
MayBegin = Callable[[Path], bool]
LogProb = Callable[[Path, int], float]
Row = npt.NDArray[np.float64]


class TableModel:
    """A random row for every token path, of which a few tokens are impossible."""

    def __init__(
        self, n_vocab: int, seed: int, spread: float = 3.0, impossible: float = 0.05
    ) -> None:
        self._n_vocab = n_vocab
        self._impossible = impossible
        self._seed = seed
        self._spread = spread
        self._rows: dict[Path, Row] = {}

    def row(self, path: Path) -> Row:
        if path not in self._rows:
            rng = np.random.default_rng([self._seed, *path])
            logits = rng.normal(size=self._n_vocab) * self._spread
            logits[rng.random(self._n_vocab) < self._impossible] = -np.inf
            self._rows[path] = log_softmax_row(logits)
        return self._rows[path]

    def log_prob(self, path: Path, token_id: int) -> float:
        return float(self.row(path)[token_id])

    def rows(self, tree: CoverTree) -> dict[int, Row]:
        return {node: self.row(tree.path(node)) for node in tree.wants}


def exact(
    tree: CoverTree, model: TableModel, vocabulary: Vocabulary, pairs: CanonicalPairs | None
) -> Posterior:
    """Nothing left out, all asked."""
    return Posterior(
        tree,
        model.rows(tree),
        vocabulary,
        pairs,
        vocabulary.eog_ids,
        max_asked=vocabulary.n_vocab + 1,
        max_unasked=-1.0,
    )


def weights(posterior: Posterior) -> dict[Path, float]:
    """Of all covers that are canonical and possible."""
    found: dict[Path, float] = {}
    for index in range(len(posterior)):
        cover = posterior.cover(index)
        ids = posterior.tree.path(cover.node)
        path = ids if cover.token_id is None else (*ids, cover.token_id)
        assert path not in found
        if posterior.is_canonical(index) and posterior.log_weights[index] > -np.inf:
            found[path] = math.exp(posterior.log_weights[index])
    return found


def possible(masses: dict[Path, float]) -> dict[Path, float]:
    return {path: mass for path, mass in masses.items() if mass > 0.0}


def normalised(masses: dict[Path, float]) -> dict[Path, float]:
    total = sum(masses.values())
    return {path: mass / total for path, mass in masses.items()}


def distance(left: dict[Path, float], right: dict[Path, float]) -> float:
    """Total variation."""
    one, two = normalised(left), normalised(right)
    return sum(abs(one.get(path, 0.0) - two.get(path, 0.0)) for path in {*one, *two}) / 2


def assert_same(found: dict[Path, float], expected: dict[Path, float]) -> None:
    expected = possible(expected)
    assert found.keys() == expected.keys()
    ours, theirs = normalised(found), normalised(expected)
    assert all(abs(ours[path] - theirs[path]) < 1e-12 for path in theirs)


# A tokenizer of random merges, which is asked itself


@st.composite
def merged_vocabularies(draw: st.DrawFn) -> tuple[Vocabulary, Encode]:
    """Three letters, random merges of them, an end of text and two rows of padding."""
    letters = [b"a", b"b", b"c"]
    pieces = list(letters)
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(1, 9))):
        left, right = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        if left + right not in pieces:
            merges.append((left, right))
            pieces.append(left + right)
    ids = {piece: token_id for token_id, piece in enumerate(pieces)}
    rows = np.array([(ids[a], ids[b], ids[a + b]) for a, b in merges], np.int32).reshape(-1, 3)
    end_id = len(pieces)
    vocabulary = Vocabulary(
        [*pieces, b"<end>"],
        kinds=[*[TokenKind.NORMAL] * len(pieces), TokenKind.CONTROL],
        n_vocab=len(pieces) + 3,
        eos_id=end_id,
        eog_ids=frozenset({end_id}),
        pretokenizer="qwen2",
        merges=lambda: rows,
    )
    return vocabulary, lambda text: [ids[piece] for piece in reference.merged(text, merges)]


def made_by(encode: Encode, vocabulary: Vocabulary, left_ids: Path) -> MayBegin:
    """Whether these tokens behind `left_ids` are what the tokenizer makes of their bytes."""

    def may_begin(path: Path) -> bool:
        ids = (*left_ids, *path)
        return tuple(encode(b"".join(map(vocabulary.bytes_of, ids)))) == ids

    return may_begin


@settings(max_examples=150)
@given(
    tokenizer=merged_vocabularies(),
    pending=st.text("abc", max_size=5),
    before=st.text("abc", max_size=3),
    seed=st.integers(0, 2**16),
)
def test_c1_the_posterior_equals_enumeration_by_the_tokenizer(
    tokenizer: tuple[Vocabulary, Encode], pending: str, before: str, seed: int
) -> None:
    vocabulary, encode = tokenizer
    segment = (before + pending).encode()
    boundary = stable_boundary(segment, encode, vocabulary)
    model = TableModel(vocabulary.n_vocab, seed)
    pairs = CanonicalPairs(vocabulary, encode)
    may_begin = made_by(encode, vocabulary, boundary.kept_ids)

    expected = reference.cover_masses(
        boundary.pending, vocabulary, may_begin, model.log_prob, vocabulary.eog_ids
    )
    assume(possible(expected))

    tree = cover_tree(boundary.pending, boundary.kept_ids, vocabulary, pairs)
    posterior = exact(tree, model, vocabulary, pairs)

    found = weights(posterior)
    assert tree.is_filtered and not tree.left_out and tree.exact_ends
    assert_same(found, expected)
    assert math.isclose(posterior.log_evidence, math.log(sum(expected.values())), abs_tol=1e-9)
    assert posterior.tv_bound == 0.0


@settings(max_examples=80)
@given(
    tokenizer=merged_vocabularies(), pending=st.text("abc", max_size=5), seed=st.integers(0, 2**16)
)
def test_c1_without_the_filter_it_is_that_of_all_segmentations(
    tokenizer: tuple[Vocabulary, Encode], pending: str, seed: int
) -> None:
    vocabulary, _ = tokenizer
    model = TableModel(vocabulary.n_vocab, seed)

    expected = reference.cover_masses(
        pending.encode(), vocabulary, lambda path: True, model.log_prob, vocabulary.eog_ids
    )
    assume(possible(expected))

    tree = cover_tree(pending.encode(), (), vocabulary, None, max_nodes=1000)
    posterior = exact(tree, model, vocabulary, None)

    assert not tree.is_filtered and not tree.left_out
    assert_same(weights(posterior), expected)
    assert posterior.tv_bound == 0.0


@settings(max_examples=200)
@given(
    tokenizer=merged_vocabularies(),
    pending=st.text("abc", min_size=1, max_size=5),
    seed=st.integers(0, 2**16),
    data=st.data(),
)
def test_c2_the_bound_is_not_below_the_distance(
    tokenizer: tuple[Vocabulary, Encode], pending: str, seed: int, data: st.DataObject
) -> None:
    vocabulary, encode = tokenizer
    model = TableModel(vocabulary.n_vocab, seed, data.draw(st.sampled_from([0.5, 2.0, 6.0])))
    is_filtered = data.draw(st.booleans())
    pairs = CanonicalPairs(vocabulary, encode) if is_filtered else None
    may_begin = made_by(encode, vocabulary, ()) if is_filtered else lambda path: True
    tree = cover_tree(pending.encode(), (), vocabulary, pairs, data.draw(st.integers(1, 6)))
    without_row = data.draw(st.sets(st.sampled_from([*range(len(tree.tokens)), len(tree.tokens)])))
    rows = {node: row for node, row in model.rows(tree).items() if node not in without_row}
    try:
        posterior = Posterior(
            tree,
            rows,
            vocabulary,
            pairs,
            vocabulary.eog_ids,
            max_gathered=data.draw(st.sampled_from([0, 2, 100])),
            threshold=data.draw(st.sampled_from([-8.0, -3.0, -1.0])),
            max_below=data.draw(st.sampled_from([0.1, 10.0, math.inf])),
            max_asked=data.draw(st.integers(1, 5)),
        )
    except HealingError:
        return
    bound = posterior.tv_bound

    expected = reference.cover_masses(
        pending.encode(), vocabulary, may_begin, model.log_prob, vocabulary.eog_ids
    )
    if not possible(expected):
        return
    found = weights(posterior)
    assert bound >= (distance(found, expected) if found else 1.0) - 1e-9
    assert 0.0 <= posterior.tv_bound <= 1.0
    nothing_missing = found.keys() == possible(expected).keys()
    assert bound > 0.0 or nothing_missing


@settings(max_examples=150)
@given(
    tokenizer=merged_vocabularies(), pending=st.text("abc", max_size=5), seed=st.integers(0, 2**16)
)
def test_c3_greedy_takes_the_heaviest_overhang_and_then_the_next(
    tokenizer: tuple[Vocabulary, Encode], pending: str, seed: int
) -> None:
    vocabulary, encode = tokenizer
    model = TableModel(vocabulary.n_vocab, seed)
    pairs = CanonicalPairs(vocabulary, encode)
    expected = reference.overhang_masses(
        pending.encode(),
        vocabulary,
        made_by(encode, vocabulary, ()),
        model.log_prob,
        vocabulary.eog_ids,
    )
    assume(any(expected.values()))

    tree = cover_tree(pending.encode(), (), vocabulary, pairs)
    groups = list(exact(tree, model, vocabulary, pairs).best_groups())

    best = max(expected, key=expected.__getitem__)
    assert groups[0].overhang == best
    assert math.isclose(math.exp(groups[0].log_weight), expected[best], rel_tol=1e-9)
    overhangs = [group.overhang for group in groups]
    assert len(set(overhangs)) == len(overhangs)
    # What an exact end goes on to is not heavier than what it was passed over with.
    falling = [group.log_weight for group in groups]
    assert falling == sorted(falling, reverse=True)
    # Whatever may come first at all is offered before the end.
    assert set(overhangs) >= {overhang for overhang, mass in expected.items() if mass > 0.0}
    for group in groups:
        piece = b"" if group.next_id is None else vocabulary.bytes_of(group.next_id)
        assert (group.cover.overhang or piece) == group.overhang
        assert (group.cover.token_id is None) == (group.next_id is not None)


# Other vocabularies, by their pairs


NAMES = ("byte-level", "sentencepiece", "no single bytes", "specials")


@cache
def encode_of(name: str) -> Encode:
    return (
        byte_level(n_merges=80)[1] if name == "byte-level" else sentencepiece_like(n_merges=60)[1]
    )


@cache
def toy(name: str) -> tuple[Vocabulary, CanonicalPairs | None]:
    match name:
        case "byte-level":
            vocabulary, encode = byte_level(n_merges=80)
        case "sentencepiece":
            vocabulary, encode = sentencepiece_like(n_merges=60)
        case "specials":
            return with_specials(), None
        case _:
            return without_single_bytes(), None
    return vocabulary, CanonicalPairs(vocabulary, encode)


def pending_bytes(vocabulary: Vocabulary, max_size: int) -> st.SearchStrategy[bytes]:
    """Some tokens' bytes, often cut short, sometimes bytes that fit nowhere."""
    pieces = st.sampled_from([vocabulary.bytes_of(i) for i in range(vocabulary.n_vocab)])
    spelled = st.lists(pieces, min_size=1, max_size=3).map(b"".join)
    cut = st.tuples(spelled, st.integers(0, 3)).map(lambda pair: pair[0][: len(pair[0]) - pair[1]])
    return st.one_of(cut, byte_strings(5)).map(lambda data: data[:max_size])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_c1_c3_hold_on_every_kind_of_vocabulary(name: str, data: st.DataObject, seed: int) -> None:
    vocabulary, pairs = toy(name)
    pending = data.draw(pending_bytes(vocabulary, 5))
    if data.draw(st.booleans()):
        pairs = None
    model = TableModel(vocabulary.n_vocab, seed, impossible=0.0)
    if not reference.is_coverable(vocabulary, pending):
        with pytest.raises(HealingError):
            cover_tree(pending, (), vocabulary, pairs)
        return
    tree = cover_tree(pending, (), vocabulary, pairs, max_nodes=1000)
    posterior = exact(tree, model, vocabulary, pairs)
    asked = pairs if tree.is_filtered else None

    def may_begin(path: Path) -> bool:
        return asked is None or asked.extends(path[:-1], path[-1])

    oracle = pending, vocabulary, may_begin, model.log_prob, vocabulary.eog_ids
    assert_same(weights(posterior), reference.cover_masses(*oracle))
    expected = reference.overhang_masses(*oracle)
    group = next(posterior.best_groups())
    assert math.isclose(math.exp(group.log_weight), max(expected.values()), rel_tol=1e-9)


@pytest.mark.parametrize("name", ["byte-level", "sentencepiece"])
@settings(max_examples=40)
@given(text=code_texts(), more=code_texts(), data=st.data())
def test_c1_the_exact_end_and_every_continuation_are_among_the_covers(
    name: str, text: str, more: str, data: st.DataObject
) -> None:
    """Wherever the cursor stands between characters; and behind whatever was typed before."""
    vocabulary, pairs = toy(name)
    encode = encode_of(name)
    assume("\u00a0" not in text + more)
    assert pairs is not None
    boundary = stable_boundary(text.encode(), encode, vocabulary)
    left_ids = boundary.kept_ids[-8:]
    tree = cover_tree(boundary.pending, left_ids, vocabulary, pairs, max_nodes=64)

    assert tree.exact_ends and tree.is_filtered
    continued = encode((text + more).encode())[len(boundary.kept_ids) :]
    covers = [n for n in range(len(continued) + 1) if is_cover(tree, tuple(continued[:n]), pairs)]
    assert len(covers) == 1


def is_cover(tree: CoverTree, path: Path, pairs: CanonicalPairs) -> bool:
    """Whether the tree has this token path for a cover, and its last token is not refused."""
    paths = {tree.path(node): node for node in tree.wants}
    if path in paths and paths[path] in tree.exact_ends:
        return True
    node = paths.get(path[:-1]) if path else None
    if node is None or not pairs.extends(tree.context(node), path[-1]):
        return False
    vocabulary, _ = next(pair for pair in map(toy, NAMES) if pair[1] is pairs)
    return bool(vocabulary.rank[path[-1]] in tree.crossing[node + 1])


@settings(max_examples=40)
@given(text=code_texts(), seed=st.integers(0, 2**16))
def test_what_was_typed_before_does_not_matter(text: str, seed: int) -> None:
    """Key by key with the same pairs, or all at once with new ones."""
    vocabulary, pairs = toy("byte-level")
    encode = encode_of("byte-level")
    model = TableModel(vocabulary.n_vocab, seed, impossible=0.0)
    new = CanonicalPairs(vocabulary, encode)

    def posterior(typed: str, asked: CanonicalPairs | None) -> tuple[CoverTree, dict[Path, float]]:
        boundary = stable_boundary(typed.encode(), encode, vocabulary)
        tree = cover_tree(boundary.pending, boundary.kept_ids[-8:], vocabulary, asked)
        rows = model.rows(tree)
        return tree, weights(Posterior(tree, rows, vocabulary, asked, vocabulary.eog_ids))

    for end in range(max(0, len(text) - 6), len(text)):
        posterior(text[:end], pairs)
    assert posterior(text, pairs) == posterior(text, new)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_no_random_input_gives_nan_or_an_empty_set(
    name: str, data: st.DataObject, seed: int
) -> None:
    vocabulary, pairs = toy(name)
    pending = data.draw(pending_bytes(vocabulary, 40))
    assume(reference.is_coverable(vocabulary, pending))
    model = TableModel(vocabulary.n_vocab, seed, data.draw(st.sampled_from([0.1, 5.0, 40.0])), 0.0)
    left_ids = data.draw(st.lists(st.sampled_from(vocabulary.sorted_ids.tolist()), max_size=3))

    tree = cover_tree(pending, left_ids, vocabulary, pairs, data.draw(st.integers(1, 20)))
    rows = {node: row.astype(np.float32) for node, row in model.rows(tree).items()}
    posterior = Posterior(
        tree,
        rows,
        vocabulary,
        pairs,
        vocabulary.eog_ids,
        max_gathered=data.draw(st.integers(0, 99)),
    )

    assert not np.isnan(posterior.log_weights).any()
    assert posterior.log_evidence <= 1e-3
    assert 0.0 <= posterior.tv_bound <= 1.0
    assert len(posterior.ask_best(5)) or not list(posterior.best_groups())
    for index in posterior.ask_best(5).tolist():
        cover = posterior.cover(index)
        ids = [*tree.path(cover.node), *([] if cover.token_id is None else [cover.token_id])]
        assert b"".join(map(vocabulary.bytes_of, ids)) == pending + cover.overhang


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_v2_what_spells_some_bytes_and_what_goes_on_equal_enumeration(
    name: str, data: st.DataObject
) -> None:
    vocabulary, _ = toy(name)
    pending = data.draw(pending_bytes(vocabulary, 12).filter(bool))
    equal = {i for i in vocabulary.ids_of(pending) if vocabulary.rank[i] >= 0}

    inner, crossing = vocabulary.spelling(pending)

    assert {i for i, _ in inner} == reference.proper_prefix_ids(vocabulary, pending) | equal
    assert all(len(vocabulary.bytes_of(i)) == length for i, length in inner)
    passing = vocabulary.sorted_ids[crossing.start : crossing.stop].tolist()
    assert set(passing) == reference.extending_ids(vocabulary, pending) - equal
