"""The draft index against a plain search, and the width against its own definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.decoding.drafts import MAX_DRAFT, MIN_MATCH, DraftIndex, DraftWidth
from suture.server.decoding.step_costs import StepCosts

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


@given(texts, texts, texts, st.integers(1, 8))
def test_what_is_expected_is_drafted_until_it_is_not_met(
    head: list[int], expected: list[int], said: list[int], n_tokens: int
) -> None:
    index = DraftIndex(head, expected)
    for n, token in enumerate(said):
        is_met = said[:n] == expected[:n] and n < len(expected)
        others = DraftIndex(head + said[:n]).propose(n_tokens)
        rest = tuple(expected[n : n + n_tokens])
        assert index.propose(n_tokens) == ((rest, MAX_DRAFT) if is_met else others)
        index.extend([token])


def familiar() -> StepCosts:
    """Costs of which each has been seen to be what it was thought to be."""
    costs = StepCosts()
    for n_tokens in (1, 2, 3, 4, 8, 16):
        costs.observe(n_tokens, costs.of(n_tokens))
    return costs


def test_every_width_is_tried_once_after_a_long_match() -> None:
    costs = StepCosts()
    width = DraftWidth(costs)
    tried = []
    for _ in range(6):
        n_drafted = width.best(MAX_DRAFT, 15)
        tried.append(n_drafted)
        costs.observe(n_drafted + 1, costs.of(n_drafted + 1))

    assert tried == [15, 7, 3, 2, 1, 3]
    assert DraftWidth(StepCosts()).best(MAX_DRAFT, 5) == 3
    assert DraftWidth(StepCosts()).best(MAX_DRAFT, 0) == 0


def test_drafts_that_come_true_become_wide_and_others_cease() -> None:
    width = DraftWidth(familiar())
    assert width.best(MAX_DRAFT, 15) == 3
    for _ in range(60):
        width.observe_draft(MAX_DRAFT, 15, 0)
    assert width.best(MAX_DRAFT, 15) == 0
    for _ in range(60):
        width.observe_draft(MAX_DRAFT, 15, 15)
    assert width.best(MAX_DRAFT, 15) == 15


def test_another_text_gives_credit_back() -> None:
    width = DraftWidth(familiar())
    for _ in range(60):
        width.observe_draft(MAX_DRAFT, 15, 0)
    for _ in range(20):
        width.begin_text()

    assert width.best(MAX_DRAFT, 15) > 0


def test_a_short_match_says_nothing_of_a_long_one() -> None:
    width = DraftWidth(familiar())
    for _ in range(60):
        width.observe_draft(MIN_MATCH, 3, 0)

    assert width.best(MIN_MATCH, 15) == 0
    assert width.best(MAX_DRAFT, 15) > 0


@pytest.mark.parametrize(("n_available", "best"), [(0, 0), (15, 15)])
def test_where_width_costs_nothing_all_of_it_is_drafted(n_available: int, best: int) -> None:
    """As on a GPU: the costs are learned from the steps."""
    costs = StepCosts()
    for _ in range(200):
        for n_tokens in (1, 2, 3, 4, 8, 16):
            costs.observe(n_tokens, 0.01)

    assert DraftWidth(costs).best(MIN_MATCH, n_available) == best


@given(st.integers(1, 200), st.floats(1e-4, 1e-1))
def test_a_cost_grows_with_the_number_of_tokens(n_tokens: int, seconds: float) -> None:
    costs = StepCosts()
    costs.observe(1, seconds)

    assert costs.of(1) == pytest.approx(seconds)
    assert costs.of(n_tokens) <= costs.of(n_tokens + 1)


def test_what_was_seen_is_what_is_expected() -> None:
    costs = StepCosts()
    for _ in range(100):
        for n_tokens, seconds in ((1, 0.01), (16, 0.02), (32, 0.04)):
            costs.observe(n_tokens, seconds)

    assert [costs.of(n) for n in (1, 16, 24, 32)] == pytest.approx(
        [0.01, 0.02, 0.03, 0.04], rel=1e-3
    )


def test_a_machine_that_becomes_slower_changes_no_ratio() -> None:
    costs = StepCosts()
    before = costs.of(16) / costs.of(1)
    for seconds in (0.01, 0.02, 0.04, 0.08):
        for _ in range(20):
            costs.observe(1, seconds)

    assert costs.of(16) / costs.of(1) == pytest.approx(before)
    assert costs.of(1) > 0.07


def test_an_evaluation_is_given_up_where_a_smaller_one_ends_sooner() -> None:
    costs = StepCosts()

    assert costs.is_redone_sooner(1, 17, 0.0)
    assert costs.is_redone_sooner(1, 17, costs.of(17) - 1.1 * costs.of(1))
    assert not costs.is_redone_sooner(1, 17, costs.of(17) - 0.9 * costs.of(1))
    assert not costs.is_redone_sooner(16, 17, 0.5 * costs.of(1))
