"""Tokens to text, one at a time: unfinished characters and possible stop strings are held back.

After each token everything is sent but the longest tail that is either an unfinished character
or the beginning of a stop string. That tail and the automaton's state determine all that can
happen next, so they form the states of a transducer over tokens, and each step that was taken
once is a dictionary look-up from then on, for every request with the same stop strings.

Ill-formed bytes become U+FFFD, one for each maximal subpart, as soon as no continuation can make
them well formed. A stop string is found where reading byte by byte first completes one, whatever
the tokens; of several that end there the longest counts. With stop ``END`` the tokens ``aEN`` and
``Db`` give ``a`` and then nothing.

T1   the text does not depend on how the bytes are cut into tokens.
T2   it is the decoding of all bytes, or of those before (`OnStop.INCLUDE`: up to the end of) the
     stop string that completes first.
T3   no more is held than the tail described above.
T4   what was sent is never changed, and is valid text.
T5   no U+FFFD is sent for bytes that may still become a character.
T6   fewer bytes are held than the longest stop string or a character has.
T7   byte-level tokenizers: the text equals what their own decoder makes of all tokens at once.
T8   healed bytes are skipped exactly; the automaton and the decoder start after them.
T9   every byte of a token's piece is sent, held or part of the stop; special tokens have none.
T10  `restore` puts back any earlier state.
T11  `text_bytes` and `text_utf16` count what was sent.
T12  the faults of others that `tests/regressions` names do not occur.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from suture.healing.stops import StopSet
from suture.healing.utf8 import incomplete_tail
from suture.healing.vocabulary import Vocabulary

_MEMO_ENTRIES = 65_536


class OnStop(enum.Enum):
    """Whether the stop string that ends the text is part of it."""

    EXCLUDE = enum.auto()
    INCLUDE = enum.auto()


class _State(dict[int, "_Step"]):
    """Where a text stands between two tokens, and the steps that were taken from there.

    `holds` says per automaton state how much of a possible stop string is held.
    """

    __slots__ = ("_transducer", "held", "holds", "node")

    def __init__(
        self, transducer: TokenTransducer, node: int, held: bytes, holds: Sequence[int]
    ) -> None:
        super().__init__()
        self._transducer = transducer
        self.node = node
        self.held = held
        self.holds = holds

    def __missing__(self, token_id: int) -> _Step:
        return self._transducer.take(self, token_id)


@dataclass(frozen=True, slots=True)
class _Event:
    """What most steps do not have: bytes held, a stop string (its index, else -1), and text
    that has fewer UTF-16 units than bytes."""

    n_held: int
    stop: int
    n_utf16_saved: int


# What a token does in a state: the text sent, the state after it, the text's length in bytes, and
# the event if there is one. A plain tuple and one test, because this is all that a token costs.
_Step: TypeAlias = tuple[str, _State, int, _Event | None]


def _step(sent: bytes, state: _State, stop: int = -1) -> _Step:
    text = sent.decode("utf-8", "replace")
    n_bytes = len(text.encode())
    event = _Event(len(state.held), stop, n_bytes - len(text.encode("utf-16-le")) // 2)
    return text, state, n_bytes, None if event == _Event(0, -1, 0) else event


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
        self._vocabulary = vocabulary
        self._memo_entries = memo_entries
        self._special_tokens = special_tokens
        self._stops = StopSet(stops)
        self._states: dict[tuple[int, bytes, OnStop], _State] = {}
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

    def start(self, on_stop: OnStop) -> _State:
        """The state before the first byte."""
        return self._state(0, b"", on_stop)

    def take(self, state: _State, token_id: int) -> _Step:
        """The step that the token takes for the first time in this state; the state keeps it."""
        step = self.walk(state, self.piece_of(token_id))
        if self._n_steps >= self._memo_entries:
            self._forget()
        state[token_id] = step
        self._n_steps += 1
        return step

    def walk(self, state: _State, piece: bytes) -> _Step:
        """Reads the bytes one by one until a stop string is complete."""
        return self._walk(state, piece, self._stops.completed)

    def walk_past_stops(self, state: _State, piece: bytes) -> _Step:
        """Reads the bytes; a stop string that is complete is text, one that is not may go on."""
        return self._walk(state, piece, self._never)

    def _walk(self, state: _State, piece: bytes, completed: Sequence[int]) -> _Step:
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

    def _stopped(self, state: _State, read: bytes, stop: int) -> _Step:
        on_stop = self._on_stop(state)
        if on_stop is OnStop.EXCLUDE:
            read = read[: len(read) - self._stops.lengths[stop]]
        return _step(read, self.start(on_stop), stop)

    def _on_stop(self, state: _State) -> OnStop:
        return OnStop.EXCLUDE if state.holds is self._stops.holds else OnStop.INCLUDE

    def _state(self, node: int, held: bytes, on_stop: OnStop) -> _State:
        key = (node, held, on_stop)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(self, node, held, self._holds[on_stop])
        return state

    def _forget(self) -> None:
        # A copy, since another thread may add the state that its text starts in.
        for state in list(self._states.values()):
            state.clear()
        self._n_steps = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a `Detokenizer` remembers; opaque."""

    state: _State
    n_skip: int
    n_tokens: int
    stop: int
    ended: bool
    counters: tuple[int, int, int, int]


class Detokenizer:
    """One text being generated.

    `skip_bytes` healed bytes come first and are not shown. Stop strings complete before the
    `min_tokens`-th new token do not count; tokens that only repeat healed bytes are not new.
    `on_incomplete` says what `flush` makes of an unfinished character.
    """

    def __init__(
        self,
        transducer: TokenTransducer,
        *,
        skip_bytes: int = 0,
        min_tokens: int = 0,
        include_stop: OnStop = OnStop.EXCLUDE,
        on_incomplete: Literal["replace", "drop"] = "replace",
    ) -> None:
        self._transducer = transducer
        self._min_tokens = min_tokens
        self._on_incomplete = on_incomplete
        self._state = transducer.start(include_stop)
        self._n_skip = skip_bytes
        self._n_tokens = 0
        self._stop = -1
        self._ended = False
        # The first tokens and the end take the slow way; this is the one test before the fast one.
        self._is_plain = not skip_bytes and min_tokens < 2
        self.held_steps = 0
        self.held_max_bytes = 0
        self.text_bytes = 0
        self._n_utf16_saved = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self._stop >= 0

    @property
    def stop_match(self) -> str | None:
        """The stop string that ended the text."""
        return self._transducer.stops[self._stop] if self._stop >= 0 else None

    @property
    def held_bytes(self) -> int:
        """Bytes read and not sent."""
        return len(self._state.held)

    @property
    def text_utf16(self) -> int:
        """UTF-16 units of the text sent."""
        return self.text_bytes - self._n_utf16_saved

    @property
    def incomplete(self) -> bool:
        """Whether the bytes so far end inside a character."""
        return incomplete_tail(self._state.held) > 0

    def feed(self, token_id: int) -> str:
        """Takes a token and returns the text that it releases, often none.

        After the text has ended, nothing more comes. Raises `IndexError` for a token outside the
        vocabulary.
        """
        if self._is_plain:
            step = self._state[token_id]
        elif self._ended:
            return ""
        else:
            step = self._first_step(token_id)
        text, self._state, n_bytes, event = step
        self.text_bytes += n_bytes
        if event is not None:
            self._note(event)
        return text

    def flush(self) -> str:
        """Ends the text and returns what is still held; an unfinished character is U+FFFD or
        dropped."""
        if self._ended:
            return ""
        self._end()
        held = self._state.held
        if self._on_incomplete == "drop":
            held = held[: len(held) - incomplete_tail(held)]
        text = held.decode("utf-8", "replace")
        n_bytes = len(text.encode())
        self.text_bytes += n_bytes
        self._n_utf16_saved += n_bytes - len(text.encode("utf-16-le")) // 2
        return text

    def snapshot(self) -> Snapshot:
        """The present state, cheap to take and to keep."""
        counters = (self.held_steps, self.held_max_bytes, self.text_bytes, self._n_utf16_saved)
        return Snapshot(
            self._state, self._n_skip, self._n_tokens, self._stop, self._ended, counters
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Puts back the state of a snapshot of this detokenizer, as if nothing had come since."""
        self._state, self._n_skip = snapshot.state, snapshot.n_skip
        self._n_tokens, self._stop = snapshot.n_tokens, snapshot.stop
        self._ended = snapshot.ended
        self._is_plain = self._is_past_first() and not self._ended
        self.held_steps, self.held_max_bytes = snapshot.counters[:2]
        self.text_bytes, self._n_utf16_saved = snapshot.counters[2:]

    def _first_step(self, token_id: int) -> _Step:
        """A step while healed bytes are skipped or stop strings do not count yet."""
        piece = self._transducer.piece_of(token_id)
        n_healed = min(len(piece), self._n_skip)
        self._n_skip -= n_healed
        if n_healed and n_healed == len(piece):
            self._is_plain = self._is_past_first()
            return "", self._state, 0, None
        self._n_tokens += 1
        self._is_plain = self._is_past_first()
        if self._n_tokens < self._min_tokens:
            return self._transducer.walk_past_stops(self._state, piece[n_healed:])
        return self._transducer.walk(self._state, piece[n_healed:])

    def _note(self, event: _Event) -> None:
        self._n_utf16_saved += event.n_utf16_saved
        if event.n_held:
            self.held_steps += 1
            self.held_max_bytes = max(self.held_max_bytes, event.n_held)
        if event.stop >= 0:
            self._stop = event.stop
            self._end()

    def _is_past_first(self) -> bool:
        """Whether no healed bytes are left to skip, and stop strings count from the next token."""
        return not self._n_skip and self._n_tokens + 1 >= self._min_tokens

    def _end(self) -> None:
        self._ended = True
        self._is_plain = False
