"""What each token of a text was, for clients that ask for log probabilities.

A `TokenLog` stands beside a `Detokenizer` and is fed the same tokens; without one nothing is paid.
It has one entry for each token, also for those that released no text, with the token's own bytes
and never those of a U+FFFD that stands for them. An entry comes with the text that has its token's
last byte, so that no client has an entry for text that it was not sent:

    log.add(token_id)
    text = detokenizer.feed(token_id)
    entries = log.take(detokenizer)

and once more after `flush`. Where one step had several tokens, `add` those that `feed_all` took.

O1  one entry for each token, in order.
O2  the entries' bytes, joined, without the healed ones, begin with those that the text decodes.
O3  `text_offset` never decreases, and never lies outside the text.
O4  an entry waits exactly while the last byte of its token is held; at the end none waits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from suture.healing.detokenizer import Detokenizer
from suture.healing.transducer import TokenTransducer
from suture.healing.utf8 import incomplete_tail


def display_text(piece: bytes) -> str:
    """A token's bytes decoded alone, to be looked at: several tokens may share one."""
    return piece.decode("utf-8", "replace")


def display_name(piece: bytes) -> str:
    """A token's text, or where it has none ``bytes:\\xf0\\x9f``, as OpenAI's lists say it."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


@dataclass(frozen=True, slots=True)
class LoggedToken:
    """A token and the character of the text, counted from 0, that its first byte is part of.

    `text_offset` is the text's length for a token that is not part of it, and counts nothing that
    stands before the generated text.
    """

    token_id: int
    piece: bytes
    text_offset: int


class TokenLog:
    """The tokens of one text; `skip_bytes` as for its `Detokenizer`."""

    def __init__(self, transducer: TokenTransducer, skip_bytes: int = 0) -> None:
        self._transducer = transducer
        self._n_skip = skip_bytes
        # Characters before the unfinished one, and its bytes so far.
        self._n_chars = 0
        self._tail = b""
        self._n_read = 0
        self._waiting: deque[tuple[int, LoggedToken]] = deque()

    def add(self, token_id: int) -> None:
        """Takes the next token. Raises `IndexError` outside the vocabulary."""
        piece = self._transducer.piece_of(token_id)
        n_healed = min(len(piece), self._n_skip)
        self._n_skip -= n_healed
        new = piece[n_healed:]
        entry = LoggedToken(token_id, piece, self._offset(new))
        self._read(new)
        self._waiting.append((self._n_read, entry))

    def take(self, detokenizer: Detokenizer) -> list[LoggedToken]:
        """Entries not taken yet of tokens of which the detokenizer, fed the same, holds nothing;
        once its text has ended, all."""
        n_sent = self._n_read - detokenizer.held_bytes
        entries = []
        while self._waiting and self._waiting[0][0] <= n_sent:
            entries.append(self._waiting.popleft()[1])
        if not detokenizer.ended:
            return entries
        n_chars = detokenizer.text_chars
        return [replace(entry, text_offset=min(entry.text_offset, n_chars)) for entry in entries]

    def _offset(self, new: bytes) -> int:
        """Index of the character that the first of these bytes is part of, or will be."""
        goes_on = not new or _continues(self._tail, new[:1])
        return self._n_chars if goes_on else self._n_chars + 1

    def _read(self, new: bytes) -> None:
        self._n_read += len(new)
        data = self._tail + new
        n_whole = len(data) - incomplete_tail(data)
        self._n_chars += len(data[:n_whole].decode("utf-8", "replace"))
        self._tail = data[n_whole:]


def _continues(tail: bytes, byte: bytes) -> bool:
    """Whether the byte is part of the same character as the unfinished one before it."""
    return not tail or len((tail + byte).decode("utf-8", "replace")) == 1
