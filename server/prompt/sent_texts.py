"""The texts of late before cursors: whether one that is sent begins inside its document.

Some clients clip the text themselves, to so many lines above the cursor. Its beginning moves with
every line then, and nothing of a prompt that began with it would stay in the cache. One request
does not say whether that is so. A *move* is one whose text stands in that of the request before
from a later line on; one move may be a line that was deleted, two are believed. That is forgotten
again where the beginning comes back, as an undo brings it, and where it stays although the text
grows or shrinks by a quarter: a clip's would have moved.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable
from dataclasses import dataclass, replace

MAX_REMEMBERED = 16
# A shorter text may stand in another one by chance.
_MIN_CHARS = 64
_N_MOVES = 2


@dataclass(frozen=True, slots=True)
class _Sent:
    """A text and where from; `lost` are its beginnings before its moves, the latest last, and
    `n_chars` is how long it was at the last of them."""

    source: Hashable
    text: str
    n_chars: int
    lost: tuple[str, ...] = ()


class SentTexts:
    """What was sent of late; for one thread."""

    def __init__(self) -> None:
        self._sent: collections.deque[_Sent] = collections.deque(maxlen=MAX_REMEMBERED)

    def is_clipped(self, text: str, source: Hashable = None) -> bool:
        """Whether the client has clipped `text`, as far as earlier ones tell; remembers it.

        `source` says whose text it is: only those of the same one are compared.
        """
        # What stands last may have been typed since.
        head = text[: len(text) * 3 // 4]
        if len(head) < _MIN_CHARS:
            return False
        own = [sent for sent in self._sent if sent.source == source]
        for sent in own[:]:
            if text.startswith(sent.lost):
                self._sent.remove(sent)
                own.remove(sent)
        now = _Sent(source, text, len(text))
        before = next((sent for sent in reversed(own) if _goes_on(sent, text, head)), None)
        if before is not None:
            self._sent.remove(before)
            now = _gone_on(before, text, head)
        self._sent.append(now)
        return len(now.lost) >= _N_MOVES


def _goes_on(sent: _Sent, text: str, head: str) -> bool:
    """Whether `text`, which begins with `head`, is `sent` some keys or lines later."""
    if sent.text.startswith(head):
        return True
    return "\n" + head in sent.text and len(text) * 4 >= len(sent.text) * 3


def _gone_on(sent: _Sent, text: str, head: str) -> _Sent:
    """`sent` some keys or lines later, where it is `text`."""
    if not sent.text.startswith(head):
        lost = (*sent.lost, sent.text[:_MIN_CHARS])[-_N_MOVES:]
        return _Sent(sent.source, text, len(text), lost)
    if abs(len(text) - sent.n_chars) * 4 > sent.n_chars:
        return _Sent(sent.source, text, len(text))
    return replace(sent, text=text)
