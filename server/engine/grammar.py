"""A GBNF grammar over tokens, guarded: llama.cpp ends the process where it is misused.

E6  `accept` asks first whether the grammar permits the token: accepting one that it forbids
    throws a C++ exception that nothing catches.
E7  A text that does not compile gives a null pointer, which every later call would follow.

An ambiguous grammar makes llama.cpp follow many readings of one text at once, twice as many with
each character perhaps. So the time that a step takes is bounded, and asked between characters:
a long token goes byte by byte, and of a row the short ones are masked first.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from suture.healing import Vocabulary
from suture.server.decoding import gbnf as syntax
from suture.server.decoding.candidates import Logits
from suture.server.engine import libllama
from suture.server.errors import InvalidRequest

# Some microseconds are usual for a token, and 20 ms for 150k of them.
MAX_TOKEN_S = 0.25
MAX_MASK_S = 2.0
_MASKED_AT_ONCE = 4096
# Readings that double four times are not many.
_BYTES_AT_ONCE = 4
_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def check_grammar(vocab: Any, gbnf: str) -> None:
    """Raise `InvalidRequest`, with the reason, where `gbnf` is not a grammar that can be taken."""
    syntax.check(gbnf)
    libllama.load().llama_sampler_free(_compiled(vocab, gbnf))


def _compiled(vocab: Any, gbnf: str) -> Any:
    if not gbnf.strip() or "\0" in gbnf:
        # The library takes an empty text for "no grammar", and NUL for its end.
        raise InvalidRequest("grammar: must have rules, and no NUL", "grammar")
    pointer = libllama.load().llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
    if not pointer:
        raise InvalidRequest("grammar: not a grammar in GBNF with a rule `root`", "grammar")
    return pointer


class Grammar:
    """The state of one text under a grammar whose start rule is `root`.

    `vocab` is the model's vocabulary pointer, and `vocabulary` what it is; `gbnf` must have been
    checked. Costs about 20 ms a `mask` on 152k tokens and some microseconds a byte of `permits`.
    """

    def __init__(self, vocab: Any, gbnf: str, vocabulary: Vocabulary) -> None:
        self._lib = libllama.load()
        self._sampler: Any = _compiled(vocab, gbnf)
        self._vocabulary = vocabulary
        self._end_id = self._find_end(vocab)

    @property
    def is_complete(self) -> bool:
        if self._end_id is None:
            return False
        return self._permits_part(self._end_id, time.thread_time())

    def permits(self, token_id: int) -> bool:
        first, *more = self._parts(token_id)
        started = time.thread_time()
        is_permitted = self._permits_part(first, started)
        if not is_permitted or not more:
            return is_permitted
        ahead = self.copy()
        try:
            ahead._accept_part(first, started)
            for part in more:
                if not ahead._permits_part(part, started):
                    return False
                ahead._accept_part(part, started)
            return True
        finally:
            ahead.close()

    def mask(self, row: Logits) -> None:
        started = time.thread_time()
        for of_one_length in self._vocabulary.ids_by_length:
            left = of_one_length[np.isfinite(row[of_one_length])]
            for start in range(0, len(left), _MASKED_AT_ONCE):
                token_ids = left[start : start + _MASKED_AT_ONCE]
                row[token_ids] = self._apply(token_ids, row[token_ids])
                _check_time(started, MAX_MASK_S)

    def accept(self, token_id: int) -> None:
        if not self.permits(token_id):
            raise ValueError(f"the grammar forbids token {token_id} here")
        started = time.thread_time()
        for part in self._parts(token_id):
            self._accept_part(part, started)

    def copy(self) -> Grammar:
        started = time.thread_time()
        copy = Grammar.__new__(Grammar)
        copy._lib = self._lib
        copy._vocabulary = self._vocabulary
        copy._end_id = self._end_id
        copy._sampler = self._lib.llama_sampler_clone(self._sampler)
        try:
            _check_time(started, MAX_TOKEN_S)
        except InvalidRequest:
            copy.close()
            raise
        return copy

    def close(self) -> None:
        if self._sampler is not None:
            self._lib.llama_sampler_free(self._sampler)
            self._sampler = None

    def _find_end(self, vocab: Any) -> int | None:
        """A token that ends the text: by it the library tells whether the grammar is complete."""
        lib = self._lib
        for token_id in (lib.llama_vocab_eos(vocab), lib.llama_vocab_eot(vocab)):
            if token_id >= 0 and lib.llama_vocab_is_eog(vocab, token_id):
                return int(token_id)
        return None

    def _parts(self, token_id: int) -> Sequence[int]:
        """Tokens that say the same in small steps, where there are such tokens."""
        piece = self._vocabulary.bytes_of(token_id)
        # The end of the text is no text, whatever its token says.
        if len(piece) <= _BYTES_AT_ONCE or token_id in self._vocabulary.eog_ids:
            return (token_id,)
        of_bytes = [self._vocabulary.ids_of(bytes([byte])) for byte in piece]
        return [ids[0] for ids in of_bytes] if all(of_bytes) else (token_id,)

    def _permits_part(self, token_id: int, started: float) -> bool:
        [value] = self._apply(np.array([token_id], np.int32), np.zeros(1, np.float32))
        _check_time(started, MAX_TOKEN_S)
        return bool(np.isfinite(value))

    def _accept_part(self, token_id: int, started: float) -> None:
        """Only what is permitted (E6)."""
        self._lib.llama_sampler_accept(self._sampler, token_id)
        _check_time(started, MAX_TOKEN_S)

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


def _check_time(started: float, most_s: float) -> None:
    if time.thread_time() - started > most_s:
        raise syntax.refusal("is too ambiguous: this text has too many readings")
