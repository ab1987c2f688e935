"""Whether a pre-tokenizer splits between two tokens, when little is known of what is around them.

Two tokens in a text are seen by a pre-tokenizer in one of three ways: it splits at the *seam*
between them, it does not, or it *cuts* one of them in two, which then is no token of that text.
What it does may depend on what stands before them (digits are counted in threes, ``'s`` is split
off only where no other punctuation is before it) and after them (the last blank of a run goes to a
word). Both are tried with a few characters of every kind.

Tokens of the same *shape* are treated alike: all letters are one letter to the expressions, but for
those of contractions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from suture.healing.pretokenizer import Pretokenizer, shadow
from suture.healing.utf8 import incomplete_tail

# What may change a split, by the character that it stands next to; all of it for other characters.
_BEFORE_ANY = ("", "a", " ", "\n", ".", "'", "0", "00", "A")
_BEFORE = (
    dict.fromkeys("aA", ("", "'", "a", "A"))
    | dict.fromkeys("sSlL", ("", "'", "a", ".'"))
    | dict.fromkeys("0", ("", "0", "00"))
    | dict.fromkeys(" \n\v", ("", "a", " ", "\n", "."))
    | dict.fromkeys(".+/`'", ("", "a", " ", "."))
)
_AFTER_ANY = ("", "a", " ", "\n", ".", "0", "00")
_AFTER = (
    dict.fromkeys("aAsSlL", ("", "a"))
    | dict.fromkeys("0", ("", "a", "0", "00"))
    | dict.fromkeys(".+/`'", ("", "a", "."))
    # Nothing but the beginning of a character, which may turn out to be the last of some blanks.
    | {"": (*_AFTER_ANY, " a")}
)
_AFTER_CHARACTER = ("é", "我", "\u0301", "—", "€", "²", "\u200b", "\u3000", "\u3000a", "あ")
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
# Letters that make a contraction with the apostrophe before them stand for themselves.
_CONTRACTION = re.compile(r"(?:^|(?<='))(?:[stmd]|re|ve|ll|[STMD]|R[Ee]|V[Ee]|L[Ll])")
_KEPT = {1: ("s", "S"), 2: ("ll", "LL")}
_RUN = re.compile(r"([^0\x08])\1+|0{5,}|\x08{5,}", re.DOTALL)
_SHAPES = str.maketrans(
    {character: "a" for character in "abcdefghijklmnopqrstuvwxyz"}
    | {character: "A" for character in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    | {character: "0" for character in "123456789"}
    | {character: "." for character in '!"#%&()*,-:;?@[\\]_{}'}
    | {character: "+" for character in "$<=>^|~"}
    | {"\r": "\n", "\t": "\v", "\f": "\v"}
)
# One character of each kind that a shadow tells apart.
_OF_KIND = str.maketrans(dict(zip("\1\2\3\4\5\6\7\b", "é我\u0301—€\u200bあ²", strict=True)))


@dataclass(frozen=True, slots=True)
class Seam:
    """What may happen between two tokens: a split, none, and whether what stands before decides."""

    may_split: bool
    may_join: bool
    depends: bool


_ANYTHING, _NO_TEXT, _IN_CHARACTER = (
    Seam(True, True, True),
    Seam(False, False, False),
    Seam(False, True, False),
)


class Seams:
    """The splits of one pre-tokenizer, which must be known."""

    def __init__(self, pretokenizer: Pretokenizer) -> None:
        self._pretokenizer = pretokenizer
        self._seams: dict[tuple[str, str], Seam] = {}
        self._wholes: dict[str, bool] = {}
        self._shape = lru_cache(1 << 16)(_shape)

    def between(self, left: bytes, right: bytes) -> Seam:
        """What may happen at the seam of two tokens, neither of them cut."""
        if right[0] in _CONTINUATION_BYTES:
            return _IN_CHARACTER if incomplete_tail(left) or not _begun(left) else _NO_TEXT
        if incomplete_tail(left):
            return _NO_TEXT
        try:
            key = self._shape(left), self._shape(right)
        except UnicodeDecodeError:
            return _NO_TEXT
        if key not in self._seams:
            self._seams[key] = self._try(*key)
        return self._seams[key]

    def may_begin(self, token: bytes) -> bool:
        """Whether a text at whose beginning there is a split can begin with this token, uncut."""
        try:
            key = self._shape(token)
        except UnicodeDecodeError:
            return False
        if key not in self._wholes:
            self._wholes[key] = not self._pretokenizer.knows(key) or any(
                not any(0 < start < len(key) for start in self._starts(key + after, len(key)))
                for after in _AFTER_ANY
            )
        return self._wholes[key]

    def layouts(self, data: bytes) -> Iterator[frozenset[int]] | None:
        """The splits of a text, by byte, for one continuation after another.

        The text begins at a split, and may end inside a character. None if it is no text, or of
        characters whose splits are not known.
        """
        n_whole = len(data) - incomplete_tail(data)
        try:
            text = data[:n_whole].decode()
        except UnicodeDecodeError:
            return None
        if not self._pretokenizer.knows(text):
            return None
        offsets = [0, *accumulate(len(character.encode()) for character in text)]
        continuations = _AFTER_ANY if n_whole == len(data) else _AFTER_CHARACTER
        return (
            frozenset(offsets[start] for start in self._starts(text + after, len(text)))
            for after in continuations
        )

    def _try(self, left: str, right: str) -> Seam:
        """All that happens to the two with something before and something after them."""
        if not self._pretokenizer.knows(left + right):
            return _ANYTHING
        seen = {
            self._seen(before, left, right) for before in _BEFORE.get(left[:1], _BEFORE_ANY)
        } - {None}
        happens = frozenset[bool]().union(*(outcome for outcome in seen if outcome is not None))
        return Seam(True in happens, False in happens, len(seen) > 1)

    def _seen(self, before: str, left: str, right: str) -> frozenset[bool] | None:
        """Whether there is a split, by what may come after; None where the left token is cut."""
        start, seam = len(before), len(before) + len(left)
        end = seam + len(right)
        found, is_left_whole = set(), False
        for after in _AFTER.get(right[-1:], _AFTER_ANY):
            starts = self._starts(before + left + right + after, end)
            if any(start < at < seam for at in starts):
                continue
            is_left_whole = True
            if not any(seam < at < end for at in starts):
                found.add(seam in starts)
        return frozenset(found) if is_left_whole else None

    def _starts(self, text: str, up_to: int) -> list[int]:
        return [start for start in self._pretokenizer.starts(text) if start <= up_to]


def _begun(data: bytes) -> bool:
    """Whether a character begins in these bytes."""
    return any(byte not in _CONTINUATION_BYTES for byte in data)


def _text(token: bytes) -> str:
    """The token without the characters that begin before it or end after it."""
    return token[: len(token) - incomplete_tail(token)].lstrip(_CONTINUATION_BYTES).decode()


def _shape(token: bytes) -> str:
    """A text that the expressions treat as they do the token's."""
    cast = shadow(_text(token))
    parts, done = [], 0
    for match in _CONTRACTION.finditer(cast):
        kept = _KEPT[len(match[0])][match[0][0].isupper()]
        parts += [cast[done : match.start()].translate(_SHAPES), kept]
        done = match.end()
    parts.append(cast[done:].translate(_SHAPES))
    return _RUN.sub(_shortened, "".join(parts)).translate(_OF_KIND)


def _shortened(run: re.Match[str]) -> str:
    """A run of letters is like one letter, one of digits like four, any other like two."""
    character = run[0][0]
    return character * {"a": 1, "A": 1, "0": 4, "\b": 4}.get(character, 2)
