"""Anchors: where the prefix is parted so that what is typed stands at the prompt's end.

    [pre] P1 [suf] S [mid] P2       P1 ends at the *anchor*, P2 is typed

A key then adds its own tokens to the end of the prompt, and all before it is in the cache. For that
P1 and S have to stay what they are while one types, so an anchor is remembered with both, and a
request takes the latest one that its text continues: whose P1 stands in it, with at most
`MAX_LINES` lines or `MAX_TYPED` tokens from there to the cursor, and the same S behind the cursor.

Else there is a new anchor, at a stable cut at or before the start of the cursor's line; in a line
that is too long, at one inside it, in steps. A line's start is no such cut itself: the line end
before it belongs to what comes (`boundary.py`). Behind a new anchor prefix and suffix are read
again, so it moves ahead of time, in a pause (`completion.py`), once half of the way is gone.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass

from suture.server.prompt.extra import ExtraParts
from suture.server.prompt.sent_texts import SentTexts
from suture.server.prompt.warmed import WarmedTexts
from suture.server.prompt.windows import CursorWindows

MAX_LINES = 8
MAX_TYPED = 256
MAX_REMEMBERED = 1024
# Of their texts: one of a front for many holds the windows of hundreds of files.
MAX_CHARS = 1 << 23
_MIN_CHARS = 64


@dataclass(frozen=True, slots=True)
class Anchor:
    """P1 and S as texts and ids, and all else of the prompt that stands before P2.

    `is_opening`: P1 begins the document, as it was sent. `is_whole`: S is all that stands behind
    the cursor. `setting` is what else the prompt was made of: extra text, path, budget; and the
    salt, without which others could tell that the text had been sent.
    """

    text: str
    ids: tuple[int, ...]
    is_opening: bool
    suffix: str
    suffix_ids: tuple[int, ...]
    is_whole: bool
    extra: ExtraParts
    setting: object

    @property
    def n_chars(self) -> int:
        return len(self.text) + len(self.suffix)

    def place_in(self, windows: CursorWindows) -> int | None:
        """Where P1 begins in the prefix window of a request with the same setting; None if its text
        does not continue this anchor."""
        before, after = windows.prefix, windows.suffix
        if not after.text.startswith(self.suffix):
            return None
        is_whole = len(after.text) == len(self.suffix) and not after.truncated
        if is_whole != self.is_whole or (self.is_opening and before.truncated):
            return None
        if self.is_opening:
            at = 0 if before.text.startswith(self.text) else -1
        else:
            at = before.text.rfind(self.text)
        if at < 0 or (at == 0 and not self.is_opening and not before.truncated):
            return None
        n_lines = before.text.count("\n", at + len(self.text))
        return at if n_lines <= MAX_LINES else None


class Anchors:
    """The anchors of late, and the texts that were sent or read ahead of time.

    For one model. Anchors and sent texts are for one thread at a time, as those that plan take
    turns; the event loop adds to `warmed` beside them, which allows that.
    """

    def __init__(self, sent: SentTexts | None = None, warmed: WarmedTexts | None = None) -> None:
        self.sent = SentTexts() if sent is None else sent
        self.warmed = WarmedTexts() if warmed is None else warmed
        # By their settings, since there is no use in looking at others; oldest first.
        self._anchors: collections.OrderedDict[int, Anchor] = collections.OrderedDict()
        self._alike: dict[object, list[int]] = {}
        self._n_remembered = self._n_chars = 0

    def find(self, windows: CursorWindows, setting: object) -> list[tuple[Anchor, int]]:
        """The anchors that a request's text continues, with their places; the latest first."""
        found = []
        for key in reversed(self._alike.get(setting, ())):
            anchor = self._anchors[key]
            at = anchor.place_in(windows)
            if at is not None:
                found.append((anchor, at))
        return found

    def adopt(self, others: Anchors) -> None:
        """Remember the anchors of others as the latest."""
        for anchor in others._anchors.values():
            self.remember(anchor)

    def remember(self, anchor: Anchor) -> None:
        """Have an anchor found, unless its text may stand in any other by chance."""
        if not anchor.is_opening and len(anchor.text) < _MIN_CHARS:
            return
        self._anchors[self._n_remembered] = anchor
        self._alike.setdefault(anchor.setting, []).append(self._n_remembered)
        self._n_remembered += 1
        self._n_chars += anchor.n_chars
        while len(self._anchors) > MAX_REMEMBERED or self._n_chars > MAX_CHARS:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        key, anchor = self._anchors.popitem(last=False)
        self._n_chars -= anchor.n_chars
        alike = self._alike[anchor.setting]
        alike.remove(key)
        if not alike:
            del self._alike[anchor.setting]
