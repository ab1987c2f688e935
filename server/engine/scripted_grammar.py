"""A grammar without llama.cpp: one of some texts, given as ``root ::= "yes" | "no"``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from suture.healing import Vocabulary
from suture.server.decoding import gbnf as syntax
from suture.server.decoding.candidates import Logits

_LITERAL = r'"(?:[^"\\]|\\.)*"'
_TEXTS = re.compile(rf"root ::= {_LITERAL}(?: \| {_LITERAL})*\s*")


def check_texts(gbnf: str) -> None:
    """Raise `InvalidRequest` for what is not a list of texts."""
    syntax.check(gbnf)
    if not _TEXTS.fullmatch(gbnf):
        raise syntax.refusal("without a model, only texts are understood")


class TextsGrammar:
    """The text so far must begin one of `texts`. `n_open` says how many are not closed."""

    n_open = 0

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[bytes], said: bytes = b"") -> None:
        self._vocabulary = vocabulary
        self._texts = texts
        self._said = said
        TextsGrammar.n_open += 1

    @classmethod
    def of(cls, vocabulary: Vocabulary, gbnf: str) -> TextsGrammar:
        check_texts(gbnf)
        literals = re.findall(_LITERAL, gbnf)
        return cls(vocabulary, [json.loads(literal).encode() for literal in literals])

    @property
    def is_complete(self) -> bool:
        return self._said in self._texts

    def permits(self, token_id: int) -> bool:
        if token_id in self._vocabulary.eog_ids:
            return self.is_complete
        piece = self._vocabulary.bytes_of(token_id)
        return bool(piece) and any(text.startswith(self._said + piece) for text in self._texts)

    def mask(self, row: Logits) -> None:
        row[[i for i in range(len(row)) if not self.permits(i)]] = -np.inf

    def accept(self, token_id: int) -> None:
        if not self.permits(token_id):
            raise ValueError(f"the grammar forbids token {token_id} here")
        self._said += self._vocabulary.bytes_of(token_id)

    def copy(self) -> TextsGrammar:
        return TextsGrammar(self._vocabulary, self._texts, self._said)

    def close(self) -> None:
        TextsGrammar.n_open -= 1
