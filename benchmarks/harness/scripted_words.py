"""A model that says a word a token, over and over, and never ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suture.healing import Vocabulary
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import Model

WORDS = (b" user", b" =", b" x", b"()", b"return", b"(")


def words(vocabulary: Vocabulary) -> Model:
    rows = [np.zeros(vocabulary.n_vocab, np.float32) for _ in WORDS]
    for row, word in zip(rows, WORDS, strict=True):
        row[vocabulary.ids_of(word)[-1]] = 10.0

    def model(tokens: Sequence[int]) -> Logits:
        return rows[len(tokens) % len(rows)]

    return model
