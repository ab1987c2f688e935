"""How long a request waits for the next key."""

from __future__ import annotations

from suture.lsp.debounce import LONGEST_MS, SHORTEST_MS, Debounce


def waits(debounce: Debounce) -> float:
    return debounce.wait_ms(is_automatic=True)


def test_it_follows_what_answers_take() -> None:
    debounce = Debounce()
    for took_ms, wait_ms in ((100.0, SHORTEST_MS), (1000.0, 100.0), (9000.0, LONGEST_MS)):
        for _ in range(30):
            debounce.answered(took_ms)
        assert abs(waits(debounce) - wait_ms) < 1.0


def test_an_engine_that_never_answers_in_time_is_asked_ever_more_seldom() -> None:
    debounce, before = Debounce(), 0.0
    for _ in range(100):
        before = max(before, waits(debounce))
        # The key comes 150 ms after the one before it.
        debounce.given_up(max(0.0, 150.0 - waits(debounce)))
        assert waits(debounce) >= before
    # Until no request is in vain any more.
    assert 140.0 < waits(debounce) <= 150.0


def test_what_was_not_waited_for_says_nothing() -> None:
    debounce = Debounce()
    before = waits(debounce)
    debounce.given_up(0.0)
    assert waits(debounce) == before


def test_a_quick_answer_is_soon_believed_after_many_that_never_came() -> None:
    debounce = Debounce()
    for _ in range(1000):
        debounce.given_up(60_000.0)
    assert LONGEST_MS - waits(debounce) < 1.0
    for _ in range(6):
        debounce.answered(100.0)
    assert waits(debounce) < 60.0


def test_who_asks_by_hand_or_sets_it_has_what_is_said() -> None:
    debounce = Debounce()
    assert debounce.wait_ms(is_automatic=False) == 0.0
    assert debounce.wait_ms(is_automatic=True, setting=75) == 75.0
