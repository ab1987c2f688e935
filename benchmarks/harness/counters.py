"""What a server has counted so far, from its `/metrics`: ours and llama-server's have the names."""

from __future__ import annotations

import time
from dataclasses import dataclass

import httpx2

IDLE_S = 1.0
POLL_S = 0.1
_EVALUATED = "llamacpp:prompt_tokens_total"
_GENERATED = "llamacpp:tokens_predicted_total"
# Of ours, besides the prompts: what heals them, and what is read in pauses.
_BESIDES = ("suture_cover_tokens_total", "suture_spare_tokens_total")
_AT_WORK = ("llamacpp:requests_processing", "llamacpp:requests_deferred")


@dataclass(frozen=True, slots=True)
class Counters:
    """Prompt tokens that were evaluated, whatever became of their request, and new tokens."""

    n_evaluated: int
    n_generated: int

    def __sub__(self, before: Counters) -> Counters:
        return Counters(
            self.n_evaluated - before.n_evaluated, self.n_generated - before.n_generated
        )


def counters_of(url: str) -> Counters:
    found = _metrics(url)
    evaluated = found[_EVALUATED] + sum(found.get(name, 0.0) for name in _BESIDES)
    return Counters(int(evaluated), int(found[_GENERATED]))


def wait_idle(url: str, timeout_s: float = 300.0) -> None:
    """Return when nothing was being answered for a second."""
    give_up = time.monotonic() + timeout_s
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < IDLE_S:
        if time.monotonic() > give_up:
            raise SystemExit(f"{url} never rests")
        found = _metrics(url)
        if any(found[name] for name in _AT_WORK):
            idle_since = time.monotonic()
        time.sleep(POLL_S)


def _metrics(url: str) -> dict[str, float]:
    """All samples without labels, by name."""
    text = httpx2.get(f"{url}/metrics", timeout=120.0, trust_env=False).text
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {fields[0]: float(fields[1]) for fields in lines if len(fields) > 1}
