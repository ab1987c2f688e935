"""A worker whose failures quote what they failed on, as exceptions may: nothing may log it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from support.pools import pool_of
from support.scripted_completer import VOCABULARY, ScriptedCompleter
from support.toy import toy_encode
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import speaking_model
from suture.server.pool import ModelPool
from suture.server.settings import Settings
from suture.server.worker import main


def build(settings: Settings) -> ModelPool:
    speaks = speaking_model(VOCABULARY, b"def x = (me)")

    def model(tokens: Sequence[int]) -> Logits:
        text = b"".join(map(VOCABULARY.bytes_of, tokens))
        if b"evaluate" in text:
            raise ValueError(f"cannot evaluate {text!r}")
        if b"draw" in text:
            # The wrong shape: it fails where a token is drawn, in numpy.
            return speaks(tokens)[:1]
        return speaks(tokens)

    def encode(piece: bytes) -> Sequence[int]:
        if b"plan" in piece:
            raise ValueError(f"cannot encode {piece!r}")
        return toy_encode(piece)

    return pool_of(ScriptedCompleter(model, settings, encode), settings)


if __name__ == "__main__":
    sys.exit(main(build))
