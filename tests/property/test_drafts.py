"""The draft index against a plain search, and the width against its own definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.decoding.drafts import MAX_DRAFT, MIN_MATCH, DraftIndex, DraftWidth

texts = st.lists(st.integers(0, 3), max_size=40)


def places(tokens: list[int]) -> list[tuple[int, int]]:
    """Where the text's end stood before, and how long it matches there."""
    found = []
    for place in range(MIN_MATCH, len(tokens)):
        n = 0
        while n < min(MAX_DRAFT, place) and tokens[place - n - 1] == tokens[-n - 1]:
            n += 1
        if n >= MIN_MATCH:
            found.append((place, n))
    return found


@given(texts, st.integers(0, 8))
def test_a_draft_is_what_followed_a_long_match(tokens: list[int], n_tokens: int) -> None:
    draft, n_matched = DraftIndex(tokens).propose(n_tokens)

    # Only the latest places are looked at.
    known = places(tokens)[-4:]
    if not known:
        assert (draft, n_matched) == ((), 0)
        return
    longest = max(n for _, n in known)
    place = max(place for place, n in known if n == longest)
    assert n_matched == longest
    assert list(draft) == tokens[place : place + n_tokens]


@given(texts, texts)
def test_a_text_that_grows_is_the_text_at_once(head: list[int], tail: list[int]) -> None:
    grown = DraftIndex(head)
    for token in tail:
        grown.extend([token])

    assert grown.propose(8) == DraftIndex(head + tail).propose(8)


def test_drafts_that_come_true_become_wide_and_others_cease() -> None:
    width = DraftWidth()
    assert width.best(MAX_DRAFT, 15) == 3
    for _ in range(60):
        width.observe_draft(MAX_DRAFT, 15, 0)
    assert width.best(MAX_DRAFT, 15) == 0
    for _ in range(60):
        width.observe_draft(MAX_DRAFT, 15, 15)
    assert width.best(MAX_DRAFT, 15) == 15


def test_another_text_gives_credit_back() -> None:
    width = DraftWidth()
    for _ in range(60):
        width.observe_draft(MAX_DRAFT, 15, 0)
    for _ in range(20):
        width.begin_text()

    assert width.best(MAX_DRAFT, 15) > 0


def test_a_short_match_says_nothing_of_a_long_one() -> None:
    width = DraftWidth()
    for _ in range(60):
        width.observe_draft(MIN_MATCH, 3, 0)

    assert width.best(MIN_MATCH, 15) == 0
    assert width.best(MAX_DRAFT, 15) > 0


@pytest.mark.parametrize(("n_available", "best"), [(0, 0), (15, 15)])
def test_where_width_costs_nothing_all_of_it_is_drafted(n_available: int, best: int) -> None:
    """As on a GPU: the costs are learned from the steps."""
    width = DraftWidth()
    for _ in range(200):
        for n_tokens in (1, 2, 3, 4, 8, 16):
            width.observe_cost(n_tokens, 0.01)

    assert width.best(MIN_MATCH, n_available) == best
