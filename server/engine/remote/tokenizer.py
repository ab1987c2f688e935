"""The tokenizer of a model that runs elsewhere, by the file that it comes with.

A GGUF file has all of it; its weights are not read. A `tokenizer.json` is read by `tokenizers`,
the library that the file is of.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from suture.healing import TokenizerFileError, UnsupportedVocabulary, Vocabulary
from suture.server.codec import (
    Choice,
    Codec,
    Encoder,
    OwnTokenizer,
    choose_codec,
    lossy_probe,
    read_tiktoken,
)
from suture.server.engine.llama import read_vocabulary
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.errors import ModelError, SetupError
from suture.server.settings import Settings

_NO_TOKENIZERS = "a tokenizer.json is read with tokenizers: pip install 'suture[remote]'"
_NO_LLAMA_CPP = (
    "only llama.cpp has the tokenizer of this file: pip install 'suture[local]', or give the "
    "model's tokenizer.json"
)


def read_tokenizer(path: Path, settings: Settings) -> tuple[Vocabulary, Codec]:
    """The vocabulary of a GGUF file or a `tokenizer.json`, and how its texts are tokenized.

    By the tokenizer and detokenizer of the settings. Raises `SetupError` where it cannot be had.
    """
    if path.suffix == ".json":
        return _from_json(path, settings)
    vocabulary = read_vocabulary(path, settings.vocabulary_cache)
    fast = read_tiktoken(settings.tokenizer, vocabulary)
    if importlib.util.find_spec("llama_cpp") is not None:
        names = settings.tokenizer, settings.detokenizer
        return vocabulary, choose_codec(*names, vocabulary, LlamaTokenizer(path), fast)
    wants_own = settings.detokenizer == "window"
    if fast is None or wants_own or lossy_probe(vocabulary, fast.encode) is not None:
        raise SetupError(f"{path}: {_NO_LLAMA_CPP}")
    why = "llama.cpp is not here to compare with"
    encoder = Encoder(fast.encode)
    return vocabulary, Codec(
        encoder,
        Encoder(fast.encode_markup),
        Choice("tiktoken", why),
        Choice("bytes", "the bytes of its tokens are those of the text"),
    )


def _from_json(path: Path, settings: Settings) -> tuple[Vocabulary, Codec]:
    if importlib.util.find_spec("tokenizers") is None:
        raise SetupError(f"{path}: {_NO_TOKENIZERS}")
    if settings.tokenizer == "tiktoken":
        raise SetupError(f"--tokenizer tiktoken: not with {path}, whose tokenizer is its own")
    try:
        vocabulary = Vocabulary.from_tokenizer_json(path)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except (TokenizerFileError, UnsupportedVocabulary) as error:
        raise ModelError(str(error)) from error
    own = JsonTokenizer(path)
    codec = choose_codec("llama", settings.detokenizer, vocabulary, own, None)
    why = "the model's own, of its tokenizer.json"
    return vocabulary, replace(codec, tokenizer=Choice("llama", why))


class JsonTokenizer(OwnTokenizer):
    """The tokenizer of a `tokenizer.json`. Any thread may call it."""

    def __init__(self, path: Path) -> None:
        tokenizers: Any = importlib.import_module("tokenizers")
        self._plain = tokenizers.Tokenizer.from_file(str(path))
        # Control tokens in plain text are its text like any other (F1).
        self._plain.encode_special_tokens = True
        self._markup = tokenizers.Tokenizer.from_file(str(path))

    def encode(self, piece: bytes) -> list[int]:
        return _ids(self._plain, piece)

    def encode_markup(self, piece: bytes) -> list[int]:
        return _ids(self._markup, piece)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._plain.decode(list(token_ids), skip_special_tokens=True))

    def decode_markup(self, token_ids: Sequence[int]) -> str:
        return str(self._markup.decode(list(token_ids), skip_special_tokens=False))


def _ids(tokenizer: Any, piece: bytes) -> list[int]:
    # As llama.cpp reads them; healing never cuts inside a character where it can help it.
    text = piece.decode("utf-8", "replace")
    return list(tokenizer.encode(text, add_special_tokens=False).ids)
