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
T11  `text_chars`, `text_bytes` and `text_utf16` count what was sent.
T12  the faults of others that `tests/regressions` names do not occur.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
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

    def __missing__(self, token_id: int) -> _Step:
        return self._transducer.take(self, token_id)


class _Opening(_State):
    """A state while healed bytes are skipped or stop strings do not count yet.

    Its steps are computed each time: few are taken, and they differ from text to text.
    """

    __slots__ = ("n_early", "n_skip")

    def __init__(
        self, transducer: TokenTransducer, state: _State, n_skip: int, n_early: int
    ) -> None:
        super().__init__(transducer, state.node, state.held, state.holds)
        self.n_skip = n_skip
        self.n_early = n_early

    def __missing__(self, token_id: int) -> _Step:
        return self._transducer.take_first(self, token_id)


class _End(_State):
    """The state after the text; every token leads back here. `held` was not sent."""

    __slots__ = ()
    ended = True

    def __missing__(self, token_id: int) -> _Step:
        return "", self, 0, None


# Bytes held after the step, and how many more bytes and UTF-16 units than characters were sent.
# The step that ends a text always has one.
_Event: TypeAlias = tuple[int, int, int]

# What a token does in a state: the text sent, the state after it, the text's length in code
# points, and what most steps do not have. Plain tuples and one test, because this is all that a
# token costs.
_Step: TypeAlias = tuple[str, _State, int, _Event | None]


def _step(sent: bytes, state: _State) -> _Step:
    text = sent.decode("utf-8", "replace")
    event = (len(state.held), *_excess(text))
    return text, state, len(text), event if any(event) or state.ended else None


def _excess(text: str) -> tuple[int, int]:
    """How many more bytes, and how many more UTF-16 units, than characters a text has."""
    n_utf16 = len(text.encode("utf-16-le")) // 2
    return len(text.encode()) - len(text), n_utf16 - len(text)


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
        self._ends: dict[tuple[bytes, int], _End] = {}
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

    def start(self, on_stop: OnStop, skip_bytes: int = 0, min_tokens: int = 0) -> _State:
        """The state before the first byte."""
        state = self._state(0, b"", on_stop)
        return self._opened(state, skip_bytes, max(0, min_tokens - 1))

    def end(self, state: _State) -> _State:
        """The state after a text that ends in this one."""
        held = state.held[len(state.held) - incomplete_tail(state.held) :]
        return self._end(held, -1)

    def take(self, state: _State, token_id: int) -> _Step:
        """The step that the token takes for the first time in this state; the state keeps it."""
        step = self._walk(state, self.piece_of(token_id), self._stops.completed)
        if self._n_steps >= self._memo_entries:
            self._forget()
        state[token_id] = step
        self._n_steps += 1
        return step

    def take_first(self, state: _Opening, token_id: int) -> _Step:
        """A step while healed bytes are skipped, or a complete stop string is still text."""
        piece = self.piece_of(token_id)
        n_healed = min(len(piece), state.n_skip)
        n_skip, n_early = state.n_skip - n_healed, state.n_early
        if n_healed and n_healed == len(piece):
            return "", self._opened(state, n_skip, n_early), 0, None
        completed = self._never if n_early else self._stops.completed
        text, after, n_chars, event = self._walk(state, piece[n_healed:], completed)
        return text, self._opened(after, n_skip, max(0, n_early - 1)), n_chars, event

    def _walk(self, state: _State, piece: bytes, completed: Sequence[int]) -> _Step:
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

    def _stopped(self, state: _State, read: bytes, stop: int) -> _Step:
        if self._on_stop(state) is OnStop.EXCLUDE:
            read = read[: len(read) - self._stops.lengths[stop]]
        return _step(read, self._end(b"", stop))

    def _on_stop(self, state: _State) -> OnStop:
        return OnStop.EXCLUDE if state.holds is self._stops.holds else OnStop.INCLUDE

    def _state(self, node: int, held: bytes, on_stop: OnStop) -> _State:
        key = (node, held, on_stop)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(self, node, held, self._holds[on_stop])
        return state

    def _opened(self, state: _State, n_skip: int, n_early: int) -> _State:
        if isinstance(state, _End):
            return state
        if n_skip or n_early:
            return _Opening(self, state, n_skip, n_early)
        return self._state(state.node, state.held, self._on_stop(state))

    def _end(self, held: bytes, stop: int) -> _State:
        state = self._ends.get((held, stop))
        if state is None:
            state = self._ends[held, stop] = _End(self, 0, held, self._stops.holds, stop)
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
    counters: tuple[int, int, int, int, int]


class Detokenizer:
    """One text being generated.

    `skip_bytes` healed bytes come first and are not shown. Stop strings complete before the
    `min_tokens`-th new token do not count; tokens that only repeat healed bytes are not new.
    `on_incomplete` says what `flush` makes of an unfinished character.

    `text_chars`, `text_bytes` and `text_utf16` measure the text sent; when the text has ended,
    they are where it was cut. `held_steps` counts tokens after which something was held, and
    `held_max_bytes` is the most.
    """

    __slots__ = (
        "_n_more_bytes",
        "_n_more_utf16",
        "_on_incomplete",
        "_state",
        "_transducer",
        "held_max_bytes",
        "held_steps",
        "text_chars",
    )

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
        self._on_incomplete = on_incomplete
        self._state = transducer.start(include_stop, skip_bytes, min_tokens)
        self.held_steps = 0
        self.held_max_bytes = 0
        self.text_chars = 0
        self._n_more_bytes = 0
        self._n_more_utf16 = 0

    @property
    def ended(self) -> bool:
        """Whether a stop string or `flush` has ended the text."""
        return self._state.ended

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self._state.stop >= 0

    @property
    def stop_match(self) -> str | None:
        """The stop string that ended the text."""
        return self._transducer.stops[self._state.stop] if self.stopped else None

    @property
    def held_bytes(self) -> int:
        """Bytes read that may still be sent."""
        return 0 if self.ended else len(self._state.held)

    @property
    def text_bytes(self) -> int:
        """Bytes of the text sent, as UTF-8."""
        return self.text_chars + self._n_more_bytes

    @property
    def text_utf16(self) -> int:
        """UTF-16 units of the text sent."""
        return self.text_chars + self._n_more_utf16

    @property
    def incomplete(self) -> bool:
        """Whether the bytes so far end inside a character."""
        return incomplete_tail(self._state.held) > 0

    def feed(self, token_id: int) -> str:
        """Takes a token and returns the text that it releases, often none.

        After the text has ended, nothing more comes. Raises `IndexError` for a token outside the
        vocabulary.
        """
        text, self._state, n_chars, event = self._state[token_id]
        self.text_chars += n_chars
        if event is not None:
            # `_note`, without a call: where stop strings begin in blanks it is every sixth token.
            n_held, n_more_bytes, n_more_utf16 = event
            if n_held:
                self.held_steps += 1
                if n_held > self.held_max_bytes:
                    self.held_max_bytes = n_held
            if n_more_bytes:
                self._n_more_bytes += n_more_bytes
                self._n_more_utf16 += n_more_utf16
        return text

    def feed_all(self, token_ids: Iterable[int]) -> tuple[str, int]:
        """Takes tokens up to the one that completes a stop string: their text, and how many.

        As `feed` one by one, but where it raises `IndexError`, none of them is taken.
        """
        state, text, n_tokens = self._state, "", 0
        events: list[_Event] = []
        if state.ended:
            return "", 0
        for token_id in token_ids:
            delta, state, _, event = state[token_id]
            text += delta
            n_tokens += 1
            if event is not None:
                events.append(event)
                if state.ended:
                    break
        self._state = state
        self.text_chars += len(text)
        for event in events:
            self._note(event)
        return text, n_tokens

    def flush(self) -> str:
        """Ends the text and returns what is still held; an unfinished character is U+FFFD or
        dropped."""
        if self.ended:
            return ""
        held = self._state.held
        self._state = self._transducer.end(self._state)
        if self._on_incomplete == "drop":
            held = held[: len(held) - incomplete_tail(held)]
        text = held.decode("utf-8", "replace")
        self.text_chars += len(text)
        self._note((0, *_excess(text)))
        return text

    def snapshot(self) -> Snapshot:
        """The present state, cheap to take and to keep."""
        text = (self.text_chars, self._n_more_bytes, self._n_more_utf16)
        return Snapshot(self._state, (*text, self.held_steps, self.held_max_bytes))

    def restore(self, snapshot: Snapshot) -> None:
        """Puts back the state of a snapshot of this detokenizer, as if nothing had come since."""
        self._state = snapshot.state
        self.text_chars, self._n_more_bytes, self._n_more_utf16 = snapshot.counters[:3]
        self.held_steps, self.held_max_bytes = snapshot.counters[3:]

    def _note(self, event: _Event) -> None:
        n_held, n_more_bytes, n_more_utf16 = event
        if n_held:
            self.held_steps += 1
            if n_held > self.held_max_bytes:
                self.held_max_bytes = n_held
        self._n_more_bytes += n_more_bytes
        self._n_more_utf16 += n_more_utf16
