"""A worker process around a completer that plays a script: `python fake_worker.py [KIND]`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from support.explaining import EXPLANATION
from support.fake_completer import MODEL, FakeCompleter, says
from support.pools import pool_of
from support.toy import toy_vocabulary
from suture.server.codec import Specials
from suture.server.counters import Measured
from suture.server.errors import EngineError, ModelError
from suture.server.explanation import Explanation
from suture.server.pool import ModelPool
from suture.server.request import CompletionChunk, CompletionRequest
from suture.server.routes.completer import ModelInfo, Slot, State
from suture.server.settings import Settings
from suture.server.token_texts import TokenTexts
from suture.server.worker import main


@dataclass
class ServedFake:
    """`slow` is loading for a while, `broken` cannot load, `dead` fails after it has loaded;
    a request whose prefix is `crash` ends the process, one whose is `endless` ends by being
    cancelled."""

    kind: str
    fake: FakeCompleter
    polls: int = 0
    running: int = 0
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model(self) -> ModelInfo:
        return self.fake.model

    def start(self) -> None:
        print("started", file=sys.stderr, flush=True)

    def cancel_all(self) -> None:
        if not self.cancelled.is_set():
            print("cancelled", file=sys.stderr, flush=True)
        self.cancelled.set()

    def close(self) -> None:
        print("closed", file=sys.stderr, flush=True)

    def state(self) -> State:
        self.polls += 1
        if self.kind == "broken":
            raise ModelError("/m.gguf: not a GGUF file")
        if self.kind == "dead" and self.polls > 1:
            raise EngineError("the engine is gone")
        return "loading" if self.kind == "slow" and self.polls < 20 else "ready"

    def measured(self) -> Measured:
        return replace(self.fake.measured(), running=self.running)

    def slots(self) -> list[Slot | None]:
        return self.fake.slots()

    async def tokenize(self, text: str, specials: Specials) -> Sequence[int]:
        return await self.fake.tokenize(text, specials)

    async def explain(self, request: CompletionRequest) -> Explanation:
        return await self.fake.explain(request)

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        self.running += 1
        try:
            if request.prefix == "crash":
                os.kill(os.getpid(), signal.SIGABRT)
            if request.prefix == "long":
                await asyncio.sleep(1)
            if request.prefix == "longer":
                await asyncio.sleep(5)
            if request.prefix == "endless":
                await self.cancelled.wait()
            async for chunk in self.fake.complete(request):
                yield chunk
        finally:
            self.running -= 1


def build(settings: Settings) -> ModelPool:
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    vocabulary = toy_vocabulary()
    model = replace(MODEL, tokens=TokenTexts(vocabulary, frozenset(vocabulary.silent_ids)))
    fake = FakeCompleter(says("ra", "nge(3)"), explanation=EXPLANATION, model=model)
    return pool_of(ServedFake(kind, fake), settings)


if __name__ == "__main__":
    sys.exit(main(build))
