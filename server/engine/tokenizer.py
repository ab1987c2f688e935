"""llama.cpp's own tokenizer: plain text to token ids, with or without the weights."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from suture.server.engine import libllama
from suture.server.errors import EngineError, ModelError


def encode(vocab: Any, piece: bytes) -> list[int]:
    """Token ids of plain text bytes: no special token is parsed in them and none is added.

    `vocab` is the library's vocabulary pointer. It is only read, so any thread may call this.
    """
    # A token covers at least one byte; SentencePiece may add one for the leading space.
    size = len(piece) + 8
    ids = (ctypes.c_int32 * size)()
    n = libllama.load().llama_tokenize(vocab, piece, len(piece), ids, size, False, False)
    if n < 0:
        raise EngineError(f"the tokenizer refused a text of {len(piece)} bytes")
    return ids[:n]


class LlamaTokenizer:
    """The tokenizer of a GGUF file, loaded without its weights."""

    def __init__(self, path: Path) -> None:
        lib = libllama.load()
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._model:
            raise ModelError(f"{path}: llama.cpp cannot load it ({libllama.last_error()})")
        self.vocab = lib.llama_model_get_vocab(self._model)

    def encode(self, piece: bytes) -> list[int]:
        """As the module's `encode`."""
        return encode(self.vocab, piece)

    def close(self) -> None:
        libllama.load().llama_model_free(self._model)
