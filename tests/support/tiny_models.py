"""Llama models of one layer with random weights: they load and run, and say nothing."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from support.extended_vocabularies import plain_values
from support.vocab import write_gguf
from suture.healing import read_metadata

_WIDTH = 32
_SQUARE = (_WIDTH, _WIDTH)
_SIZES = {
    "block_count": 1,
    "context_length": 512,
    "embedding_length": _WIDTH,
    "feed_forward_length": _WIDTH,
    "attention.head_count": 2,
    "attention.head_count_kv": 2,
    "rope.dimension_count": _WIDTH // 2,
}


def tiny_model(vocabulary: Path, target: Path) -> Path:
    """A model with this file's vocabulary, 4 MB for 32,000 tokens."""
    metadata = {key: plain_values(value) for key, value in read_metadata(vocabulary).items()}
    sizes = {f"llama.{key}": value for key, value in _SIZES.items()}
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    shapes = _shapes(len(tokens))
    write_gguf(target, {**metadata, **sizes}, shapes)
    rng = np.random.default_rng(0)
    with target.open("ab") as file:
        file.write(b"\0" * (-file.tell() % 32))
        for shape in shapes.values():
            weights = rng.standard_normal(math.prod(shape), np.float32) * np.float32(0.2)
            file.write(weights.tobytes())
            file.write(b"\0" * (-weights.nbytes % 32))
    return target


def _shapes(n_tokens: int) -> dict[str, tuple[int, ...]]:
    squares = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return {
        "token_embd.weight": (_WIDTH, n_tokens),
        "output_norm.weight": (_WIDTH,),
        "output.weight": (_WIDTH, n_tokens),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
        **{f"blk.0.{name}.weight": _SQUARE for name in squares},
    }
