"""What a key asks with, as an engine's cache sees it: tokens, and a name for each block. PURE.

Tokens are those of a pattern like Qwen2's pre-tokenizer, long words in parts. That is right to some
percent, which `simulate_fleet.py --check` shows, and needs no model.

P1  Two prompts of one owner have the same name for a block exactly where all tokens up to its end
    are the same.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from harness.trace import Key

Layout = Literal["anchor", "psm"]

# As many lines as an anchor may stand above the cursor, and how many anchors a front remembers:
# server/prompt/anchors.py has the same numbers.
MAX_LINES = 8
MAX_ANCHORS = 1024

_TOKEN = re.compile(
    r"[^\r\nA-Za-z0-9]?[A-Za-z]{1,9}|[0-9]| ?[^\sA-Za-z0-9]+\n*|\s*\n+|\s+(?!\S)|\s+"
)
PREFIX, SUFFIX, MIDDLE = -1, -2, -3
_CLOSERS = frozenset(")]}\"' \t,:;")


@dataclass(frozen=True, slots=True)
class Prompt:
    """`n_pending` tokens before the cursor are given back: they are healed, and not in `ids`."""

    ids: tuple[int, ...]
    n_pending: int = 0
    _blocks: dict[int, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    def blocks(self, size: int, owner: Hashable) -> tuple[int, ...]:
        """The names of its whole blocks of `size` tokens (P1). Owners have no block together."""
        if size not in self._blocks:
            self._blocks[size] = tuple(_chain(self.ids, size))
        # Of 64 bits: numbers are looked up faster than tuples, and there are millions.
        salt = hash((owner, size))
        return tuple([name ^ salt for name in self._blocks[size]])


def _chain(ids: Sequence[int], size: int) -> list[int]:
    names, name = [], 0
    for at in range(0, len(ids) - size + 1, size):
        name = hash((name, ids[at : at + size]))
        names.append(name)
    return names


@lru_cache(maxsize=4096)
def tokens_of(text: str) -> tuple[int, ...]:
    return tuple(zlib.crc32(token.encode()) for token in _TOKEN.findall(text))


class Planner:
    """Makes prompts as the front does, which remembers where it parted the last prefixes.

    The one remembered first is forgotten first. A text whose anchor is forgotten is parted at its
    cursor's line, and if that is another line than before, all behind that place is read again.
    """

    def __init__(self, layout: Layout, n_anchors: int = MAX_ANCHORS) -> None:
        self._layout = layout
        self._n_anchors = n_anchors
        self._anchors: OrderedDict[Hashable, str] = OrderedDict()

    def plan(self, owner: Hashable, key: Key) -> Prompt:
        if self._layout == "psm":
            return _psm(key.prefix, key.suffix)
        return _anchored(key.prefix, key.suffix, len(self._anchor(owner, key)))

    def _anchor(self, owner: Hashable, key: Key) -> str:
        """The text before the anchor. Another suffix goes with another anchor: a jump has both."""
        suffix = _without_closers(key.suffix)
        place = owner, len(suffix), zlib.crc32(suffix.encode())
        before = self._anchors.get(place)
        if before is None or not _continues(key.prefix, before):
            self._anchors.pop(place, None)
            self._anchors[place] = before = key.prefix[: key.prefix.rfind("\n") + 1]
            while len(self._anchors) > self._n_anchors:
                self._anchors.popitem(last=False)
        return before


def _continues(prefix: str, before: str) -> bool:
    return prefix.startswith(before) and prefix.count("\n", len(before)) <= MAX_LINES


def _without_closers(suffix: str) -> str:
    """Closers that end the line are written by the answer, and stand in no prompt."""
    rest = suffix.partition("\n")[0]
    return suffix[len(rest) :] if _CLOSERS.issuperset(rest) else suffix


@lru_cache(maxsize=16384)
def _anchored(prefix: str, suffix: str, at: int) -> Prompt:
    typed = tokens_of(prefix[at:])
    ids = PREFIX, *tokens_of(prefix[:at]), SUFFIX, *tokens_of(_without_closers(suffix)), MIDDLE
    return Prompt((*ids, *typed[:-1]), len(typed[-1:]))


@lru_cache(maxsize=16384)
def _psm(prefix: str, suffix: str) -> Prompt:
    ids = PREFIX, *tokens_of(prefix), SUFFIX, *tokens_of(suffix), MIDDLE
    return Prompt(ids)
