"""One small model for two engines: as a GGUF for llama.cpp, as a folder for Hugging Face's kind.

Its weights are random, its vocabulary is a real one. What a trained model hardly ever says, half
characters and control tokens, it does not say either: no layer writes to the first dimension of
its states, so that what the output has in that column is a bias.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from support.extended_vocabularies import plain_values
from support.vocab import write_gguf
from suture.healing import TokenKind, Vocabulary, read_metadata

NAME = "tiny-starcoder2"
# What stood between documents in training, and so before each of them.
SEPARATOR = 0
CONTEXT = 8192

_WIDTH = 64
_N_LAYERS = 2
_N_HEADS = 2
_HEAD = _WIDTH // _N_HEADS
_INNER = 128
_ROPE_BASE = 10_000.0
_EPSILON = 1e-5
# Of the states' first dimension before the layers, and in the output's column of it.
_CONSTANT = 4.0
_BIAS = -40.0

Weights = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Twin:
    """The same model twice; `folder` has a `tokenizer.json`."""

    gguf: Path
    folder: Path

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.json"


def write_twin(vocabulary: Path, target: Path) -> Twin:
    """The model with the byte-level vocabulary of this GGUF, split as StarCoder does."""
    metadata = {key: plain_values(value) for key, value in read_metadata(vocabulary).items()}
    weights = _weights(Vocabulary.from_gguf(vocabulary))
    twin = Twin(target / f"{NAME}.gguf", target / NAME)
    twin.folder.mkdir(parents=True)
    _write_gguf(twin.gguf, metadata, weights)
    _write_safetensors(twin.folder / "model.safetensors", weights)
    for name, value in _configs(metadata).items():
        (twin.folder / name).write_text(json.dumps(value), "utf-8")
    return twin


def _weights(vocabulary: Vocabulary) -> Weights:
    """By Hugging Face's names, each matrix as rows of outputs."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int, scale: float = 0.2) -> npt.NDArray[np.float32]:
        return rng.standard_normal(shape, np.float32) * np.float32(scale)

    def norm() -> npt.NDArray[np.float32]:
        return drawn(_WIDTH) + np.float32(1)

    def into_states(n_in: int, scale: float = 0.2) -> npt.NDArray[np.float32]:
        matrix = drawn(_WIDTH, n_in, scale=scale)
        matrix[0] = 0
        return matrix

    embeddings = drawn(vocabulary.n_vocab, _WIDTH, scale=1)
    embeddings[:, 0] = _CONSTANT
    # As in a trained model some tokens are likelier than others, so that fewer are at a tie.
    output = drawn(vocabulary.n_vocab, _WIDTH, scale=0.5) * np.exp(
        drawn(vocabulary.n_vocab, 1, scale=0.3)
    )
    output[:, 0] = [_BIAS if _is_unsaid(vocabulary, i) else 0 for i in range(vocabulary.n_vocab)]
    weights = {
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": norm(),
        "lm_head.weight": output,
    }
    for layer in range(_N_LAYERS):
        parts = {
            "input_layernorm": norm(),
            "self_attn.q_proj": drawn(_WIDTH, _WIDTH),
            "self_attn.k_proj": drawn(_WIDTH, _WIDTH),
            "self_attn.v_proj": drawn(_WIDTH, _WIDTH),
            # Attention is where engines round differently.
            "self_attn.o_proj": into_states(_WIDTH, scale=0.1),
            "post_attention_layernorm": norm(),
            "mlp.gate_proj": drawn(_INNER, _WIDTH),
            "mlp.up_proj": drawn(_INNER, _WIDTH),
            "mlp.down_proj": into_states(_INNER),
        }
        weights |= {f"model.layers.{layer}.{name}.weight": part for name, part in parts.items()}
    # A norm of no sign keeps the bias one.
    weights["model.norm.weight"][0] = 1
    return weights


def _is_unsaid(vocabulary: Vocabulary, token_id: int) -> bool:
    if vocabulary.kind_of(token_id) is not TokenKind.NORMAL:
        return True
    try:
        vocabulary.bytes_of(token_id).decode()
    except UnicodeDecodeError:
        return True
    return False


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _write_gguf(path: Path, metadata: Mapping[str, object], weights: Weights) -> None:
    tensors = {_gguf_name(name): _rotated(name, weight) for name, weight in weights.items()}
    sizes: dict[str, object] = {
        "context_length": CONTEXT,
        "embedding_length": _WIDTH,
        "block_count": _N_LAYERS,
        "feed_forward_length": _INNER,
        "attention.head_count": _N_HEADS,
        "attention.head_count_kv": _N_HEADS,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
        "attention.layer_norm_rms_epsilon": _EPSILON,
        "rope.dimension_count": _HEAD,
        "rope.freq_base": _ROPE_BASE,
    }
    # A tokenizer.json does not say either which token would begin a text that none begins.
    own = {
        key: value
        for key, value in metadata.items()
        if key.startswith("tokenizer.") and key != "tokenizer.ggml.bos_token_id"
    }
    named = {"general.architecture": "llama", "general.name": NAME}
    llama = {f"llama.{key}": value for key, value in sizes.items()}
    # GGUF counts dimensions from the innermost.
    shapes = {name: weight.shape[::-1] for name, weight in tensors.items()}
    write_gguf(path, {**named, **llama, **own}, shapes)
    with path.open("ab") as file:
        file.write(b"\0" * (-file.tell() % 32))
        for weight in tensors.values():
            file.write(weight.tobytes())
            file.write(b"\0" * (-weight.nbytes % 32))


def _gguf_name(name: str) -> str:
    """``model.layers.1.mlp.up_proj.weight`` as ``blk.1.ffn_up.weight``."""
    part = name.removesuffix(".weight")
    if not part.startswith("model.layers."):
        return f"{_GGUF_NAMES[part]}.weight"
    layer, _, rest = part.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_GGUF_NAMES[rest]}.weight"


def _rotated(name: str, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The matrix as llama.cpp has it.

    It rotates neighbours, Hugging Face's Llama a dimension with that half a head away, so that the
    rows of queries and keys stand in another order.
    """
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    halves = weight.reshape(_N_HEADS, 2, _HEAD // 2, _WIDTH)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


def _write_safetensors(path: Path, weights: Weights) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, weight in weights.items():
        offsets = [offset, offset + weight.nbytes]
        header[name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": offsets}
        offset += weight.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = (weight.tobytes() for weight in weights.values())
    path.write_bytes(b"".join((struct.pack("<Q", len(text)), text, *data)))


def _configs(metadata: Mapping[str, object]) -> dict[str, object]:
    """The files beside the weights, by name."""
    strings, kinds, merges = (
        metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type", "merges")
    )
    assert isinstance(strings, list) and isinstance(kinds, list) and isinstance(merges, list)
    texts = [string.decode() for string in strings]
    is_control = [kind == TokenKind.CONTROL for kind in kinds]
    end_id = metadata["tokenizer.ggml.eos_token_id"]
    assert isinstance(end_id, int)
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(texts),
            "hidden_size": _WIDTH,
            "intermediate_size": _INNER,
            "num_hidden_layers": _N_LAYERS,
            "num_attention_heads": _N_HEADS,
            "num_key_value_heads": _N_HEADS,
            "head_dim": _HEAD,
            "hidden_act": "silu",
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": _EPSILON,
            "rope_theta": _ROPE_BASE,
            "rope_parameters": {"rope_type": "default", "rope_theta": _ROPE_BASE},
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "bos_token_id": end_id,
            "eos_token_id": end_id,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": texts[end_id],
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
        },
        "tokenizer.json": _tokenizer(texts, is_control, [merge.decode() for merge in merges]),
    }


def _tokenizer(texts: list[str], is_control: list[bool], merges: list[str]) -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": token_id, "content": text, **flags, "special": True}
            for token_id, text in enumerate(texts)
            if is_control[token_id]
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {text: token_id for token_id, text in enumerate(texts)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }
