"""Clocks: the best of some rounds, in which all take turns because a machine's speed drifts."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

# Short, so that each is undisturbed in some round.
N_LAPS = 16

Feed = Callable[[int], object]
"""Takes a token."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a token: over all of a stream, its first and its last quarter."""

    all: float
    first: float
    last: float

    @property
    def growth(self) -> float:
        """How many times as long a late token takes as an early one."""
        return self.last / self.first


def time_streams(
    runs: Mapping[str, tuple[Callable[[], Feed], Sequence[int]]], rounds: int
) -> dict[str, Timing]:
    """The best of each part of each run; a run is what makes a new stream, and its tokens."""
    laps = {name: [float("inf")] * N_LAPS for name in runs}
    with _without_collector():
        for _ in range(rounds):
            for name, (new, ids) in runs.items():
                laps[name] = list(map(min, laps[name], _laps(new(), ids)))
    return {name: _timing(laps[name], len(ids)) for name, (_, ids) in runs.items()}


def best_seconds(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each, in seconds."""
    times = dict.fromkeys(runs, float("inf"))
    with _without_collector():
        for _ in range(rounds):
            for name, run in runs.items():
                started = time.perf_counter()
                run()
                times[name] = min(times[name], time.perf_counter() - started)
    return times


def _laps(feed: Feed, ids: Sequence[int]) -> Iterator[float]:
    """Seconds for each part of the tokens, the same plain loop for everybody."""
    size = len(ids) // N_LAPS
    for start in range(0, N_LAPS * size, size):
        part = ids[start : start + size]
        started = time.perf_counter()
        for token_id in part:
            feed(token_id)
        yield time.perf_counter() - started


def _timing(laps: Sequence[float], n_tokens: int) -> Timing:
    per_token = [seconds / (n_tokens // N_LAPS) * 1e6 for seconds in laps]
    quarter = N_LAPS // 4
    first, last = per_token[:quarter], per_token[-quarter:]
    return Timing(statistics.mean(per_token), statistics.mean(first), statistics.mean(last))


@contextmanager
def _without_collector() -> Iterator[None]:
    """What a peer left behind must not be collected during somebody else's round."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
