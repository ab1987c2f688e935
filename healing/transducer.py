"""The states of a text between tokens, and the steps that tokens make of them.

What is held back (the longest tail that is an unfinished character or begins a stop string) and
the automaton's state determine all that can happen next. So they form the states of a transducer
over tokens, and each step that was taken once is a dictionary look-up from then on, for every
text with the same stop strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from suture.healing.lengths import lengths_of
from suture.healing.stops import OnStop, StopSet
from suture.healing.utf8 import incomplete_tail
from suture.healing.vocabulary import Vocabulary

_MEMO_ENTRIES = 65_536


class State(dict[int, "Step"]):
    """Where a text stands between two tokens, and the steps that were taken from there.

    `holds` says per automaton state how much of a possible stop string is held.
    """

    __slots__ = ("_transducer", "held", "holds", "node", "stop")
    ended = False

    def __init__(
        self,
        transducer: TokenTransducer,
        node: int,
        held: bytes,
        holds: Sequence[int],
        stop: int = -1,
    ) -> None:
        super().__init__()
        self._transducer = transducer
        self.node = node
        self.held = held
        self.holds = holds
        self.stop = stop

    def __eq__(self, other: object) -> bool:
        """States are what they are, whatever steps were taken from there yet."""
        return self is other

    def __missing__(self, token_id: int) -> Step:
        return self._transducer.take(self, token_id)


class Opening(State):
    """A state while healed bytes are skipped or stop strings do not count yet.

    Its steps are computed each time: few are taken, and they differ from text to text.
    """

    __slots__ = ("n_early", "n_skip")

    def __init__(
        self, transducer: TokenTransducer, state: State, n_skip: int, n_early: int
    ) -> None:
        super().__init__(transducer, state.node, state.held, state.holds)
        self.n_skip = n_skip
        self.n_early = n_early

    def __missing__(self, token_id: int) -> Step:
        return self._transducer.take_first(self, token_id)


class End(State):
    """The state after the text; every token leads back here. `held` was not sent."""

    __slots__ = ()
    ended = True

    def __missing__(self, token_id: int) -> Step:
        return "", self, 0, ENDED


# What a token does in a state: the text sent, the state after it, its lengths (`lengths_of`), and
# how many bytes are held then, or ENDED. A plain tuple, one sum and one test, because this is all
# that a token costs.
Step: TypeAlias = tuple[str, State, int, int]

ENDED = -1


def _step(sent: bytes, state: State) -> Step:
    text = sent.decode("utf-8", "replace")
    return text, state, lengths_of(text), ENDED if state.ended else len(state.held)


class TokenTransducer:
    """The shared part: pieces, stop strings, and a bounded memo of steps.

    Build one per vocabulary, tuple of stop strings and `special_tokens` policy, and share it:
    "skip" gives special tokens no text, "show" their own. Raises `ValueError` as `StopSet` does.
    One thread may start texts while another takes steps.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        stops: Sequence[str] = (),
        special_tokens: Literal["skip", "show"] = "skip",
        memo_entries: int = _MEMO_ENTRIES,
    ) -> None:
        if isinstance(stops, str):
            raise TypeError("stop strings are given as a sequence of them, not as one string")
        if special_tokens not in ("skip", "show"):
            raise ValueError(f'special tokens are "skip" or "show", not {special_tokens!r}')
        self._vocabulary = vocabulary
        self._memo_entries = memo_entries
        self._special_tokens = special_tokens
        self._stops = StopSet(stops)
        self._states: dict[tuple[int, bytes, OnStop], State] = {}
        self._ends: dict[tuple[bytes, int], End] = {}
        self._n_steps = 0
        self._holds = {
            OnStop.EXCLUDE: self._stops.holds,
            OnStop.INCLUDE: [0] * len(self._stops.holds),
        }
        self._never = [-1] * len(self._stops.completed)

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings without repetitions."""
        return self._stops.stops

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens without bytes whose own text is a stop string: the bytes alone never show it."""
        special_ids = map(self._vocabulary.special_id, self.stops)
        return frozenset(i for i in special_ids if i is not None and not self.piece_of(i))

    def piece_of(self, token_id: int) -> bytes:
        """The bytes that the token adds. Raises `IndexError` outside the vocabulary."""
        piece = self._vocabulary.bytes_of(token_id)
        if self._special_tokens == "show" and self._vocabulary.is_special(token_id):
            return self._vocabulary.text_of(token_id).encode()
        return piece

    def start(self, on_stop: OnStop, skip_bytes: int = 0, min_tokens: int = 0) -> State:
        """The state before the first byte."""
        state = self._state(0, b"", on_stop)
        return self._opened(state, skip_bytes, max(0, min_tokens - 1))

    def end(self, state: State) -> State:
        """The state after a text that ends in this one."""
        held = state.held[len(state.held) - incomplete_tail(state.held) :]
        return self._end(held, -1)

    def take(self, state: State, token_id: int) -> Step:
        """The step that the token takes for the first time in this state; the state keeps it."""
        step = self._walk(state, self.piece_of(token_id), self._stops.completed)
        if self._n_steps >= self._memo_entries:
            self._forget()
        state[token_id] = step
        self._n_steps += 1
        return step

    def take_first(self, state: Opening, token_id: int) -> Step:
        """A step while healed bytes are skipped, or a complete stop string is still text."""
        piece = self.piece_of(token_id)
        n_healed = min(len(piece), state.n_skip)
        n_skip, n_early = state.n_skip - n_healed, state.n_early
        if n_healed and n_healed == len(piece):
            return "", self._opened(state, n_skip, n_early), 0, 0
        completed = self._never if n_early else self._stops.completed
        text, after, n_text, n_held = self._walk(state, piece[n_healed:], completed)
        return text, self._opened(after, n_skip, max(0, n_early - 1)), n_text, n_held

    def _walk(self, state: State, piece: bytes, completed: Sequence[int]) -> Step:
        """Reads the bytes one by one until a stop string is complete."""
        rows, node = self._stops.rows, state.node
        for index, byte in enumerate(piece):
            node = rows[node][byte]
            if completed[node] >= 0:
                read = state.held + piece[: index + 1]
                return self._stopped(state, read, completed[node])
        read = state.held + piece
        n_held = max(state.holds[node], incomplete_tail(read))
        n_sent = len(read) - n_held
        return _step(read[:n_sent], self._state(node, read[n_sent:], self._on_stop(state)))

    def _stopped(self, state: State, read: bytes, stop: int) -> Step:
        if self._on_stop(state) is OnStop.EXCLUDE:
            read = read[: len(read) - self._stops.lengths[stop]]
        return _step(read, self._end(b"", stop))

    def _on_stop(self, state: State) -> OnStop:
        return OnStop.EXCLUDE if state.holds is self._stops.holds else OnStop.INCLUDE

    def _state(self, node: int, held: bytes, on_stop: OnStop) -> State:
        key = (node, held, on_stop)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State(self, node, held, self._holds[on_stop])
        return state

    def _opened(self, state: State, n_skip: int, n_early: int) -> State:
        if state.ended:
            return state
        if n_skip or n_early:
            return Opening(self, state, n_skip, n_early)
        return self._state(state.node, state.held, self._on_stop(state))

    def _end(self, held: bytes, stop: int) -> State:
        state = self._ends.get((held, stop))
        if state is None:
            state = self._ends[held, stop] = End(self, 0, held, self._stops.holds, stop)
        return state

    def _forget(self) -> None:
        # A copy, since another thread may add the state that its text starts in.
        for state in list(self._states.values()):
            state.clear()
        self._n_steps = 0
