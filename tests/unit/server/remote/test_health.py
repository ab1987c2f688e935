"""When a backend is asked, and how often one is looked at that is not."""

from __future__ import annotations

from suture.server.engine.remote.health import (
    CALM_PAUSE_S,
    DRAINING_PAUSE_S,
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Health,
)


def well() -> Health:
    health = Health("unknown")
    health.found_well()
    return health


def fall_ill(health: Health) -> None:
    for _ in range(FAILURES_IN_A_ROW):
        health.failed("it fails", is_gone=False)


def test_one_that_nobody_looked_at_is_not_asked() -> None:
    health = Health("unknown")
    assert (health.state, health.why) == ("unhealthy", "unknown")
    health.found_well()
    assert (health.state, health.why) == ("healthy", "")


def test_a_few_failures_in_a_row_are_too_many() -> None:
    health = well()
    for _ in range(FAILURES_IN_A_ROW - 1):
        health.failed("it fails", is_gone=False)
    assert health.is_healthy
    health.failed("it fails", is_gone=False)
    assert (health.state, health.why) == ("unhealthy", "it fails")


def test_an_answer_between_failures_ends_the_row() -> None:
    health = well()
    for _ in range(3 * FAILURES_IN_A_ROW):
        health.failed("it fails", is_gone=False)
        health.answered()
    assert health.is_healthy


def test_one_that_is_gone_is_not_asked_again() -> None:
    health = well()
    health.failed("gone", is_gone=True)
    assert not health.is_healthy


def test_pauses_grow_while_it_stays_ill() -> None:
    health, pauses = well(), []
    fall_ill(health)
    for _ in range(10):
        pauses.append(health.pause_s)
        health.found_ill("still", is_gone=False)
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_many_streams_that_fail_at_once_are_one_failure() -> None:
    health = well()
    for _ in range(50):
        health.failed("gone", is_gone=True)
    assert health.pause_s == FIRST_PAUSE_S


def test_looking_well_and_failing_makes_pauses_grow_all_the_same() -> None:
    health, pauses = well(), []
    for _ in range(4):
        fall_ill(health)
        pauses.append(health.pause_s)
        health.found_well()
    assert pauses == [FIRST_PAUSE_S * 2**n for n in range(4)]
    health.answered()
    fall_ill(health)
    assert health.pause_s == FIRST_PAUSE_S


def test_one_slow_look_makes_nobody_ill() -> None:
    health = well()
    health.found_ill("nothing came", is_gone=False)
    assert health.is_healthy and health.pause_s == CALM_PAUSE_S


def test_one_that_drains_is_not_asked_until_it_is_found_well() -> None:
    health = well()
    health.found_draining("busy")
    assert (health.state, health.pause_s) == ("draining", DRAINING_PAUSE_S)
    health.failed("its last stream", is_gone=True)
    assert health.state == "draining"
    health.found_well()
    assert health.is_healthy
