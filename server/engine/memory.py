"""How a model remembers its text, and what may therefore be done with a sequence.

A sliding-window cache that is as large as the context still gives cells up: where the library
looks for room, a cell that no later token of its only sequence will look at counts as free. A
sequence cut back to before that would then be continued without its window, and nothing would
say so. So what can be cut is asked for each sequence (`Engine.shortest`), by its oldest cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suture.server.engine.protocol import Memory

# Their files may say of a window what the library has another opinion of.
_HAS_WINDOW = {"gemma2": True, "phi3": False}

_AGAIN = (
    "a prompt is read again unless it goes on where another ended, covers are evaluated path by"
    " path, and nothing is drafted"
)

DESCRIPTIONS: dict[Memory, str] = {
    "full": "prompts share what they begin with",
    "sliding": "prompts share what they begin with while its window is there",
    "recurrent": _AGAIN,
    "hybrid": _AGAIN,
}


def memory_of(lib: Any, model: Any) -> Memory:
    """The kind of memory that a loaded model has."""
    return _memory(lib, model, lib.llama_model_n_swa(model) > 0)


def memory_told(lib: Any, model: Any, metadata: Mapping[str, object]) -> Memory:
    """As `memory_of` for a model of which only the vocabulary was loaded, by its metadata."""
    name = str(metadata.get("general.architecture", ""))
    told = bool(metadata.get(f"{name}.attention.sliding_window"))
    return _memory(lib, model, _HAS_WINDOW.get(name, told))


def _memory(lib: Any, model: Any, has_window: bool) -> Memory:
    if lib.llama_model_is_recurrent(model):
        return "recurrent"
    if lib.llama_model_is_hybrid(model):
        return "hybrid"
    return "sliding" if has_window else "full"


def shortest_cut(oldest: int, n_window: int) -> int:
    """The fewest tokens after which the next one still finds the `n_window` before it.

    `oldest` is the first position that a sequence holds in every layer, -1 if it holds none.
    """
    return oldest + n_window - 1 if oldest > 0 else 0
