"""Questions of the command line answered in this process, which loads the model itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from suture.server.client import parse_events
from suture.server.commands.pull import require_llama_cpp, with_model_file
from suture.server.errors import SetupError
from suture.server.routes.completer import Completer
from suture.server.routes.delivery import collect, stream_events
from suture.server.routes.explain import explained_request, explanation_json
from suture.server.routes.llama_cpp import LlamaCppDialect
from suture.server.settings import Settings
from suture.server.sse import encode_json

Json = dict[str, Any]


def open_here(settings: Settings, stack: ExitStack) -> InProcess:
    """What answers by the settings' model, closed with `stack`. Raises `SetupError`."""
    if settings.engine == "remote":
        # Its weights are elsewhere, and what is here may be a tokenizer only.
        raise SetupError("no suture serve runs here, and --engine remote is asked through one")
    require_llama_cpp()
    # Only here: it needs llama.cpp, which is optional.
    from suture.server.local import local_completer

    settings = with_model_file(settings)
    return InProcess(stack, local_completer(settings), settings)


class InProcess:
    """Answers as a server would, by a completer that `opened` gives ready."""

    def __init__(
        self, stack: ExitStack, opened: AbstractContextManager[Completer], settings: Settings
    ) -> None:
        self._completer = stack.enter_context(opened)
        self._runner = stack.enter_context(asyncio.Runner())
        self._settings = settings

    def complete(self, body: Json) -> Iterator[Json]:
        asked = LlamaCppDialect().parse(body, self._settings, self._completer.model)
        chunks = self._completer.complete(asked.request)
        try:
            events = stream_events(chunks, asked)
            while (raw := self._runner.run(_next(events))) is not None:
                yield from parse_events([raw])
        finally:
            self._runner.run(chunks.aclose())

    def candidates(self, body: Json) -> list[Json]:
        asked = LlamaCppDialect().parse(body, self._settings, self._completer.model)
        chunks = self._completer.complete(asked.request)
        try:
            candidates = self._runner.run(collect(chunks, asked))
        finally:
            self._runner.run(chunks.aclose())
        # What a client reads: tuples and the like are JSON's own afterwards.
        answers: list[Json] = json.loads(encode_json(asked.answer.whole(candidates)))
        return answers

    def explain(self, body: Json) -> Json:
        model = self._completer.model
        request = explained_request(body, self._settings, model)
        explanation = self._runner.run(self._completer.explain(request))
        return explanation_json(explanation, model.name)


async def _next(events: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(events, None)
