"""What was answered of late: who types a suggestion has the rest of it at once. PURE.

A *suggestion* is a text in the place of the first few characters behind a cursor. While one types
what it says, also after a part of it was accepted or taken back, what is left of it is the answer.
Closers that the editor put behind the cursor, or that one typed over, are no difference: the rest
replaces those that it writes itself.

W1  Never stale: with the rest accepted the document is the one that the suggestion, accepted where
    it was made, would have made of it, but for closers that the editor added and it does not write.
W2  While what is typed is a beginning of the text and some of it is left that is not blank, and not
    what stands there already, there is an answer, if the editor adds nothing.
"""

from __future__ import annotations

import collections
import sys
from dataclasses import dataclass, field, replace

from suture.server.shaping.closers import OverClosers, are_auto_closed

# Suggestions remembered of one document: those shown, and those fetched ahead.
MAX_SUGGESTIONS = 24
# And of how much memory: each holds the text around its cursor, which is long in a long file.
MAX_BYTES = 2**22


@dataclass(frozen=True, slots=True)
class Suggestion:
    """`text` in the place of the first `delete_after` code points behind the cursor.

    It is the part from `start` on, a line end as one character, of the answer with that `number`.
    """

    text: str
    delete_after: int = 0
    number: int = field(default=0, compare=False)
    start: int = field(default=0, compare=False)

    def says_nothing(self, suffix: str) -> bool:
        """Whether it is blank, or what stands there already."""
        return not self.text.strip() or self.text == suffix[: self.delete_after]


@dataclass(frozen=True, slots=True)
class _Made:
    """A suggestion, and the texts around the cursor that it was made for."""

    prefix: str
    suffix: str
    suggestion: Suggestion

    @property
    def n_bytes(self) -> int:
        return sum(map(sys.getsizeof, (self.prefix, self.suffix, self.suggestion.text)))

    def is_same(self, prefix: str, suffix: str, number: int) -> bool:
        """Whether it is the suggestion of that number for this cursor. 0 is the number of none."""
        is_numbered = number != 0 and self.suggestion.number == number
        return is_numbered and (self.prefix, self.suffix) == (prefix, suffix)

    def rest(self, prefix: str, suffix: str) -> Suggestion | None:
        """What is left of it at another cursor; None where that is not on its way (W1)."""
        whole = self.suggestion.text
        typed = prefix[len(self.prefix) :]
        if not prefix.startswith(self.prefix) or not whole.startswith(typed):
            return None
        # Nothing was typed over where all still stands behind the cursor.
        n_over = 0 if suffix.endswith(self.suffix) else self._n_typed_over(typed)
        replaced = self.suffix[n_over : self.suggestion.delete_after]
        behind = self.suffix[n_over:]
        if not suffix.endswith(behind):
            return None
        rest = replace(
            self.suggestion,
            text=whole[len(typed) :],
            delete_after=len(replaced),
            start=self.suggestion.start + len(typed) - typed.count("\r\n"),
        )
        added = suffix.removesuffix(behind)
        return rest if not added else _over(added, rest, typed, prefix, suffix)

    def _n_typed_over(self, typed: str) -> int:
        """How many of the characters that the text replaces were typed over."""
        over = OverClosers(self.suffix[: self.suggestion.delete_after], self.prefix)
        over.feed(typed)
        return over.edit.delete_after if over.edit else 0


def _over(added: str, rest: Suggestion, typed: str, prefix: str, suffix: str) -> Suggestion | None:
    """A rest that also replaces those closers which the editor added and it writes itself."""
    if not are_auto_closed(added, typed):
        return None
    n_closers = len(added) + rest.delete_after
    over = OverClosers(suffix[:n_closers], prefix)
    over.feed(rest.text)
    edit = over.edit
    if edit is None or edit.text != rest.text:
        return None
    # What it replaced where it was made it still must.
    if edit.delete_after < n_closers and rest.delete_after:
        return None
    return replace(rest, delete_after=edit.delete_after)


class Shown:
    """The suggestions of one document, the latest last."""

    def __init__(self, capacity: int = MAX_SUGGESTIONS, max_bytes: int = MAX_BYTES) -> None:
        self._made: collections.deque[_Made] = collections.deque(maxlen=capacity)
        self._max_bytes = max_bytes

    def add(self, prefix: str, suffix: str, suggestion: Suggestion) -> None:
        """Remember what was answered at a cursor (W3)."""
        if not suggestion.says_nothing(suffix):
            for made in list(self._made):
                if made.is_same(prefix, suffix, suggestion.number):
                    self._made.remove(made)
            self._made.append(_Made(prefix, suffix, suggestion))
            while len(self._made) > 1 and sum(one.n_bytes for one in self._made) > self._max_bytes:
                self._made.popleft()

    def rest(self, prefix: str, suffix: str) -> Suggestion | None:
        """What is left of the latest suggestion that this cursor is on the way of (W2)."""
        for made in reversed(self._made):
            rest = made.rest(prefix, suffix)
            if rest is not None and not rest.says_nothing(suffix):
                return rest
        return None

    def clear(self) -> None:
        self._made.clear()
