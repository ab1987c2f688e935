"""What the simulation says of experiments that were run, to be held against their figures. PURE."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.fleet.developers import Trace
from harness.fleet.engines import EMBEDDED, Engine
from harness.fleet.prompts import Layout, Planner, Prompt
from harness.fleet.replica import Job, Replica
from harness.fleet.routing import Asked, CacheAware, Policy, Random, Rendezvous, RoundRobin, by_user

HIT = 0.8


@dataclass(frozen=True, slots=True)
class Measured:
    """Of two real replicas: how many of the warm requests found more than four fifths of their
    prompts, the share of their tokens that was found, and how prompts were parted."""

    policy: str
    hits: str
    found: str
    parted: str


# 6 users, 4 keys each, one after the other, prompts of 800 to 1,000 tokens, so 18 warm requests;
# two vLLM 0.32.0 on CPU (blocks of 32, one with tensor parallelism of 2) behind vllm-router 0.1.17;
# November 2026. To be replaced by what a newer run measures.
MEASURED = (
    Measured("round_robin", "12", "0.65", "50/50"),
    Measured("consistent_hash, no key", "13-15", "", ""),
    Measured("consistent_hash, a key for each user", "18", "0.98-0.99", "33/67 or 67/33"),
    Measured("cache_aware", "18", "0.97-0.99", "0/100"),
)
N_USERS, N_KEYS, BLOCK = 6, 4, 32
CPU_REPLICA = replace(EMBEDDED, name="vllm cpu", n_kv=65_536, block=BLOCK, max_batched=2048)

# Not seen by a router that is sent token ids; a text that it reads may begin like another one.
ROUTERS: dict[str, tuple[Callable[[random.Random], Policy], bool]] = {
    "round_robin": (lambda rng: RoundRobin(), False),
    # Without a key each request has an id of its own, by which it is placed.
    "consistent_hash, no key": (Random, False),
    "consistent_hash, a key for each user": (lambda rng: Rendezvous(by_user), False),
    "cache_aware, prompts as ids": (lambda rng: CacheAware(), False),
    "cache_aware, prompts as text": (lambda rng: CacheAware(), True),
}


@dataclass(frozen=True, slots=True)
class TwoReplicas:
    n_hits: int
    found: float
    share_of_first: float


def two_replicas(router: str, seed: int) -> TwoReplicas:
    """The experiment once more: each key waits for the answer to the one before."""
    rng = random.Random(seed)
    make, sees_text = ROUTERS[router]
    policy = make(rng)
    replicas = [Replica(f"http://127.0.0.1:{8101 + seed * 2 + n}", CPU_REPLICA) for n in range(2)]
    warm, n_tokens = [], dict.fromkeys((one.name for one in replicas), 0)
    for user in range(N_USERS):
        n_first = rng.randint(800, 1000)
        for key in range(N_KEYS):
            prompt = Prompt(tuple(range(n_first + key)))
            blocks = prompt.blocks(BLOCK, user)
            job = Job(blocks, prompt.n_tokens, n_output=4)
            asked = Asked(user, 0, job, blocks if sees_text else ())
            replica = policy.choose(asked, replicas)
            n_tokens[replica.name] += prompt.n_tokens
            run_alone(replica, job)
            warm += [job] if key else []
    return TwoReplicas(
        sum(job.n_cached > HIT * job.n_prompt for job in warm),
        sum(job.n_cached for job in warm) / sum(job.n_prompt for job in warm),
        n_tokens[replicas[0].name] / sum(n_tokens.values()),
    )


def run_alone(replica: Replica, job: Job) -> float:
    """The seconds that a request takes which is alone at a replica."""
    replica.submit(job)
    seconds = 0.0
    while not job.outcome:
        step_s = replica.begin()
        assert step_s is not None
        seconds += step_s
        replica.finish()
    return seconds


@dataclass(frozen=True, slots=True)
class Typed:
    """At each key, the tokens of its prompt with those that are healed, and those evaluated."""

    prompt: Sequence[int]
    evaluated: Sequence[int]

    @property
    def mean_prompt(self) -> float:
        return statistics.mean(self.prompt)


def typed_alone(known: Sequence[Trace], layout: Layout, engine: Engine = EMBEDDED) -> Typed:
    """A completion at every key of all traces, as `keystrokes.py` asks for, at one replica."""
    replica, planner = Replica("replica", engine), Planner(layout)
    n_prompt, n_evaluated = [], []
    for owner, trace in enumerate(known):
        for key in trace.keys:
            prompt = planner.plan(owner, key)
            job = Job(prompt.blocks(engine.block, owner), prompt.n_tokens, 12, prompt.n_pending)
            run_alone(replica, job)
            n_prompt.append(prompt.n_tokens + prompt.n_pending)
            n_evaluated.append(job.n_evaluated)
    return Typed(n_prompt, n_evaluated)
