"""Covers and their posterior, on vocabularies small enough to follow by eye."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from support.vocab import of_pieces, with_specials
from suture.healing import (
    ROOT,
    CanonicalPairs,
    Cover,
    CoverTree,
    HealingError,
    LeftOut,
    Posterior,
    TokenKind,
    Vocabulary,
    cover_tree,
    log_softmax_row,
)

Row = npt.NDArray[np.float64]

# userNa| with one token for userName, and letters enough to spell it in pieces.
PIECES = [b"user", b"Na", b"me", b"Name", b"userName", b"N", b"a", b"tive", b"Native"]
USER, NA, ME, NAME, USER_NAME, N, A, TIVE, NATIVE, END = range(10)
PENDING = b"userNa"


def words() -> Vocabulary:
    return Vocabulary(
        [*PIECES, b"<end>"],
        kinds=[*[TokenKind.NORMAL] * len(PIECES), TokenKind.CONTROL],
        n_vocab=12,
        eos_id=END,
        eog_ids=frozenset({END}),
    )


def row(probs: Mapping[int, float], n_vocab: int = 12) -> Row:
    values = np.full(n_vocab, -np.inf)
    for token_id, prob in probs.items():
        values[token_id] = math.log(prob)
    return values


def posterior(
    tree: CoverTree, rows: Mapping[int, Row], vocabulary: Vocabulary | None = None
) -> Posterior:
    return Posterior(tree, rows, vocabulary or words(), None, {END})


def probabilities(of: Posterior) -> dict[Cover, float]:
    weights = np.exp(of.log_weights - of.log_evidence)
    return {of.cover(n): float(weight) for n, weight in enumerate(weights) if weight > 0.0}


def test_one_token_crosses_from_the_root_others_from_inner_nodes() -> None:
    tree = cover_tree(PENDING, (), words(), None)
    paths = {tree.path(node): node for node in tree.wants}

    assert paths.keys() == {(), (USER,), (USER, NA), (USER, N), (USER, N, A)}
    assert [tree.path(node) for node in tree.exact_ends] == [(USER, NA), (USER, N, A)]
    assert tree.wants[0] == ROOT and tree.end_of(ROOT) == 0
    assert tree.end_of(paths[(USER,)]) == len(b"user")
    assert len(tree.crossing[0]) == 1 and len(tree.crossing[paths[(USER,)] + 1]) == 2
    assert not tree.left_out and not tree.is_filtered


def test_a_weight_is_the_joint_probability_of_the_path() -> None:
    tree = cover_tree(PENDING, (), words(), None, max_nodes=2)
    user, na = tree.exact_ends[0] - 1, tree.exact_ends[0]
    weighed = posterior(
        tree,
        {
            ROOT: row({USER_NAME: 0.5, USER: 0.4, ME: 0.1}),
            user: row({NAME: 0.25, NATIVE: 0.25, NA: 0.5}),
            na: row({TIVE: 0.5, END: 0.5}),
        },
    )

    assert math.isclose(weighed.log_evidence, math.log(0.9))
    expected = {
        Cover(ROOT, USER_NAME, b"me"): 0.5 / 0.9,
        Cover(user, NAME, b"me"): 0.1 / 0.9,
        Cover(user, NATIVE, b"tive"): 0.1 / 0.9,
        Cover(na, None, b""): 0.2 / 0.9,
    }
    found = probabilities(weighed)
    assert found.keys() == expected.keys()
    assert all(math.isclose(found[cover], expected[cover]) for cover in expected)
    # N was left out, but has no probability.
    assert tree.left_out == (LeftOut(user, N),) and weighed.tv_bound == 0.0


def test_greedy_adds_up_what_reads_the_same_and_then_goes_on_behind_the_exact_end() -> None:
    tree = cover_tree(PENDING, (), words(), None, max_nodes=2)
    user, na = 0, 1
    weighed = posterior(
        tree,
        {
            ROOT: row({USER_NAME: 0.2, USER: 0.8}),
            user: row({NAME: 0.25, NATIVE: 0.35, NA: 0.4}),
            na: row({TIVE: 0.3, A: 0.5, END: 0.2}),
        },
    )

    groups = list(weighed.best_groups())

    assert [(group.overhang, group.next_id) for group in groups] == [
        (b"me", None),
        (b"tive", None),
        (b"a", A),
        (b"", END),
    ]
    # me: 0.2 and 0.2; tive: 0.28, as the exact end is in the group of its best next token.
    masses = [round(math.exp(group.log_weight), 3) for group in groups]
    assert masses == [0.4, 0.28, 0.16, 0.064]
    assert groups[2].cover == Cover(na, None, b"")


def test_what_the_budget_leaves_out_counts_by_its_first_token() -> None:
    tree = cover_tree(PENDING, (), words(), None, max_nodes=2)
    weighed = posterior(
        tree,
        {
            ROOT: row({USER_NAME: 0.2, USER: 0.8}),
            0: row({NAME: 0.5, NA: 0.3, N: 0.2}),
            1: row({END: 1.0}),
        },
    )

    # 0.2 + 0.4 + 0.24 are there, 0.16 are not.
    assert math.isclose(weighed.tv_bound, 0.16)


def test_nodes_without_a_row_are_left_out_and_the_exact_end_is_taken_whole() -> None:
    tree = cover_tree(PENDING, (), words(), None)
    only_root = posterior(tree, {ROOT: row({USER_NAME: 0.75, USER: 0.25})})
    assert list(probabilities(only_root)) == [Cover(ROOT, USER_NAME, b"me")]
    assert math.isclose(only_root.tv_bound, 0.25)

    short = cover_tree(PENDING, (), words(), None, max_nodes=2)
    no_end = posterior(short, {ROOT: row({USER: 1.0}), 0: row({NAME: 0.5, NA: 0.5})})
    assert probabilities(no_end)[Cover(1, None, b"")] == pytest.approx(0.5)
    assert math.isclose(no_end.tv_bound, 0.5)


def test_the_exact_end_is_kept_however_small_the_budget() -> None:
    for max_nodes in (0, 1, 2, 3):
        tree = cover_tree(PENDING, (), words(), None, max_nodes)
        assert tree.path(tree.exact_ends[0]) == (USER, NA)
        assert len(tree.tokens) <= max(2, max_nodes)


def test_nothing_pending_is_an_exact_end_at_the_root() -> None:
    tree = cover_tree(b"", (USER,), words(), None)
    weighed = posterior(tree, {ROOT: row({NA: 0.75, END: 0.25})})

    assert tree.wants == tree.exact_ends == (ROOT,)
    assert probabilities(weighed) == {Cover(ROOT, None, b""): 1.0}
    group = next(weighed.best_groups())
    assert (group.overhang, group.cover, group.next_id) == (b"Na", Cover(ROOT, None, b""), NA)


def test_bytes_that_no_tokens_spell_are_an_error() -> None:
    with pytest.raises(HealingError):
        cover_tree(b"userX", (), words(), None)


def test_where_the_cursor_is_inside_what_only_longer_tokens_spell_there_is_no_exact_end() -> None:
    """As inside a character of a vocabulary without single bytes."""
    vocabulary = of_pieces(["我".encode(), "很".encode()])
    tree = cover_tree("我".encode()[:2], (), vocabulary, None)

    assert tree.exact_ends == () and len(tree.crossing[0]) == 1
    weighed = Posterior(tree, {ROOT: row({0: 0.5, 1: 0.5}, 2)}, vocabulary, None)
    assert probabilities(weighed) == {Cover(ROOT, 0, "我".encode()[2:]): 1.0}


def test_all_ids_of_a_piece_are_covers_and_read_the_same() -> None:
    vocabulary = of_pieces([b"ab", b"ab", b"ac"])
    tree = cover_tree(b"a", (), vocabulary, None)
    weighed = Posterior(tree, {ROOT: row({0: 0.3, 1: 0.3, 2: 0.4}, 3)}, vocabulary, None)

    assert len(weighed) == 3
    best = next(weighed.best_groups())
    assert best.overhang == b"b" and math.isclose(math.exp(best.log_weight), 0.6)


def test_specials_and_padding_neither_cross_nor_follow() -> None:
    """Nor does `<tool_call>` for a typed `<`, but it may come after one."""
    vocabulary = with_specials()
    end, unknown, tool, less, padding = 0, 1, 5, 8, 13
    tree = cover_tree(b"<", (), vocabulary, None)
    (node,) = tree.exact_ends
    probs = {end: 0.1, unknown: 0.2, tool: 0.3, padding: 0.4}
    rows = {ROOT: row({less: 0.5, tool: 0.5}, 16), node: row(probs, 16)}
    weighed = Posterior(tree, rows, vocabulary, None, {end})

    assert math.isclose(weighed.log_evidence, math.log(0.5 * 0.4))
    follow = [i for i in range(16) if weighed.may_follow(node, i)]
    assert end in follow and tool in follow
    assert not {unknown, padding} & set(follow)


def test_refused_covers_weigh_nothing_from_then_on() -> None:
    """Merging makes `ab` of `a` and `b`, so nothing crosses from `a` with `b`."""
    rows = np.array([(0, 1, 2)], np.int32)
    vocabulary = Vocabulary([b"a", b"b", b"ab", b"bb"], pretokenizer="qwen2", merges=lambda: rows)
    pairs = CanonicalPairs(vocabulary, lambda text: [])
    free = cover_tree(b"ab", (), vocabulary, None)
    filtered = cover_tree(b"ab", (), vocabulary, pairs)

    assert {free.path(node) for node in free.exact_ends} == {(0, 1), (2,)}
    assert [filtered.path(node) for node in filtered.wants] == [(), (2,)]
    rows_of = {ROOT: row({0: 0.5, 2: 0.5}, 4), 0: row({0: 0.5, 1: 0.5}, 4)}
    weighed = Posterior(filtered, rows_of, vocabulary, pairs)
    assert weighed.may_follow(0, 0) and math.isclose(weighed.log_evidence, math.log(0.5))


def test_kept_tokens_that_are_not_canonical_themselves_do_not_leave_nothing() -> None:
    rows = np.array([(0, 1, 2)], np.int32)
    vocabulary = Vocabulary([b"a", b"b", b"ab"], pretokenizer="qwen2", merges=lambda: rows)
    pairs = CanonicalPairs(vocabulary, lambda text: [])

    tree = cover_tree(b"b", (0,), vocabulary, pairs)

    assert tree.exact_ends and not tree.is_filtered


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_softmax_adds_up_to_one(dtype: type[np.float32]) -> None:
    logits = (np.random.default_rng(0).normal(size=5000) * 30.0).astype(dtype)
    logits[::3] = -np.inf
    given = logits.copy()

    log_probs = log_softmax_row(logits)

    assert log_probs.dtype == dtype and (logits == given).all()
    assert math.isclose(np.exp(log_probs, dtype=np.float64).sum(), 1.0, abs_tol=1e-5)
    assert (log_probs[::3] == -np.inf).all()


@pytest.mark.parametrize("bad", [[-math.inf, -math.inf], [0.0, math.nan], [0.0, math.inf]])
def test_a_row_without_a_highest_logit_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="highest"):
        log_softmax_row(np.array(bad))


def test_covers_without_any_probability_are_an_error() -> None:
    tree = cover_tree(PENDING, (), words(), None)
    with pytest.raises(HealingError):
        posterior(tree, {ROOT: row({ME: 1.0})})
