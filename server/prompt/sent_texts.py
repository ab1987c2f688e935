"""The texts of late before cursors: whether one that is sent begins inside its document.

Some clients clip the text themselves, to so many lines above the cursor. Its beginning moves with
every line then, and nothing of a prompt that began with it would stay in the cache. One request
does not say whether that is so, but two do: the text of the second stands in that of the first
from a later line on.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass

MAX_REMEMBERED = 16
# A shorter text may stand in another one by chance.
_MIN_CHARS = 64


@dataclass(frozen=True, slots=True)
class _Sent:
    text: str
    is_clipped: bool


class SentTexts:
    """What was sent of late; for one thread."""

    def __init__(self) -> None:
        self._sent: collections.deque[_Sent] = collections.deque(maxlen=MAX_REMEMBERED)

    def is_clipped(self, text: str) -> bool:
        """Whether the client has clipped `text`, as far as earlier ones tell; remembers it."""
        # What stands last may have been typed since.
        head = text[: len(text) * 3 // 4]
        if len(head) < _MIN_CHARS:
            return False
        before = next((sent for sent in reversed(self._sent) if _goes_on(sent, text, head)), None)
        is_clipped = False
        if before is not None:
            self._sent.remove(before)
            is_clipped = before.is_clipped or not before.text.startswith(head)
        self._sent.append(_Sent(text, is_clipped))
        return is_clipped


def _goes_on(sent: _Sent, text: str, head: str) -> bool:
    """Whether `text`, which begins with `head`, is `sent` some keys or lines later."""
    if sent.text.startswith(head):
        return True
    return "\n" + head in sent.text and len(text) * 4 >= len(sent.text) * 3
