"""A completer over an engine that a test has made, with nothing to say of itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from suture.server.codec import Specials
from suture.server.completion import Completions, LoadedModel
from suture.server.counters import Measured
from suture.server.engine.scheduler import Scheduler
from suture.server.explanation import Explanation
from suture.server.request import CompletionChunk, CompletionRequest
from suture.server.routes.completer import ModelInfo, Slot, State


class EngineCompleter:
    """Completes with one loaded model; its scheduler belongs to who made it."""

    def __init__(self, name: str, scheduler: Scheduler, loaded: LoadedModel) -> None:
        self.model = ModelInfo(name, "", loaded.engine.n_ctx, 0, None, None, False, None)
        self._loaded = loaded
        self._completions = Completions(scheduler)

    def state(self) -> State:
        return "ready"

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        async with contextlib.aclosing(self._completions.complete(request, self._loaded)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def explain(self, request: CompletionRequest) -> Explanation:
        return await self._completions.explain(request, self._loaded)

    async def tokenize(self, text: str, specials: Specials) -> Sequence[int]:
        return await self._completions.tokenize(text, specials, self._loaded)

    def measured(self) -> Measured:
        return Measured()

    def slots(self) -> list[Slot | None]:
        return []

    def close(self) -> None:
        self._completions.close()
