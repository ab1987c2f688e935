"""What files were found to define, remembered for as long as they do not change. PURE."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from suture.lsp.context.excerpts import Definition

MAX_REMEMBERED = 128

Stamp = tuple[int, int]
"""What changes when a file does."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a file with this stamp defines; None: it is not to be shown."""

    stamp: Stamp
    definitions: tuple[Definition, ...] | None


class Parsed:
    """What is known of the files looked at last."""

    def __init__(self, capacity: int = MAX_REMEMBERED) -> None:
        self._capacity = capacity
        self._known: OrderedDict[str, Known] = OrderedDict()

    def find(self, path: str, stamp: Stamp) -> Known | None:
        """What is known of a file as it is now."""
        known = self._known.get(path)
        if known is None or known.stamp != stamp:
            return None
        self._known.move_to_end(path)
        return known

    def add(self, path: str, known: Known) -> Known:
        self._known[path] = known
        self._known.move_to_end(path)
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return known
