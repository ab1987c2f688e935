"""Boundary rules for engines whose sampler is out of reach: a prompt that needs no healing.

Nothing can be forced there, so the prompt is ended where tokens end whatever comes next. What is
given back for that is pending, and is looked for at the head of the answer.

  blank     a space or a tab; a prompt that ends with one has mostly split a token
  word      letters, digits and ``_``, with the one sign before it that tokenizers join to it
  closer    a sign that hardly any token goes on behind: a bracket, ``;`` or ``,``
  said again  pending bytes with which the answer begins: they stand in the document already

``    return use`` ends in the middle of a word: `` use`` is pending. ``    return `` ends with a
blank, which is: its word is whole, because a blank stood behind it.

Y1  kept + pending is the text.
Y2  no character is split: neither kept nor pending begins or ends inside one of the text's.
Y3  kept never ends with a blank; with nothing pending it ends with a line end or a closer, or is
    empty, or is a word too long to be said again.
Y4  what is taken from the answer is pending, in order, nothing but blanks left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from suture.healing.healer import HealingError
from suture.healing.utf8 import incomplete_tail

_BLANKS = b" \t"
# More is not said again but by chance.
MAX_PENDING = 64
_ENDS = "\r\n)]};,"
_STRUCTURAL = re.compile(rb"[\r\n)\]};,{(\[]")
# The last word, or a run of signs: what a pretokenizer would go on with.
_LAST = re.compile(r"[ \t]*(?:[^\w\s]?\w+|[^\w\s)\]};,]+|[^\w\S\r\n \t]+)\Z")


class NotSaidAgain(HealingError):
    """The answer does not begin with the pending bytes."""


@dataclass(frozen=True, slots=True)
class CleanEnd:
    """A text in two: what is sent, and what was given back."""

    kept: bytes
    pending: bytes


def word_end(text: bytes) -> CleanEnd:
    """The text up to where a token ends: final blanks are given back, else an unfinished word."""
    whole = text[: len(text) - incomplete_tail(text)]
    kept = whole.rstrip(_BLANKS)
    if whole == text and len(kept) == len(text):
        kept = kept[: len(kept) - _last_word(kept)]
    return _parted(text, kept)


def structural_end(text: bytes) -> CleanEnd:
    """The text up to its last line end, bracket, ``;`` or ``,``: where a chat's turn may begin.

    As `word_end` where that is too far back.
    """
    tail = text[-MAX_PENDING:]
    cut = max((match.end() for match in _STRUCTURAL.finditer(tail)), default=None)
    if cut is None and len(text) > MAX_PENDING:
        return word_end(text)
    return _parted(text, text[: len(text) - len(tail) + (cut or 0)].rstrip(_BLANKS))


def _parted(text: bytes, kept: bytes) -> CleanEnd:
    return CleanEnd(kept, text[len(kept) :])


def _last_word(text: bytes) -> int:
    """How many bytes at the end of `text` are an unfinished word, with the blanks before it."""
    tail = text[-4 * MAX_PENDING :].decode("utf-8", "ignore")
    if not tail or tail[-1] in _ENDS:
        return 0
    match = _LAST.search(tail)
    n_bytes = len(match[0].encode()) if match else 0
    return n_bytes if n_bytes <= MAX_PENDING else 0


class SaidAgain:
    """Takes the pending bytes from the head of an answer, and gives back what is new in it.

    Pending blanks may be missing from the answer, some or all of a run: the document has them. A
    word may not: raises `NotSaidAgain` where something else comes, or nothing more.
    """

    def __init__(self, pending: bytes) -> None:
        self._rest = pending

    @property
    def done(self) -> bool:
        """Whether all that follows is new."""
        return not self._rest

    def feed(self, data: bytes) -> bytes:
        """What of `data` is new."""
        for at, byte in enumerate(data):
            while self._rest[:1] in (b" ", b"\t") and self._rest[0] != byte:
                self._rest = self._rest[1:]
            if not self._rest:
                return data[at:]
            if self._rest[0] != byte:
                wanted, said = self._rest[:20], data[at:][:20]
                raise NotSaidAgain(f"the answer goes on with {said!r}, not with {wanted!r}")
            self._rest = self._rest[1:]
        return b""

    def finish(self) -> None:
        """The answer has ended. Raises `NotSaidAgain` where more than blanks are pending."""
        if self._rest.strip(_BLANKS):
            raise NotSaidAgain(f"the answer ends before it has said {self._rest!r}")
        self._rest = b""
