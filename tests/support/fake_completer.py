"""A completer that plays a script, for tests of what stands around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from suture.server.codec import Specials
from suture.server.counters import Measured
from suture.server.errors import SutureError
from suture.server.explanation import Explanation
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult
from suture.server.routes.completer import ModelInfo, Slot, State

MODEL = ModelInfo(
    name="toy",
    path="/models/toy.gguf",
    n_ctx=4096,
    n_vocab=1000,
    n_params=1_000_000,
    size_bytes=2_000_000,
    fim=True,
    family="qwen",
)
DONE = CompletionChunk("", result=CompletionResult("eos", completion_tokens=2))


def says(*texts: str, finish: CompletionChunk = DONE) -> list[CompletionChunk]:
    """A script: each text a chunk with the next token id, then the result."""
    return [CompletionChunk(text, (i,)) for i, text in enumerate(texts)] + [finish]


@dataclass
class FakeCompleter:
    """Plays `script`, each step after `delay_s`. An exception in the script is raised there.

    `explanation` is that of every request. `requests` are those that came; `cancelled` counts
    completions closed before their end, and `closed` is set when one was.
    """

    script: Sequence[CompletionChunk | Exception] = field(default_factory=lambda: says("a", "b"))
    delay_s: float = 0.0
    loading: State | SutureError = "ready"
    explanation: Explanation | Exception | None = None
    at_work: Sequence[Slot | None] = (None, None)
    counted: Measured = field(default_factory=Measured)
    model: ModelInfo = MODEL
    requests: list[CompletionRequest] = field(default_factory=list)
    cancelled: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self) -> State:
        if isinstance(self.loading, SutureError):
            raise self.loading
        return self.loading

    def measured(self) -> Measured:
        return self.counted

    def slots(self) -> list[Slot | None]:
        return list(self.at_work)

    async def tokenize(self, text: str, specials: Specials) -> Sequence[int]:
        """A token for each byte."""
        return list(text.encode())

    async def explain(self, request: CompletionRequest) -> Explanation:
        if isinstance(self.explanation, Exception):
            raise self.explanation
        self.requests.append(request)
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        assert self.explanation is not None
        return self.explanation

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        self.requests.append(request)
        finished = False
        try:
            for step in self.script:
                await asyncio.sleep(self.delay_s)
                if isinstance(step, Exception):
                    raise step
                # The caller may close us after the last chunk instead of asking for one more.
                finished = step.result is not None
                yield step
            finished = True
        except Exception:
            finished = True
            raise
        finally:
            self.cancelled += not finished
            self.closed.set()
