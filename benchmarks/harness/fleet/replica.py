"""One engine with its cache and its queue: continuous batching, step by step. PURE.

Each step gives a token to every sequence that decodes, then what is left of the step's tokens to
prompts, those that are begun first, the others in the order in which they came. A sequence holds
the blocks of its whole answer from the start, so none is thrown out half way as vLLM may do.

R1  A request that was submitted ends exactly once: done, or cancelled.
R2  Cached and evaluated tokens of a prompt that was read are together all of it.
R3  A cancelled request gets nothing of a step that begins later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.fleet.engines import Engine
from harness.fleet.kv_cache import Block, BlockCache

Outcome = Literal["", "done", "cancelled"]


@dataclass(slots=True, eq=False)
class Job:
    """A request at an engine. `blocks` are the whole ones of its prompt of `n_prompt` tokens;
    `n_covers` tokens of a tree are evaluated with it, and are in no cache."""

    blocks: Sequence[Block]
    n_prompt: int
    n_output: int
    n_covers: int = 0
    n_cached: int = 0
    n_read: int = 0
    n_evaluated: int = 0
    n_written: int = 0
    outcome: Outcome = ""
    _held: list[Block] = field(default_factory=list)
    _n_unnamed: int = 0

    @property
    def is_read(self) -> bool:
        return self.n_read == self.n_prompt + self.n_covers

    @property
    def n_context(self) -> int:
        return self.n_read + self.n_written


class Replica:
    """`n_open` requests run or wait at it. `begin` and `finish` a step in turn."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.engine = engine
        self.cache = BlockCache(engine.n_blocks)
        self.n_evaluated = 0
        self.n_written = 0
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._parts: list[tuple[Job, int]] = []

    @property
    def n_open(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def jobs(self) -> list[Job]:
        return [*self._running, *self._waiting]

    def submit(self, job: Job) -> None:
        if self._n_blocks(job) > self.cache.n_blocks:
            raise ValueError(f"{job.n_prompt} tokens never fit {self.engine.n_kv}")
        self._waiting.append(job)

    def cancel(self, job: Job) -> None:
        """End a request, after the step that runs (R3): what that reads of its prompt stays."""
        if job.outcome:
            return
        job.outcome = "cancelled"
        if job in self._waiting:
            self._waiting.remove(job)
        elif not any(part is job for part, _ in self._parts):
            self._leave(job)

    def n_hits(self, job: Job) -> int:
        """How many tokens of its prompt are here; its last token is always evaluated."""
        engine = self.engine
        most = (job.n_prompt - 1) // engine.block
        return self.cache.n_hits(job.blocks[:most]) * engine.block

    def begin(self) -> float | None:
        """Compose the next step: the seconds that it takes, or None where nothing is to do."""
        budget = self.engine.max_batched
        self._parts = [(job, 1) for job in self._running if job.is_read][:budget]
        budget -= len(self._parts)
        for job in [job for job in self._running if not job.is_read]:
            budget -= self._read(job, budget)
        while budget and self._waiting and len(self._running) < self.engine.max_running:
            if not self._admit(self._waiting[0]):
                break
            job = self._waiting.popleft()
            self._running.append(job)
            budget -= self._read(job, budget)
        if not self._parts:
            return None
        n_context = sum(job.n_context for job, _ in self._parts)
        return self.engine.step_s(sum(n for _, n in self._parts), n_context)

    def finish(self) -> list[Job]:
        """End the step. The jobs that have a new token of their answer, or have ended."""
        parts, self._parts = self._parts, []
        changed = []
        for job, n in parts:
            if not job.is_read:
                self._note_read(job, n)
            if job.outcome:
                self._leave(job)
                changed.append(job)
                continue
            if job.is_read:
                job.n_written += 1
                self.n_written += 1
                changed.append(job)
            if job.n_written >= job.n_output:
                job.outcome = "done"
                self._leave(job)
        return changed

    def _read(self, job: Job, budget: int) -> int:
        n = min(budget, job.n_prompt + job.n_covers - job.n_read)
        if n:
            self._parts.append((job, n))
        return n

    def _note_read(self, job: Job, n: int) -> None:
        size = self.engine.block
        before = job.n_read
        job.n_read += n
        job.n_evaluated += n
        self.n_evaluated += n
        for block in job.blocks[before // size : min(job.n_read, job.n_prompt) // size]:
            if self.cache.name(block):
                job._held.append(block)
                job._n_unnamed -= 1

    def _admit(self, job: Job) -> bool:
        n_hits = self.n_hits(job)
        hits = job.blocks[: n_hits // self.engine.block]
        n_more = self._n_blocks(job) - len(hits)
        if not self.cache.hold(hits, n_more):
            return False
        job.n_cached = job.n_read = n_hits
        job._held, job._n_unnamed = list(hits), n_more
        return True

    def _leave(self, job: Job) -> None:
        self._running.remove(job)
        self.cache.release(job._held, job._n_unnamed)

    def _n_blocks(self, job: Job) -> int:
        return -(-(job.n_prompt + job.n_covers + job.n_output) // self.engine.block)
