"""What stays in the KV cache after a request, and where the next one finds it.

A sequence is *running* while a request generates on it and *idle* afterwards; one that has been
idle for long is *saved*: copied to memory and its cells freed, because every cell in use slows
every step, whoever it belongs to. A request begins with a fork of the longest prefix that any of
them shares with its prompt; or with the idle sequence itself where what is lost of it is short. Its
cells are then used again in their order, and the same prompt gets the same logits to the last bit,
which another order does not give.

K1  what is reused is token-equal to the beginning of the prompt, and never all of it: the last
    token's row is wanted. What the memory no longer holds is not reused (`Engine.shortest`).
K3  running sequences are never evicted, idle and saved ones are bounded.
K4  what is reused was read for a request with the same salt: others could tell by the time that an
    answer takes what had been asked.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from suture.server.engine.protocol import Engine, SavedSequence, SequenceId
from suture.server.errors import EngineError

# Cells that only idle sequences hold slow a step by some percent per thousand.
IDLE_TOKENS = 2048
MAX_IDLE = 8
SAVED_BYTES = 256 << 20
MAX_SAVED = 128  # where a model is so small that their states do not bound them
# Evaluating fewer tokens again costs no more than copying a sequence about.
WORTH_KEEPING = 64

_Kept = tuple[int, Sequence[int], int]
"""A sequence or a saved one by its key, its tokens, and the fewest it may be cut back to."""


@dataclass(frozen=True, slots=True)
class _Saved:
    """A sequence outside the cache, and the salt that it was read for."""

    state: SavedSequence
    salt: str | None


class KvCache:
    """The sequences of one engine; used on the engine's thread."""

    def __init__(
        self,
        engine: Engine,
        *,
        idle_tokens: int = IDLE_TOKENS,
        max_idle: int = MAX_IDLE,
        saved_bytes: int = SAVED_BYTES,
        worth_keeping: int = WORTH_KEEPING,
    ) -> None:
        self._engine = engine
        self._idle_tokens = idle_tokens
        self._max_idle = max_idle
        self._saved_bytes = saved_bytes
        self._worth_keeping = worth_keeping
        self._running: set[SequenceId] = set()
        # Both oldest first.
        self._idle: collections.OrderedDict[SequenceId, None] = collections.OrderedDict()
        self._saved: collections.OrderedDict[int, _Saved] = collections.OrderedDict()
        self._n_saved = 0
        # Of those that run and those that are idle.
        self._salts: dict[SequenceId, str | None] = {}

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def n_idle(self) -> int:
        return len(self._idle)

    @property
    def n_saved(self) -> int:
        return len(self._saved)

    def start(self, prompt_ids: Sequence[int], salt: str | None = None) -> SequenceId:
        """A sequence for a prompt that holds as much of its beginning as is known under the salt.

        Raises `EngineError` where all sequences are running.
        """
        wanted = list(prompt_ids[:-1])
        source, n_common = self._longest_live(wanted, salt)
        saved, n_saved = self._longest_saved(wanted, salt)
        if saved is not None and n_saved >= n_common + self._worth_keeping:
            self._load(saved)
            source, n_common = self._longest_live(wanted, salt)
        sequence = self._begin(source, n_common)
        self._running.add(sequence)
        self._salts[sequence] = salt
        return sequence

    def finish(self, sequence: SequenceId) -> None:
        """The request has ended; what it left is kept for the next one."""
        self._running.remove(sequence)
        self._idle[sequence] = None
        while len(self._idle) > self._max_idle or (
            len(self._idle) > 1 and self._n_idle_tokens() > self._idle_tokens
        ):
            self._evict(next(iter(self._idle)))

    def discard(self, sequence: SequenceId) -> None:
        """The request has failed; nothing of its sequence is kept."""
        self._running.remove(sequence)
        self._release(sequence)

    def make_room(self, n_tokens: int) -> bool:
        """Free cells of idle sequences, the oldest first, until so many tokens fit."""
        while self._engine.n_free < n_tokens and self._idle:
            self._evict(next(iter(self._idle)))
        return self._engine.n_free >= n_tokens

    def has_room_for(self, prompt_ids: Sequence[int], salt: str | None = None) -> bool:
        """Whether a prompt fits beside those that run, with which it may share its beginning."""
        if self.has_room(len(prompt_ids)):
            return True
        _, n_shared = self._longest(self._held(self._running, salt), list(prompt_ids[:-1]))
        return self.has_room(len(prompt_ids) - n_shared)

    def has_room(self, n_tokens: int) -> bool:
        """Whether so many tokens would fit if the idle sequences were evicted."""
        return self._engine.n_free + self._n_idle_tokens() >= n_tokens

    def _held(self, sequences: Iterable[SequenceId], salt: str | None) -> Iterator[_Kept]:
        engine = self._engine
        for sequence in sequences:
            if self._salts[sequence] == salt:
                yield sequence, engine.tokens(sequence), engine.shortest(sequence)

    def _longest_live(self, wanted: list[int], salt: str | None) -> tuple[SequenceId | None, int]:
        """Of the sequences in the cache: idle ones first, the newest of them before all."""
        live = itertools.chain(reversed(self._idle), self._running)
        found, n_common = self._longest(self._held(live, salt), wanted)
        return (None if found is None else SequenceId(found)), n_common

    def _longest_saved(self, wanted: list[int], salt: str | None) -> tuple[int | None, int]:
        kept = (
            (key, saved.state.tokens, saved.state.shortest)
            for key, saved in self._saved.items()
            if saved.salt == salt
        )
        return self._longest(kept, wanted)

    def _longest(self, kept: Iterable[_Kept], wanted: list[int]) -> tuple[int | None, int]:
        """The first that shares most with `wanted`, and how many tokens; None if none does."""
        best, n_best = None, 0
        for key, tokens, shortest in kept:
            n_common = longer_common(tokens, wanted, n_best)
            if n_common > n_best and n_common >= shortest:
                best, n_best = key, n_common
        return best, n_best

    def _begin(self, source: SequenceId | None, n_common: int) -> SequenceId:
        if source is not None and source in self._idle:
            n_lost = len(self._engine.tokens(source)) - n_common
            if n_lost < self._worth_keeping:
                return self._take_over(source, n_common)
        while True:
            try:
                return (
                    self._engine.open() if source is None else self._engine.fork(source, n_common)
                )
            except EngineError:
                others = (sequence for sequence in self._idle if sequence != source)
                if (oldest := next(others, None)) is not None:
                    self._evict(oldest)
                elif source is not None and source in self._idle:
                    return self._take_over(source, n_common)
                else:
                    raise

    def _take_over(self, sequence: SequenceId, n_tokens: int) -> SequenceId:
        """An idle sequence itself, cut back; what is cut off is lost."""
        del self._idle[sequence]
        self._engine.truncate(sequence, n_tokens)
        return sequence

    def _evict(self, sequence: SequenceId) -> None:
        """Take an idle sequence out of the cache; what nothing else holds of it is saved."""
        del self._idle[sequence]
        if self._engine.only_here(sequence) >= self._worth_keeping and self._saved_bytes:
            # Where there is no memory for it, it is read again.
            with contextlib.suppress(EngineError, MemoryError):
                state = self._engine.save(sequence)
                self._saved[self._n_saved] = _Saved(state, self._salts[sequence])
                self._n_saved += 1
            while len(self._saved) > MAX_SAVED or self._n_saved_bytes() > self._saved_bytes:
                self._saved.popitem(last=False)
        self._release(sequence)

    def _release(self, sequence: SequenceId) -> None:
        del self._salts[sequence]
        self._engine.release(sequence)

    def _load(self, key: int) -> None:
        """Put a saved sequence back among the idle ones, if there is room for it."""
        saved = self._saved[key]
        n_tokens = len(saved.state.tokens)
        if not self.has_room(n_tokens) or not self.make_room(n_tokens):
            return
        # Making room may have dropped it for a newer one.
        self._saved.pop(key, None)
        with contextlib.suppress(EngineError):
            sequence = self._engine.load(saved.state)
            self._idle[sequence], self._salts[sequence] = None, saved.salt

    def _n_saved_bytes(self) -> int:
        return sum(len(saved.state.state) for saved in self._saved.values())

    def _n_idle_tokens(self) -> int:
        return sum(map(self._engine.only_here, self._idle))


def longer_common(left: Sequence[int], right: Sequence[int], n: int) -> int:
    """As `common_length`, but 0 at once where it cannot be more than `n`: most share little."""
    if len(left) <= n or len(right) <= n or left[n] != right[n]:
        return 0
    return common_length(left, right)


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens both begin with."""
    n, width, end = 0, 64, min(len(left), len(right))
    # Slices are compared in C; most differ early, and then little is compared.
    while n < end and width:
        if list(left[n : n + width]) == list(right[n : n + width]):
            n += width
            width *= 2
        else:
            end = min(end, n + width - 1)
            width //= 2
    return min(n, end)
