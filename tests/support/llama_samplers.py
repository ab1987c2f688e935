"""llama.cpp's own samplers, driven through libllama's C interface."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from suture.server.engine import libllama
from suture.server.request import SamplingParams

TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def make(name: str, params: SamplingParams, vocab: Any, n_vocab: int) -> Any:
    """One sampler, as llama-server makes it of the same parameters."""
    lib, p = libllama.load(), params
    seed, keep = p.seed or 0, p.min_keep
    breakers = (ctypes.c_char_p * len(p.dry_sequence_breakers))(
        *(text.encode() for text in p.dry_sequence_breakers)
    )
    dry = (p.dry_multiplier, p.dry_base, p.dry_allowed_length, p.dry_penalty_last_n)
    penalties = (p.repeat_last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
    heat = (p.temperature, p.dynatemp_range, p.dynatemp_exponent)
    make = {
        "penalties": lambda: lib.llama_sampler_init_penalties(n_vocab, *penalties),
        "dry": lambda: lib.llama_sampler_init_dry(vocab, *dry, breakers, len(breakers)),
        "top_n_sigma": lambda: lib.llama_sampler_init_top_n_sigma(p.top_n_sigma),
        "top_k": lambda: lib.llama_sampler_init_top_k(p.top_k),
        "typ_p": lambda: lib.llama_sampler_init_typical(p.typical_p, keep),
        "top_p": lambda: lib.llama_sampler_init_top_p(p.top_p, keep),
        "min_p": lambda: lib.llama_sampler_init_min_p(p.min_p, keep),
        "xtc": lambda: lib.llama_sampler_init_xtc(p.xtc_probability, p.xtc_threshold, keep, seed),
        "temperature": lambda: lib.llama_sampler_init_temp_ext(*heat),
        "greedy": lambda: lib.llama_sampler_init_greedy(),
        "dist": lambda: lib.llama_sampler_init_dist(seed),
    }
    return make[name]()


@contextmanager
def chain(
    names: Sequence[str], params: SamplingParams, vocab: Any = None, n_vocab: int = 0
) -> Iterator[Any]:
    """A chain of samplers in this order; freed at the end."""
    lib = libllama.load()
    samplers = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    try:
        for name in names:
            lib.llama_sampler_chain_add(samplers, make(name, params, vocab, n_vocab))
        yield samplers
    finally:
        lib.llama_sampler_free(samplers)


class Row:
    """A row as llama.cpp takes it: filled anew for each draw, as `common_sampler` fills it."""

    def __init__(self, n_vocab: int) -> None:
        self._lib = libllama.load()
        self._data = np.zeros(n_vocab, TOKEN_DATA)
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._pointer = self._data.ctypes.data_as(ctypes.POINTER(self._lib.llama_token_data))

    def apply(self, samplers: Any, logits: npt.NDArray[np.float32]) -> Any:
        """llama.cpp's array of what the samplers left."""
        self._data["id"] = self._ids
        self._data["logit"] = logits
        array = self._lib.llama_token_data_array(self._pointer, len(self._data), -1, False)
        self._lib.llama_sampler_apply(samplers, ctypes.byref(array))
        return array

    def left(self, samplers: Any, logits: npt.NDArray[np.float32]) -> dict[int, float]:
        """The logits of the tokens that are left, by id; those that are banned are not."""
        array = self.apply(samplers, logits)
        entries = (array.data[i] for i in range(array.size))
        return {entry.id: entry.logit for entry in entries if np.isfinite(entry.logit)}

    def adjusted(self, samplers: Any, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The whole row after samplers that leave every token in its place."""
        self.apply(samplers, logits)
        adjusted: npt.NDArray[np.float32] = self._data["logit"].copy()
        return adjusted

    def draw(self, samplers: Any, logits: npt.NDArray[np.float32]) -> int:
        """The token that the last sampler of the chain selected."""
        array = self.apply(samplers, logits)
        return int(array.data[array.selected].id)
