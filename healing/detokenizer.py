"""Tokens to text, one at a time: unfinished characters and possible stop strings are held back.

After each token everything is sent but the longest tail that is either an unfinished character
or the beginning of a stop string.

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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from suture.healing.lengths import lengths_of, n_bytes, n_chars, n_utf16
from suture.healing.stops import OnStop
from suture.healing.transducer import State, TokenTransducer
from suture.healing.utf8 import incomplete_tail


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a `Detokenizer` remembers; opaque."""

    state: State
    counters: tuple[int, int, int]


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
        "_lengths",
        "_on_incomplete",
        "_state",
        "_transducer",
        "held_max_bytes",
        "held_steps",
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
        if skip_bytes < 0 or min_tokens < 0:
            raise ValueError(f"skip_bytes {skip_bytes} or min_tokens {min_tokens} is negative")
        if on_incomplete not in ("replace", "drop"):
            raise ValueError(f'on_incomplete is "replace" or "drop", not {on_incomplete!r}')
        self._transducer = transducer
        self._on_incomplete = on_incomplete
        self._state = transducer.start(include_stop, skip_bytes, min_tokens)
        self.held_steps = 0
        self.held_max_bytes = 0
        self._lengths = 0

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
    def text_chars(self) -> int:
        """Code points of the text sent."""
        return n_chars(self._lengths)

    @property
    def text_bytes(self) -> int:
        """Bytes of the text sent, as UTF-8."""
        return n_bytes(self._lengths)

    @property
    def text_utf16(self) -> int:
        """UTF-16 units of the text sent."""
        return n_utf16(self._lengths)

    @property
    def held_chars(self) -> int:
        """Whole characters read that may still be sent."""
        if self.ended:
            return 0
        held = self._state.held
        return len(held[: len(held) - incomplete_tail(held)].decode("utf-8", "replace"))

    @property
    def incomplete(self) -> bool:
        """Whether the bytes so far end inside a character."""
        return incomplete_tail(self._state.held) > 0

    def feed(self, token_id: int) -> str:
        """Takes a token and returns the text that it releases, often none.

        After the text has ended, nothing more comes. Raises `IndexError` for a token outside the
        vocabulary.
        """
        text, self._state, n_text, n_held = self._state[token_id]
        self._lengths += n_text
        if n_held > 0:
            self.held_steps += 1
            if n_held > self.held_max_bytes:
                self.held_max_bytes = n_held
        return text

    def feed_all(self, token_ids: Iterable[int]) -> tuple[str, int]:
        """Takes tokens up to the one that completes a stop string: their text, and how many.

        As `feed` one by one, but where it raises `IndexError`, none of them is taken.
        """
        state = self._state
        if state.ended:
            return "", 0
        n_all = 0
        texts: list[str] = []
        holds: list[int] = []
        for token_id in token_ids:
            text, state, n_text, n_held = state[token_id]
            texts.append(text)
            n_all += n_text
            if n_held:
                if n_held < 0:
                    break
                holds.append(n_held)
        self._state = state
        self._lengths += n_all
        if holds:
            self.held_steps += len(holds)
            self.held_max_bytes = max(self.held_max_bytes, *holds)
        return "".join(texts), len(texts)

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
        self._lengths += lengths_of(text)
        return text

    def snapshot(self) -> Snapshot:
        """The present state, cheap to take and to keep."""
        counters = (self._lengths, self.held_steps, self.held_max_bytes)
        return Snapshot(self._state, counters)

    def restore(self, snapshot: Snapshot) -> None:
        """Puts back the state of a snapshot of this detokenizer, as if nothing had come since."""
        self._state = snapshot.state
        self._lengths, self.held_steps, self.held_max_bytes = snapshot.counters
