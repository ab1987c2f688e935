"""Pools of completers that a test has made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from support.driving import TIMEOUT_S
from support.scripted_completer import VOCABULARY, ScriptedCompleter
from suture.server.engine.protocol import Engine
from suture.server.engine.scripted import speaking_model
from suture.server.engine.thread import EngineThread
from suture.server.errors import Loading, ModelError
from suture.server.pool import MB, ModelPool
from suture.server.pooled_model import PooledModel, Source
from suture.server.request import CompletionRequest
from suture.server.routes.completer import ModelInfo, ServedCompleter
from suture.server.settings import Settings

UNKNOWN = ModelInfo("", "", 0, 0, None, None, True, "qwen")

Log = list[tuple[str, str]]
"""What happened to which model, as it happened: "load", "free", "begin" and "end" of a request."""


def pool_of(completer: ServedCompleter, settings: Settings) -> ModelPool:
    """A pool of one model."""
    name = completer.model.name
    path, info = Path(completer.model.path), completer.model
    return ModelPool([Source(name, path, lambda thread: completer, lambda: info, int)], settings)


def opened() -> threading.Event:
    """A gate that is open."""
    gate = threading.Event()
    gate.set()
    return gate


class Logged(ScriptedCompleter):
    """Says one text, and logs when it is loaded and freed. `broken`: it cannot be loaded."""

    def __init__(self, name: str, models: Scripted, thread: EngineThread) -> None:
        self._text = models.texts[name]
        model = speaking_model(VOCABULARY, self._text)
        super().__init__(model, models.settings, name=name, thread=thread)
        self._log = models.log
        self._gate = models.gate

    def _load(self) -> Engine:
        assert self._gate.wait(TIMEOUT_S)
        if self._text == b"broken":
            raise ModelError("/models/secret.gguf: not a GGUF file")
        engine = super()._load()
        self._log.append(("load", self.model.name))
        vars(engine).update(close=lambda: self._log.append(("free", self.model.name)))
        return engine


@dataclass
class Scripted:
    """Models that each say a text of their own, of `sizes` in millions of bytes.

    None is loaded while the `gate` is closed.
    """

    texts: Mapping[str, bytes]
    settings: Settings
    sizes: Mapping[str, int] = field(default_factory=dict)
    log: Log = field(default_factory=list)
    gate: threading.Event = field(default_factory=opened)

    @contextmanager
    def pool(self) -> Iterator[ModelPool]:
        """The pool, its first model being loaded; closed at the end."""
        pool = ModelPool([self._source(name) for name in self.texts], self.settings)
        pool.start()
        try:
            yield pool
        finally:
            pool.close()

    def _source(self, name: str) -> Source:
        path = Path(f"/models/{name}.gguf")

        def make(thread: EngineThread) -> ServedCompleter:
            return Logged(name, self, thread)

        info = replace(UNKNOWN, name=name, path=str(path))
        return Source(name, path, make, lambda: info, lambda: self.sizes.get(name, 0) * MB)


def model_of(pool: ModelPool, name: str) -> PooledModel:
    model = pool.named(name)
    assert model is not None
    return model


async def answer(pool: ModelPool, name: str, log: Log | None = None) -> str:
    """What a model says after "def x ="; raises what it raises."""
    log = [] if log is None else log
    with model_of(pool, name).lease() as completer:
        log.append(("begin", name))
        try:
            chunks = completer.complete(CompletionRequest("def x ="))
            return "".join([chunk.text async for chunk in chunks])
        finally:
            log.append(("end", name))


async def patient_answer(pool: ModelPool, name: str) -> str:
    """The same, asking again while the model is loaded."""
    while True:
        try:
            return await answer(pool, name)
        except Loading:
            await asyncio.sleep(0.005)
