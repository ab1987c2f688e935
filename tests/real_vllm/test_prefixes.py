"""What a key costs: how much of a typed prompt vLLM has in its cache, by layout, and by replica."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from e2e.conftest import Served
from support.same_text import Record
from support.twin_models import NAME
from support.vllm_servers import BLOCK, Backend, until

N_USERS = 12
N_KEYS = 3
TYPED = "    return compute(first"


def line(rng: random.Random) -> str:
    words = ("total", "value", "first", "second", "update", "compute", "index", "result")
    return f"    {rng.choice(words)}_{rng.randrange(1000)} = {rng.choice(words)}({rng.random()})\n"


def document(seed: int, n_lines: int) -> str:
    """Code that nobody else has."""
    rng = random.Random(seed)
    return "".join(line(rng) for _ in range(n_lines))


def keystrokes(seed: int) -> tuple[str, Sequence[str], str]:
    """What stands above, what is typed from one key to the next, what stands below."""
    above = f"def function_{seed}(first, second):\n" + document(seed, 20)
    typed = [TYPED[:n_typed] for n_typed in range(10, len(TYPED))]
    return above, typed, "\n\n\n" + document(seed + 1000, 20)


class Read:
    """How many tokens of prompts backends were asked for, and had."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._asked, self._had = self._totals()

    def since(self) -> tuple[float, float]:
        """Of the prompts since this was last asked: all tokens, and those that were there."""
        until(lambda: self._totals()[0] > self._asked, "no engine tells of a prompt")
        asked, had = self._totals()
        told = asked - self._asked, had - self._had
        self._asked, self._had = asked, had
        return told

    def _totals(self) -> tuple[float, float]:
        asked = sum(one.metric("vllm:prefix_cache_queries_total") for one in self._backends)
        had = sum(one.metric("vllm:prefix_cache_hits_total") for one in self._backends)
        return asked, had


@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
def test_a_key_finds_the_prompt_before_it_in_the_cache(
    layout: str, remote: Served, backend: Backend, record_property: Record
) -> None:
    above, typed, below = keystrokes({"psm": 1, "spm": 2, "anchor": 3}[layout])
    hole = {"input_suffix": below, "layout": layout, "temperature": 0, "n_predict": 4}
    read = Read([backend])
    left = []
    for text in typed:
        # In a session answers that are typed through would come without the engine.
        answer = remote.post("/infill", hole | {"input_prefix": above + text})
        asked, had = read.since()
        assert asked == answer["suture"]["prompt"]["tokens"]
        # vLLM says it at the end of a text only, and this one is ended before its own.
        assert answer["suture"]["prompt"]["reused"] in (0, had)
        left.append(asked - had)
    mean = sum(left[1:]) / len(left[1:])
    record_property(
        f"{layout}: tokens to read, first key and mean of those after", f"{left[0]:.0f}, {mean:.1f}"
    )
    if layout == "psm":
        # What stands below comes after what is typed: it has to be read again.
        assert mean > 3 * BLOCK
    else:
        # vLLM keeps whole blocks, and reads one again where it has all.
        assert mean <= 2 * BLOCK


def test_by_its_key_a_user_meets_the_replica_that_knows_the_prompt(
    routed: Served, replicas: list[Backend], record_property: Record
) -> None:
    def ask(user: int, above: str, below: str) -> None:
        hole = {"input_prefix": above, "input_suffix": below, "path": f"/home/{user}/module.py"}
        routed.post("/infill", hole | {"layout": "anchor", "temperature": 0, "n_predict": 2})

    before = [one.metric("vllm:prompt_tokens_total") for one in replicas]
    warm = shares_in_cache(ask, 10, replicas)
    after = [one.metric("vllm:prompt_tokens_total") for one in replicas]
    n_tokens = [new - old for new, old in zip(after, before, strict=True)]
    record_property("keys that found their prompt", f"{n_found(warm)} of {len(warm)}")
    record_property("tokens of prompts at each replica", ", ".join(f"{n:.0f}" for n in n_tokens))
    assert n_found(warm) == len(warm)
    assert all(n_tokens), "one replica has nothing to do"


def test_without_a_key_users_meet_either_replica(
    router: str, replicas: list[Backend], embedded: Served, record_property: Record
) -> None:
    routed = Backend(router, replicas[0].log)

    def ask(user: int, above: str, below: str) -> None:
        ids = embedded.post("/tokenize", {"content": below + above})["tokens"]
        routed.ask({"model": NAME, "prompt": ids, "max_tokens": 2, "temperature": 0})

    warm = shares_in_cache(ask, 20, replicas)
    record_property("keys that found their prompt", f"{n_found(warm)} of {len(warm)}")
    assert n_found(warm) < len(warm)


def shares_in_cache(
    ask: Callable[[int, str, str], None], seed: int, replicas: list[Backend]
) -> list[float]:
    """Of each prompt but every user's first: how much of it was in the cache where it came."""
    read = Read(replicas)
    shares = []
    for key in range(N_KEYS):
        for user in range(N_USERS):
            above, typed, below = keystrokes(seed + user)
            ask(user, above + typed[key], below)
            asked, had = read.since()
            if key:
                shares.append(had / asked)
    return shares


def n_found(shares: list[float]) -> int:
    return sum(share > 0.8 for share in shares)
