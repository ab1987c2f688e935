"""llama.cpp's own tokenizer: text to token ids and back, with or without the weights."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suture.server.engine import libllama
from suture.server.engine.memory import memory_told
from suture.server.engine.protocol import Memory
from suture.server.errors import EngineError, ModelError

# Longer pieces exist, and are asked for twice.
_PIECE_BYTES = 64


def encode(vocab: Any, piece: bytes) -> list[int]:
    """Token ids of plain text bytes: no special token is parsed in them and none is added.

    `vocab` is the library's vocabulary pointer. It is only read, so any thread may call this.
    """
    return _tokenize(vocab, piece, parse_special=False)


def encode_markup(vocab: Any, piece: bytes) -> list[int]:
    """Token ids of text in which control tokens stand by their own text; none is added."""
    return _tokenize(vocab, piece, parse_special=True)


def decode(vocab: Any, token_ids: Sequence[int]) -> str:
    """The text of tokens inside a text, control tokens as nothing; ill-formed bytes as U+FFFD."""
    return _join(vocab, token_ids, unparse_special=False)


def decode_markup(vocab: Any, token_ids: Sequence[int]) -> str:
    """As `decode`, control tokens by their own text."""
    return _join(vocab, token_ids, unparse_special=True)


def _tokenize(vocab: Any, piece: bytes, *, parse_special: bool) -> list[int]:
    # A token covers at least one byte; SentencePiece may add one for the leading space.
    size = len(piece) + 8
    ids = (ctypes.c_int32 * size)()
    lib = libllama.load()
    n = lib.llama_tokenize(vocab, piece, len(piece), ids, size, False, parse_special)
    if n < 0:
        raise EngineError(f"the tokenizer refused a text of {len(piece)} bytes")
    return ids[:n]


def _join(vocab: Any, token_ids: Sequence[int], *, unparse_special: bool) -> str:
    """Piece by piece, as llama-server streams: `llama_detokenize` takes the space before the first
    token for the tokenizer's, and tidies blanks before punctuation, which changes code."""
    pieces = [_piece(vocab, token_id, unparse_special) for token_id in token_ids]
    return b"".join(pieces).decode("utf-8", "replace")


def _piece(vocab: Any, token_id: int, unparse_special: bool) -> bytes:
    lib = libllama.load()
    size = _PIECE_BYTES
    while True:
        piece = ctypes.create_string_buffer(size)
        n = lib.llama_token_to_piece(vocab, token_id, piece, size, 0, unparse_special)
        if n >= 0:
            return piece.raw[:n]
        size = -n


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

    def encode_markup(self, piece: bytes) -> list[int]:
        """As the module's `encode_markup`."""
        return encode_markup(self.vocab, piece)

    def decode(self, token_ids: Sequence[int]) -> str:
        """As the module's `decode`."""
        return decode(self.vocab, token_ids)

    def decode_markup(self, token_ids: Sequence[int]) -> str:
        """As the module's `decode_markup`."""
        return decode_markup(self.vocab, token_ids)

    def memory(self, metadata: Mapping[str, object]) -> Memory:
        """The kind of memory that the model will have, by its file's metadata."""
        return memory_told(libllama.load(), self._model, metadata)

    def close(self) -> None:
        libllama.load().llama_model_free(self._model)
