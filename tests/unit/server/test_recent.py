"""The requests of late."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from suture.server.recent import MAX_REQUESTS, SECONDS, Ended, Recent
from suture.server.request import (
    CompletionResult,
    DraftReport,
    HealingReport,
    PromptReport,
)


def ended(
    total_s: float = 0.2, first_text_s: float | None = 0.1, evaluated: int = 3, reused: int = 7
) -> Ended:
    result = CompletionResult(
        "eos",
        healing=HealingReport("exact"),
        prompt=PromptReport(evaluated + reused, reused, evaluated),
        draft=DraftReport(4, 3),
    )
    return Ended("eos", None, total_s, first_text_s, result)


def test_before_the_first_request_there_are_no_numbers() -> None:
    said = Recent().as_json(1000.0)
    assert said["per_minute"] == said["requests"] == said["prompt_tokens"] == 0
    assert said["first_text_ms"] is said["total_ms"] is said["evaluated_tokens"] is None
    assert said["by_second"] == {"requests": [0] * SECONDS, "first_text_ms": [None] * SECONDS}
    assert said["healing"] == said["finish"] == said["reasons"] == {}


def test_what_a_request_was_is_said() -> None:
    recent = Recent()
    recent.add(ended(), 1000.5)
    recent.add(ended(total_s=0.4, first_text_s=0.3, evaluated=5), 1001.2)
    said = recent.as_json(1001.9)
    assert said["per_minute"] == said["requests"] == 2
    assert said["first_text_ms"] == {"mean": 200.0, "p50": 100.0, "p95": 300.0}
    assert said["total_ms"] == {"mean": 300.0, "p50": 200.0, "p95": 400.0}
    assert said["evaluated_tokens"] == {"mean": 4.0, "p50": 3.0, "p95": 5.0}
    assert (said["prompt_tokens"], said["reused_tokens"]) == (22, 14)
    assert (said["drafted_tokens"], said["accepted_tokens"]) == (8, 6)
    assert (said["healing"], said["finish"]) == ({"exact": 2}, {"eos": 2})


def test_r1_the_last_minute_ends_and_old_requests_go() -> None:
    recent = Recent()
    for i in range(3 * MAX_REQUESTS):
        recent.add(ended(total_s=float(i)), i / 10)
    now = 3 * MAX_REQUESTS / 10
    said = recent.as_json(now)
    assert said["requests"] == MAX_REQUESTS
    # The present second has begun only just.
    assert said["per_minute"] == sum(int(now) - SECONDS < i // 10 for i in range(3 * MAX_REQUESTS))
    assert recent.as_json(now + SECONDS)["per_minute"] == 0
    assert recent.as_json(now + SECONDS)["requests"] == MAX_REQUESTS


def test_r3_a_request_counts_where_it_has_something_to_say() -> None:
    recent = Recent()
    recent.add(Ended("error", "LOADING", 0.001), 5.0)
    recent.add(Ended("cancelled", "CANCELLED", 9.0, 0.5), 5.0)
    recent.add(Ended("superseded", "SUPERSEDED", 3.0, None, CompletionResult("superseded")), 5.0)
    recent.add(Ended("eos", "EMPTY", 0.25, None, CompletionResult("eos", "EMPTY")), 5.0)
    said = recent.as_json(5.0)
    assert said["first_text_ms"] == {"mean": 500.0, "p50": 500.0, "p95": 500.0}
    assert said["total_ms"] == {"mean": 250.0, "p50": 250.0, "p95": 250.0}
    assert said["evaluated_tokens"] == {"mean": 0.0, "p50": 0.0, "p95": 0.0}
    assert said["finish"] == {"error": 1, "cancelled": 1, "superseded": 1, "eos": 1}
    assert said["reasons"] == {"LOADING": 1, "CANCELLED": 1, "SUPERSEDED": 1, "EMPTY": 1}
    assert said["healing"] == {"none": 2}


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 10**4)), max_size=200))
def test_the_seconds_are_those_of_a_plain_count(events: list[tuple[int, int]]) -> None:
    recent = Recent()
    for second, ms in sorted(events):
        recent.add(ended(first_text_s=ms / 1000), float(second))
    by_second = recent.as_json(90.0)["by_second"]
    wanted = [[ms for at, ms in events if at == second] for second in range(91 - SECONDS, 91)]
    assert isinstance(by_second, dict)
    assert by_second["requests"] == [len(values) for values in wanted]
    means = [round(statistics.fmean(values), 1) if values else None for values in wanted]
    for found, mean in zip(by_second["first_text_ms"], means, strict=True):
        assert found == mean if mean is None else abs(found - mean) <= 0.1


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=MAX_REQUESTS))
def test_quantiles_leave_their_share_below(values: list[int]) -> None:
    recent = Recent()
    for value in values:
        recent.add(ended(evaluated=value), 0.0)
    spread = recent.as_json(0.0)["evaluated_tokens"]
    assert isinstance(spread, dict)
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        assert sum(value <= spread[name] for value in values) >= share * len(values)
        assert sum(value < spread[name] for value in values) < share * len(values)
