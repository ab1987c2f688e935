"""A worker whose engine costs next to nothing: what is left is the front's own work.

Where its settings say that the engine is remote, it asks the backends that they name.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.scripted_words import words
from support.pools import pool_of
from support.scripted_completer import VOCABULARY, ScriptedCompleter
from support.toy import toy_codec, toy_encode
from suture.server.pool import ModelPool
from suture.server.remote import RemoteCompleter, RemotePool
from suture.server.settings import Settings
from suture.server.worker import main


def build(settings: Settings) -> ModelPool | RemotePool:
    if settings.engine == "remote":
        codec, tokenizer = toy_codec(toy_encode), Path("toy.json")
        return RemotePool(RemoteCompleter(VOCABULARY, codec, tokenizer, settings))
    return pool_of(ScriptedCompleter(words(VOCABULARY), settings), settings)


if __name__ == "__main__":
    sys.exit(main(build))
