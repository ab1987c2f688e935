"""Which cells of the KV cache are in use: one a token, for all sequences that share it."""

from __future__ import annotations

from collections.abc import Iterable

Cells = list[int]
"""The cells of a sequence's tokens, in order."""


class CellCount:
    """Counts the sequences that hold each cell; the numbers are ours, not the library's."""

    def __init__(self, n_cells: int) -> None:
        self._n_cells = n_cells
        self._n_holders: dict[int, int] = {}
        self._next = 0

    @property
    def n_free(self) -> int:
        """How many more tokens fit."""
        return self._n_cells - len(self._n_holders)

    def take(self, n: int) -> Cells:
        """Cells for `n` new tokens."""
        cells = list(range(self._next, self._next + n))
        self._next += n
        self._n_holders.update(dict.fromkeys(cells, 1))
        return cells

    def share(self, cells: Iterable[int]) -> None:
        """Another sequence holds these too."""
        for cell in cells:
            self._n_holders[cell] += 1

    def drop(self, cells: Iterable[int]) -> None:
        """A sequence holds these no longer."""
        n_holders = self._n_holders
        for cell in cells:
            n_holders[cell] -= 1
            if not n_holders[cell]:
                del n_holders[cell]

    def n_only(self, cells: Iterable[int]) -> int:
        """How many of these would be free if one sequence dropped them."""
        return sum(self._n_holders[cell] == 1 for cell in cells)
