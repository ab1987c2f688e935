"""The completer that `serve` serves, over a scripted engine in place of llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from support.toy import toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.healing import Encode
from suture.server.completion import LoadedModel
from suture.server.engine.protocol import Engine
from suture.server.engine.scripted import Model, ScriptedEngine
from suture.server.engine.thread import EngineThread
from suture.server.local import LocalCompleter
from suture.server.prompt.families import detect_family
from suture.server.settings import Settings
from suture.server.token_texts import token_texts

VOCABULARY = toy_vocabulary()


class ScriptedCompleter(LocalCompleter):
    """Completes with what `model` says; `encode` is what plans are made with."""

    def __init__(
        self,
        model: Model,
        settings: Settings,
        encode: Encode = toy_encode,
        name: str = "toy",
        thread: EngineThread | None = None,
    ) -> None:
        super().__init__(Path(f"/models/{name}.gguf"), name, settings, thread)
        self._model = model
        self._encode = encode

    def _load(self) -> Engine:
        engine = ScriptedEngine(VOCABULARY, toy_encode, self._model)
        family = detect_family(VOCABULARY, "toy")
        self._loaded = LoadedModel(engine, family, toy_budget(), toy_codec(self._encode))
        self._info = replace(
            self._info,
            n_ctx=engine.n_ctx,
            n_vocab=VOCABULARY.n_vocab,
            fim=True,
            family=family.name if family else None,
            tokens=token_texts(VOCABULARY, self._loaded.codec, family),
        )
        return engine


@contextmanager
def scripted(
    model: Model, settings: Settings, encode: Encode = toy_encode
) -> Iterator[ScriptedCompleter]:
    """A completer that is ready, closed at the end."""
    completer = ScriptedCompleter(model, settings, encode)
    completer.start()
    try:
        completer.wait_ready()
        yield completer
    finally:
        completer.close()
