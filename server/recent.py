"""The requests of late: how many, how fast, how they ended; what the status page shows.

The event loop notes each request as it ends, and reads them when somebody looks. Times are in
seconds of any clock that never goes back.

R1  It is bounded: the last `MAX_REQUESTS` requests, and a sum for each of the last `SECONDS`.
R2  Nothing of a request's text is in it: there are numbers, and names out of fixed lists.
R3  A request counts where it has something to say: one that was left has no total time, one
    without text no time to its first text, one that failed no tokens.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from suture.server.request import CompletionResult, FinishReason, Reason

MAX_REQUESTS = 256
SECONDS = 60

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Ended:
    """One request that has ended, so many seconds after it began.

    `first_text_s` is from its beginning too, None if there was no text. `result` is None where it
    failed, or was left by its client.
    """

    finish: FinishReason | Literal["error"]
    reason: Reason | None
    total_s: float
    first_text_s: float | None = None
    result: CompletionResult | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it went on to its own end."""
        return self.finish not in ("error", "cancelled", "superseded")


@dataclass(slots=True)
class _Second:
    """What ended within one second of the clock."""

    number: int = -1
    n_requests: int = 0
    n_with_text: int = 0
    first_text_s: float = 0.0


class Recent:
    """The requests that have ended of late."""

    def __init__(self) -> None:
        self._ended: collections.deque[Ended] = collections.deque(maxlen=MAX_REQUESTS)
        self._seconds = [_Second() for _ in range(SECONDS)]

    def add(self, ended: Ended, now_s: float) -> None:
        """Note a request that has just ended."""
        self._ended.append(ended)
        number = math.floor(now_s)
        second = self._seconds[number % SECONDS]
        if second.number != number:
            second = self._seconds[number % SECONDS] = _Second(number)
        second.n_requests += 1
        if ended.first_text_s is not None:
            second.n_with_text += 1
            second.first_text_s += ended.first_text_s

    def as_json(self, now_s: float) -> Json:
        """What there is to see, as `/v1/status` says it. Some 0.2 ms of work."""
        requests, first_texts_ms = self._by_second(math.floor(now_s))
        results = [ended.result for ended in self._ended if ended.result is not None]
        return {
            "per_minute": sum(requests),
            "by_second": {"requests": requests, "first_text_ms": first_texts_ms},
            "requests": len(self._ended),
            "first_text_ms": _spread(
                1000 * ended.first_text_s for ended in self._ended if ended.first_text_s is not None
            ),
            "total_ms": _spread(1000 * ended.total_s for ended in self._ended if ended.is_whole),
            "evaluated_tokens": _spread(float(result.prompt.evaluated) for result in results),
            "prompt_tokens": sum(result.prompt.tokens for result in results),
            "reused_tokens": sum(result.prompt.reused for result in results),
            "drafted_tokens": sum(result.draft.proposed for result in results),
            "accepted_tokens": sum(result.draft.accepted for result in results),
            "healing": _counted(result.healing.level for result in results),
            "finish": _counted(ended.finish for ended in self._ended),
            "reasons": _counted(ended.reason for ended in self._ended if ended.reason is not None),
        }

    def _by_second(self, now: int) -> tuple[list[int], list[float | None]]:
        """The requests of each of the last seconds, the present one last, and their mean time to
        the first text."""
        requests: list[int] = []
        first_texts_ms: list[float | None] = []
        for number in range(now - SECONDS + 1, now + 1):
            second = self._seconds[number % SECONDS]
            if second.number != number:
                second = _Second()
            requests.append(second.n_requests)
            mean_s = second.first_text_s / second.n_with_text if second.n_with_text else None
            first_texts_ms.append(None if mean_s is None else round(1000 * mean_s, 1))
        return requests, first_texts_ms


def _spread(values: Iterable[float]) -> Json | None:
    """Mean, median and 95th percentile, each of them a value but for the mean; None for none."""
    ranked = sorted(values)
    if not ranked:
        return None
    return {
        "mean": round(sum(ranked) / len(ranked), 1),
        "p50": round(_at_share(ranked, 0.5), 1),
        "p95": round(_at_share(ranked, 0.95), 1),
    }


def _at_share(ranked: list[float], share: float) -> float:
    """The least value that is not less than this share of all."""
    return ranked[math.ceil(share * len(ranked)) - 1]


def _counted(names: Iterable[str]) -> dict[str, int]:
    """How often each is there, the most frequent first."""
    return dict(collections.Counter(names).most_common())
