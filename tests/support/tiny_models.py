"""Models of a few small layers with random weights: they load and run, and say nothing.

One of each kind of memory: `llama` is full, `gemma2` has a sliding window in its first layer,
`mamba` is recurrent, `jamba` has a recurrent layer and one of attention.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from support.extended_vocabularies import plain_values
from support.vocab import write_gguf
from suture.healing import read_metadata

Architecture = Literal["llama", "gemma2", "mamba", "jamba"]

WINDOW = 32

_WIDTH = 32
_STATE = 8
_KERNEL = 4
_RANK = 2
_SQUARE = (_WIDTH, _WIDTH)
_SIZES: dict[str, object] = {
    "context_length": 512,
    "embedding_length": _WIDTH,
    "feed_forward_length": _WIDTH,
    "attention.head_count": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
_ATTENTION: dict[str, object] = {
    "attention.head_count_kv": 2,
    "attention.key_length": _WIDTH // 2,
    "attention.value_length": _WIDTH // 2,
    "rope.dimension_count": _WIDTH // 2,
}
_STATES: dict[str, object] = {
    "ssm.conv_kernel": _KERNEL,
    "ssm.inner_size": 2 * _WIDTH,
    "ssm.state_size": _STATE,
    "ssm.time_step_rank": _RANK,
}
_MORE_SIZES: dict[Architecture, dict[str, object]] = {
    "llama": {**_ATTENTION, "block_count": 1},
    "gemma2": {**_ATTENTION, "block_count": 2, "attention.sliding_window": WINDOW},
    "mamba": {**_STATES, "block_count": 2, "attention.head_count": 0},
    "jamba": {**_STATES, "block_count": 2, "attention.head_count_kv": [0, 2]},
}

Shapes = dict[str, tuple[int, ...]]


def tiny_model(vocabulary: Path, target: Path, architecture: Architecture = "llama") -> Path:
    """A model with this file's vocabulary, 4 to 8 MB for 32,000 tokens."""
    metadata = {key: plain_values(value) for key, value in read_metadata(vocabulary).items()}
    sizes = {
        f"{architecture}.{key}": value
        for key, value in (_SIZES | _MORE_SIZES[architecture]).items()
    }
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    shapes = _shapes(architecture, len(tokens))
    named = {"general.architecture": architecture}
    write_gguf(target, {**metadata, **sizes, **named}, shapes)
    rng = np.random.default_rng(0)
    with target.open("ab") as file:
        file.write(b"\0" * (-file.tell() % 32))
        for name, shape in shapes.items():
            weights = _weights(name, shape, rng)
            file.write(weights.tobytes())
            file.write(b"\0" * (-weights.nbytes % 32))
    return target


def _weights(
    name: str, shape: tuple[int, ...], rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    weights = rng.standard_normal(math.prod(shape), np.float32) * np.float32(0.2)
    if name.endswith("norm.weight"):
        return weights + np.float32(1)  # or what was said before hardly matters
    # A state must fade, not grow.
    return -np.abs(weights) if name.endswith("ssm_a") else weights


def _shapes(architecture: Architecture, n_tokens: int) -> Shapes:
    layers: dict[Architecture, list[Shapes]] = {
        "llama": [_attention() | _feed_forward()],
        "gemma2": [_attention() | _feed_forward() | _norms_behind()] * 2,
        "mamba": [_states()] * 2,
        "jamba": [_states() | _state_norms() | _feed_forward(), _attention() | _feed_forward()],
    }
    # Gemma's rows of logits are its embeddings.
    output = {} if architecture == "gemma2" else {"output.weight": (_WIDTH, n_tokens)}
    return {
        "token_embd.weight": (_WIDTH, n_tokens),
        "output_norm.weight": (_WIDTH,),
        **output,
        **{
            f"blk.{n}.{name}": shape
            for n, layer in enumerate(layers[architecture])
            for name, shape in ({"attn_norm.weight": (_WIDTH,)} | layer).items()
        },
    }


def _attention() -> Shapes:
    return {f"{name}.weight": _SQUARE for name in ("attn_q", "attn_k", "attn_v", "attn_output")}


def _feed_forward() -> Shapes:
    squares = {f"{name}.weight": _SQUARE for name in ("ffn_gate", "ffn_up", "ffn_down")}
    return {"ffn_norm.weight": (_WIDTH,), **squares}


def _norms_behind() -> Shapes:
    return {f"{name}.weight": (_WIDTH,) for name in ("post_attention_norm", "post_ffw_norm")}


def _states() -> Shapes:
    inner = 2 * _WIDTH
    return {
        "ssm_in.weight": (_WIDTH, 2 * inner),
        "ssm_conv1d.weight": (_KERNEL, inner),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (inner, _RANK + 2 * _STATE),
        "ssm_dt.weight": (_RANK, inner),
        "ssm_dt.bias": (inner,),
        "ssm_a": (_STATE, inner),
        "ssm_d": (inner,),
        "ssm_out.weight": (inner, _WIDTH),
    }


def _state_norms() -> Shapes:
    sizes = {"ssm_dt_norm": _RANK, "ssm_b_norm": _STATE, "ssm_c_norm": _STATE}
    return {f"{name}.weight": (size,) for name, size in sizes.items()}
