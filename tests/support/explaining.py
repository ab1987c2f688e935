"""Explanations over a scripted engine whose model knows one text and a little of others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from support.scripted_completer import VOCABULARY, ScriptedCompleter
from support.toy import toy_encode
from suture.healing import CanonicalPairs
from suture.server.decoding.covering import Coverings
from suture.server.engine.protocol import Engine
from suture.server.engine.scripted import Model, speaking_model
from suture.server.settings import Settings

# Behind a prompt's end of `const`, whatever stands there besides.
SAID = b"const userName = ()\n"
SPEAKING = speaking_model(VOCABULARY, SAID)


class ExactCompleter(ScriptedCompleter):
    """Heals exactly, as a real model does."""

    def _load(self) -> Engine:
        engine = super()._load()
        assert self._loaded is not None
        coverings = Coverings(VOCABULARY, CanonicalPairs(VOCABULARY, toy_encode))
        self._loaded = replace(self._loaded, coverings=coverings)
        return engine


@contextlib.contextmanager
def exact(settings: Settings, model: Model = SPEAKING) -> Iterator[ExactCompleter]:
    """A completer that is ready, closed at the end."""
    completer = ExactCompleter(model, settings)
    completer.start()
    try:
        completer.wait_ready()
        yield completer
    finally:
        completer.close()


def piece_names(tokens: Sequence[dict[str, object]]) -> list[object]:
    """What tokens of an answer are called."""
    return [token["name"] for token in tokens]
