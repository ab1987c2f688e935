"""Engines as a simulation has them: how long a step takes, and how much they remember. PURE.

What was measured, what is from a data sheet and what is assumed is said at each number.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Engine:
    """`steps` are tokens in a step and the seconds that it takes, between and beyond them linear.

    `s_per_context` is what each token costs that a sequence attends to. `n_kv` tokens are
    remembered, in blocks of `block`, of which only whole ones are found again. Of a `covers` engine
    the sampler is ours: pending bytes cost tokens in the prompt's own evaluation; elsewhere they
    are generated again, under a constraint, a step each.
    """

    name: str
    what: str
    steps: tuple[Point, ...]
    s_per_context: float
    n_kv: int
    block: int
    max_batched: int
    max_running: int
    covers: bool

    def step_s(self, n_tokens: int, n_context: int) -> float:
        """Seconds of a step over so many tokens that attend to so many others."""
        at = bisect_right(self.steps, n_tokens, key=lambda point: point[0])
        low, high = self.steps[at - 1 : at + 1] if at < len(self.steps) else self.steps[-2:]
        slope = (high[1] - low[1]) / (high[0] - low[0])
        return low[1] + slope * (n_tokens - low[0]) + n_context * self.s_per_context

    @property
    def n_blocks(self) -> int:
        return self.n_kv // self.block


# Two cores of a virtual machine, qwen2.5-coder-1.5b in four bits: docs/performance.md. A step of
# few tokens is from *Drafts*, a long prompt from llama-server's 653 tokens in 10.8 s under
# *Typing*. Prompts are read in chunks of 64, the context is the default one; what idle sequences
# keep in memory beside it is left out. It is here for checks, not for fleets: on such a machine our
# server cuts prompts to what it reads in two seconds, and aborts a chunk when a key comes.
EMBEDDED = Engine(
    name="embedded",
    what="llama.cpp on two cores, 1.5B in 4 bits, measured",
    steps=((1, 0.092), (2, 0.133), (8, 0.257), (16, 0.350), (64, 1.056)),
    s_per_context=0.0,
    n_kv=8192,
    block=1,
    max_batched=64,
    max_running=4,
    covers=True,
)

# Of what a data sheet promises, the share that is got: assumed. Of the memory an engine takes nine
# tenths, as vLLM does; its other limits are vLLM's defaults, too.
_COMPUTED, _MOVED, _TAKEN = 0.5, 0.8, 0.9


@dataclass(frozen=True, slots=True)
class _Model:
    """In BF16: `n_parameters`, and bytes of keys and values for each token."""

    n_parameters: float
    kv_bytes: int


# Qwen2.5: layers, heads of keys and values, their size, both, two bytes.
_7B = _Model(7.6e9, 28 * 4 * 128 * 2 * 2)
_1_5B = _Model(1.54e9, 28 * 2 * 128 * 2 * 2)


@dataclass(frozen=True, slots=True)
class _Card:
    """By its data sheet, dense BF16."""

    flops: float
    bytes_s: float
    memory: float


_A100 = _Card(312e12, 2.0e12, 80e9)
_L4 = _Card(121e12, 300e9, 24e9)


def _vllm(name: str, what: str, model: _Model, card: _Card, one_s: float | None = None) -> Engine:
    """A step takes as long as one token does (`one_s`, else reading all weights), until it has more
    tokens than are computed meanwhile."""
    weights = 2 * model.n_parameters
    one_s = one_s or weights / (card.bytes_s * _MOVED)
    s_per_token = 2 * model.n_parameters / (card.flops * _COMPUTED)
    knee = int(one_s / s_per_token)
    return Engine(
        name=name,
        what=what,
        steps=((1, one_s), (knee, one_s), (knee + 1000, one_s + 1000 * s_per_token)),
        s_per_context=model.kv_bytes / (card.bytes_s * _MOVED),
        n_kv=int((card.memory * _TAKEN - weights) / model.kv_bytes),
        block=16,
        max_batched=2048,
        max_running=256,
        covers=False,
    )


# 84.28 tokens/s of one sequence: Qwen2.5-7B-Instruct in BF16, vLLM 0.6.3, an A100 80 GB, measured
# by the model's makers (Qwen2.5's documentation, "Speed Benchmark").
A100 = _vllm(
    "a100",
    "vLLM on an A100 80 GB, 7B in BF16: one sequence measured by others, the rest reckoned",
    _7B,
    _A100,
    1 / 84.28,
)
L4 = _vllm("l4", "vLLM on an L4 24 GB, 1.5B in BF16: all reckoned", _1_5B, _L4)

ENGINES = {engine.name: engine for engine in (A100, L4)}
