"""Token trees: their shape, and how a long head is split off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.engine.tree import ROOT, TokenTree


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    n = draw(st.integers(1, 12))
    parents = tuple(draw(st.integers(ROOT, i - 1)) for i in range(n))
    wants = tuple(draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n)))
    return TokenTree(tuple(range(n)), parents, wants)


@given(trees())
def test_the_leaves_paths_cover_the_tree(tree: TokenTree) -> None:
    covered = {node for leaf in tree.leaves() for node in tree.path(leaf)}
    assert covered == set(range(len(tree)))


@given(trees())
def test_depth_is_the_length_of_the_path(tree: TokenTree) -> None:
    assert tree.depths() == [len(tree.path(node)) - 1 for node in range(len(tree))]


@given(trees(), st.data())
def test_what_is_left_after_some_trunk_keeps_every_path(
    tree: TokenTree, data: st.DataObject
) -> None:
    n_head = data.draw(st.integers(0, tree.trunk_length()))
    rest = tree.after(n_head)
    for node in range(n_head, len(tree)):
        path = [rest.tokens[i] for i in rest.path(node - n_head)]
        assert [*tree.tokens[:n_head], *path] == [tree.tokens[i] for i in tree.path(node)]
    assert [rest.tokens[i] for i in rest.wants] == [tree.tokens[i] for i in tree.wants]


@given(trees())
def test_the_trunk_is_unbranched_and_its_rows_unwanted(tree: TokenTree) -> None:
    n = tree.trunk_length()
    assert n < len(tree)
    assert not set(tree.wants) & set(range(n))
    assert all(tree.parents.count(node) == 1 for node in range(n))


def test_a_chains_trunk_is_all_but_its_last() -> None:
    assert TokenTree.chain([1, 2, 3]).trunk_length() == 2
    assert TokenTree.chain([1]).trunk_length() == 0


@given(trees())
def test_all_stands_on_the_stem_and_no_row_above_its_end_is_wanted(tree: TokenTree) -> None:
    stem = tree.stem()
    n = len(stem)
    assert stem.is_chain and set(stem.wants) <= {n - 1}
    assert all(tree.path(node)[:n] == list(range(n)) for node in range(n, len(tree)))
    assert n or ROOT in tree.parents[1:]


def test_the_stem_ends_where_a_row_is_wanted_or_paths_part() -> None:
    assert TokenTree.chain([1, 2, 3]).stem_length() == 3
    assert TokenTree.chain([1, 2, 3], wants=(1, 2)).stem_length() == 2
    assert TokenTree((1, 2, 3), (-1, 0, 0), (1, 2)).stem_length() == 1
    assert TokenTree((1, 2), (-1, -1), (0, 1)).stem_length() == 0


@pytest.mark.parametrize(
    "tree",
    [
        TokenTree((1, 2), (-1,), ()),
        TokenTree((1, 2), (-1, 1), ()),
        TokenTree((1,), (-2,), ()),
        TokenTree((99,), (-1,), ()),
        TokenTree((-1,), (-1,), ()),
        TokenTree((1,), (-1,), (1,)),
    ],
)
def test_what_is_no_tree_is_refused(tree: TokenTree) -> None:
    with pytest.raises(ValueError):
        tree.check(n_vocab=10)
