"""The keys and values that one engine holds, in blocks, as vLLM's prefix cache has them. PURE.

A block is *held* by requests that run; once nobody holds it, it stays until its room is needed, the
one given up longest ago first, of one prompt its end first.

K1  There are never more blocks than the cache has.
K2  A block that is held is not evicted.
K3  A block is named only while its content is there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

Block = int


class BlockCache:
    """`n_blocks` in all. `n_evicted` counts those with content that had to go."""

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self.n_evicted = 0
        self._holders: dict[Block, int] = {}
        self._idle: OrderedDict[Block, None] = OrderedDict()
        self._n_unnamed = 0

    @property
    def n_used(self) -> int:
        return len(self._holders) + self._n_unnamed

    @property
    def n_held(self) -> int:
        return self.n_used - len(self._idle)

    def n_hits(self, blocks: Sequence[Block]) -> int:
        """How many blocks are there, from the first one on."""
        for n, block in enumerate(blocks):
            if block not in self._holders:
                return n
        return len(blocks)

    def hold(self, blocks: Sequence[Block], n_more: int) -> bool:
        """Hold blocks that are there and `n_more` empty ones; False, and nothing, without room."""
        holders, idle = self._holders, self._idle
        n_woken = sum([block in idle for block in blocks])
        n_free = self.n_blocks - self.n_used
        if n_free + len(idle) - n_woken < n_more:
            return False
        for block in blocks:
            if not holders[block]:
                del idle[block]
            holders[block] += 1
        for _ in range(n_more - n_free):
            gone, _ = idle.popitem(last=False)
            del holders[gone]
            self.n_evicted += 1
        self._n_unnamed += n_more
        return True

    def name(self, block: Block) -> bool:
        """An empty block that is held has this content now; False if another one has it already."""
        if block in self._holders:
            return False
        self._n_unnamed -= 1
        self._holders[block] = 1
        return True

    def release(self, blocks: Sequence[Block], n_unnamed: int) -> None:
        """Hold these no longer; of those without a name nothing stays."""
        self._n_unnamed -= n_unnamed
        holders, idle = self._holders, self._idle
        for block in reversed(blocks):
            n_left = holders[block] = holders[block] - 1
            if not n_left:
                idle[block] = None
