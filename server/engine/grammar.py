"""A GBNF grammar over tokens, guarded: llama.cpp ends the process where it is misused.

E6  `accept` asks first whether the grammar permits the token: accepting one that it forbids
    throws a C++ exception that nothing catches.
E7  A text that does not compile gives a null pointer, which every later call would follow.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from suture.server.decoding.candidates import Logits
from suture.server.engine import libllama
from suture.server.errors import InvalidRequest


class Grammar:
    """The state of one text under a grammar whose start rule is `root`.

    `vocab` is the model's vocabulary pointer. Raises `InvalidRequest` where `gbnf` does not
    compile, with the library's reason. Costs about 20 ms a `mask` on 152k tokens and some
    microseconds a `permits`: so ask for the drawn token first, and mask only when it is refused.
    """

    def __init__(self, vocab: Any, gbnf: str) -> None:
        self._lib = libllama.load()
        if not gbnf.strip() or "\0" in gbnf:
            # The library takes an empty text for "no grammar", and NUL for its end.
            raise InvalidRequest("grammar: must have rules, and no NUL", "grammar")
        pointer = self._lib.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
        if not pointer:
            raise InvalidRequest("grammar: not a grammar in GBNF with a rule `root`", "grammar")
        self._sampler: Any = pointer

    def permits(self, token_id: int) -> bool:
        """Whether the token may come next."""
        [value] = self._apply(np.array([token_id], np.int32), np.zeros(1, np.float32))
        return bool(np.isfinite(value))

    def mask(self, row: Logits) -> None:
        """Set to -inf, in place, the logits of all tokens that may not come next."""
        row[:] = self._apply(np.arange(len(row), dtype=np.int32), row)

    def accept(self, token_id: int) -> None:
        """Go on past the token. Raises `ValueError` for one that may not come next."""
        if not self.permits(token_id):
            raise ValueError(f"the grammar forbids token {token_id} here")
        self._lib.llama_sampler_accept(self._sampler, token_id)

    def close(self) -> None:
        if self._sampler is not None:
            self._lib.llama_sampler_free(self._sampler)
            self._sampler = None

    def _apply(self, token_ids: Any, logits: Logits) -> Logits:
        """The logits of the tokens after the grammar has seen them, in the order given."""
        n = len(token_ids)
        candidates = np.zeros(n, _TOKEN_DATA)
        candidates["id"], candidates["logit"] = token_ids, logits
        array = self._lib.llama_token_data_array(
            candidates.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data)), n, -1, False
        )
        self._lib.llama_sampler_apply(self._sampler, ctypes.byref(array))
        adjusted: Logits = candidates["logit"]
        return adjusted


_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
