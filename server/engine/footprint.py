"""How much memory a model will take, by what its file says of it.

Counted are the weights, which is the file, and what the context holds: keys and values in F16 for
each token, and the states of recurrent layers. The buffers that llama.cpp computes in come on top:
some hundred megabytes, by the size of the vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from suture.healing import read_metadata
from suture.healing.gguf import GgufError, read_value
from suture.server.engine.llama import DEFAULT_CTX, N_STATES
from suture.server.errors import ModelError

_BYTES_OF_F16, _BYTES_OF_F32 = 2, 4
CTX_STEP = 256


def model_bytes(path: Path, n_ctx: int) -> int:
    """Bytes of a file's weights and of a context of `n_ctx` tokens, 0: as the engine makes it.

    Raises `ModelError` where the file cannot be read.
    """
    with _read(path):
        n_weights, metadata = path.stat().st_size, read_metadata(path)
    return n_weights + context_bytes(metadata, n_ctx)


def file_context_length(path: Path, architecture: str, n_ctx: int) -> int:
    """The tokens that a context of `n_ctx` has room for with a file's model, 0: as the engine
    makes it.

    Raises `ModelError` where the file cannot be read.
    """
    key = f"{architecture}.context_length"
    with _read(path):
        metadata = {"general.architecture": architecture, key: read_value(path, key)}
    return context_length(metadata, n_ctx)


@contextlib.contextmanager
def _read(path: Path) -> Iterator[None]:
    """A block that reads a file. Raises `ModelError` where it could not."""
    try:
        yield
    except (GgufError, OSError) as error:
        raise ModelError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error


def context_length(metadata: Mapping[str, object], n_ctx: int) -> int:
    """The tokens that a context of `n_ctx` has room for, 0: as the engine makes it."""
    n_tokens = n_ctx or min(_Sizes(metadata).number("context_length", DEFAULT_CTX), DEFAULT_CTX)
    return -(-n_tokens // CTX_STEP) * CTX_STEP


def context_bytes(metadata: Mapping[str, object], n_ctx: int) -> int:
    """Bytes of what the context of a model with this metadata holds."""
    model = _Sizes(metadata)
    n_tokens = context_length(metadata, n_ctx)
    n_layers = model.number("block_count")
    heads = model.numbers("attention.head_count_kv", n_layers)
    width = model.number("embedding_length") // max(model.number("attention.head_count", 1), 1)
    n_values = model.number("attention.key_length", width)
    n_values += model.number("attention.value_length", width)
    return sum(heads) * n_values * _BYTES_OF_F16 * n_tokens + _state_bytes(model, heads)


def _state_bytes(model: _Sizes, heads: list[int]) -> int:
    """Of the layers with a state: those without heads, or all where every layer has both."""
    inner, n_state = model.number("ssm.inner_size"), model.number("ssm.state_size")
    n_layers = heads.count(0) or len(heads)
    n_mixed = inner + 2 * model.number("ssm.group_count") * n_state
    n_values = inner * n_state + max(model.number("ssm.conv_kernel") - 1, 0) * n_mixed
    return n_layers * n_values * _BYTES_OF_F32 * (N_STATES + 1) if inner else 0


class _Sizes:
    """Sizes that a file gives of its architecture; what is no number is as if it was not there."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        self._prefix = f"{metadata.get('general.architecture', '')}."

    def number(self, key: str, default: int = 0) -> int:
        value = self._metadata.get(self._prefix + key)
        if isinstance(value, np.ndarray) and value.size:
            value = int(value.max())
        return value if isinstance(value, int) else default

    def numbers(self, key: str, n_layers: int) -> list[int]:
        """The number of each layer, which is one for all or a list."""
        value = self._metadata.get(self._prefix + key)
        if isinstance(value, np.ndarray):
            return [int(one) for one in value[:n_layers]]
        return [self.number(key, self.number("attention.head_count"))] * n_layers
