"""Real SentencePiece vocabularies with the control tokens of a family put behind their own.

There are no small files of CodeLlama or Codestral; their vocabularies are of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from support.vocab import write_gguf
from suture.healing import TokenKind, read_metadata

# CodeLlama's are 32007 to 32010. The pieces before them lead there: its tokenizer merges a tag of
# HTML to a sentinel, character by character.
CODELLAMA = (
    *((f"▁<{text}", TokenKind.NORMAL) for text in ("SU", "SUF", "PRE", "M", "MID", "E", "EOT")),
    *((f"▁<{text}>", TokenKind.CONTROL) for text in ("PRE", "SUF", "MID")),
    ("▁<EOT>", TokenKind.NORMAL),
)
# In the order of Mistral's third vocabulary, where they have the ids 11 to 13.
MISTRAL = tuple((f"[{text}]", TokenKind.CONTROL) for text in ("PREFIX", "MIDDLE", "SUFFIX"))


def extended(
    source: Path, target: Path, tokens: Sequence[tuple[str, TokenKind]], name: str = ""
) -> Path:
    """A copy of a vocabulary's file with more tokens, and this as `general.name`."""
    metadata = read_metadata(source)
    strings, scores, kinds = (
        list(_items(metadata[f"tokenizer.ggml.{key}"]))
        for key in ("tokens", "scores", "token_type")
    )
    for rank, (text, kind) in enumerate(tokens, start=len(strings)):
        strings.append(text.encode())
        scores.append(-float(rank))
        kinds.append(int(kind))
    pairs = {
        **metadata,
        "general.name": name,
        "llama.vocab_size": len(strings),
        "tokenizer.ggml.tokens": strings,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
    }
    return write_gguf(target, pairs, {})


def plain_values(value: object) -> object:
    """A value of a file's metadata as one may be written: arrays as lists."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _items(values: object) -> list[object]:
    items = plain_values(values)
    assert isinstance(items, list)
    return list(items)
