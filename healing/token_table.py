"""What every source of a vocabulary says about its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from suture.healing.specials import TokenKind

MergeSource: TypeAlias = Callable[[], npt.NDArray[np.int32]]


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
    merges: MergeSource | None = None
    architecture: str = ""
    title: str = ""
    order: npt.NDArray[np.int32] | None = None


def drawable_order(pieces: Sequence[bytes], kinds: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The drawable tokens in the order of their bytes; of equal ones the ordinary first."""
    ordinary = np.isin(kinds, (TokenKind.NORMAL, TokenKind.BYTE))
    added = np.flatnonzero(kinds == TokenKind.USER_DEFINED).tolist()
    drawable = [i for i in np.flatnonzero(ordinary).tolist() if pieces[i]]
    drawable += [i for i in added if pieces[i].isspace()]
    drawable.sort(key=pieces.__getitem__)
    return np.array(drawable, np.int32)
