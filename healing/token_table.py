"""What every source of a vocabulary says about its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class TokenTable:
    """The arguments of a `Vocabulary`, by the same names."""

    pieces: Sequence[bytes]
    kinds: npt.NDArray[np.int32]
    n_vocab: int
    bos_id: int | None
    eos_id: int | None
    eog_ids: frozenset[int]
    add_bos: bool
    model: str
    pretokenizer: str
    fim_ids: Mapping[str, int] = field(default_factory=dict)
