"""The stable cut: how much of the text before the cursor is given back to be healed.

A tokenizer that reads ``const userNa`` makes ``const| user|Na`` of it, but ``const| userName`` of
what is meant. So the tail is given back: the kept tokens end at a place where no token of any
continuation can cross, and the *pending* bytes from there on are to be generated again.

Two facts make a place uncrossable. Pretokens are merged apart from each other, so nothing crosses
a pretoken start that no continuation moves. And every merge makes a token of the vocabulary, so
inside a pretoken nothing crosses a place that no token, laid over the text, covers.

B1  bytes(kept) + pending = bytes of the segment, as its tokenizer reads it: SentencePiece reads a
    space before a text, and U+2581, its mark for a space, as one; and llama.cpp reads bytes that
    are not UTF-8 as U+FFFD, and bytes without a token not at all.
B2  the kept tokens are a token prefix of the canonical tokens of every continuation.
B3  the segment's edges are never crossed; an unfinished character at the end is never tokenized,
    because tokenizers make U+FFFD of it (llama.cpp#8691).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from suture.healing.pretokenizer import Pretokenizer
from suture.healing.utf8 import incomplete_tail
from suture.healing.vocabulary import Vocabulary

# Tokenizes plain text: never a special token out of its text, nothing added at either end.
Encode = Callable[[bytes], Sequence[int]]

# Bytes of the tail that are looked at. No pretoken of code is as long; where one is, the cut is
# found among the places that no token crosses, and failing that at a token boundary.
_WINDOW = 512
# At most so many bytes are given back, unless a longer token could cover them: a line of base64
# is one pretoken, but needs two or three tokens.
_SAFE_TAIL = 48


class BoundaryError(ValueError):
    """The tokens do not spell the end of the segment: the vocabulary lacks bytes of it."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The tokens kept, the bytes given back, and how many tokens those bytes were."""

    kept_ids: tuple[int, ...]
    pending: bytes
    dropped_tokens: int


def stable_boundary(segment: bytes, encode: Encode, vocabulary: Vocabulary) -> Boundary:
    """Gives back the shortest tail before which no continuation changes the tokens.

    Nothing is given back at a clean boundary, where no token extends any tail of the segment; but
    final blanks are where the split between them depends on what follows.
    Calls `encode` at most twice. Raises `BoundaryError` where what would be given back, or stands
    after it, has bytes that the tokens do not spell; such bytes farther up do not matter.
    """
    tokenized = _Tokenized(segment, encode, vocabulary)
    segment = tokenized.segment
    cuts = min(_cuts(reading, tokenized, vocabulary) for reading in tokenized.readings())
    counts = [count for cut in cuts if (count := tokenized.count_at(cut)) is not None]
    if counts and not tokenized.is_canonical(counts[0], counts[-1]):
        counts = counts[1:]
    n_kept = counts[0] if counts else 0
    if len(segment) - tokenized.end_of(n_kept) > _SAFE_TAIL:
        longest = max(_SAFE_TAIL, _longest_extended_tail(segment, vocabulary))
        n_kept = max(n_kept, tokenized.count_before(len(segment) - longest))
    return tokenized.keep(n_kept)


def fixed_boundary(
    segment: bytes, n_tokens: int, encode: Encode, vocabulary: Vocabulary
) -> Boundary:
    """Gives back the last `n_tokens` tokens, fewer if the segment has fewer.

    Raises `ValueError` for a negative number, and `BoundaryError` as `stable_boundary` does.
    """
    if n_tokens < 0:
        raise ValueError(f"{n_tokens} tokens cannot be given back")
    tokenized = _Tokenized(segment, encode, vocabulary)
    return tokenized.keep(max(0, len(tokenized.ids) - n_tokens))


def uncut_boundary(segment: bytes, encode: Encode, vocabulary: Vocabulary) -> Boundary:
    """Gives back nothing but an unfinished character at the end.

    Never fails: where the others raise `BoundaryError`, this one is left.
    """
    n_whole = len(segment) - incomplete_tail(segment)
    kept_ids = tuple(encode(segment[:n_whole])) if n_whole else ()
    return Boundary(kept_ids, segment[n_whole:], 0)


class _Tokenized:
    """A segment as its tokenizer reads it, and the canonical tokens of its whole characters."""

    def __init__(self, segment: bytes, encode: Encode, vocabulary: Vocabulary) -> None:
        self._encode = encode
        self._vocabulary = vocabulary
        n_whole = len(segment) - incomplete_tail(segment)
        self._unfinished = segment[n_whole:]
        self.ids = tuple(encode(segment[:n_whole])) if n_whole else ()
        pieces = [vocabulary.bytes_of(token_id) for token_id in self.ids]
        whole = vocabulary.as_read(segment[:n_whole])
        is_added = [token_id in vocabulary.added_ids for token_id in self.ids]
        self._whole, self._ends, self._n_unspelled = _align(whole, pieces, is_added)
        self.segment = self._whole + self._unfinished
        self._n_before = int(self._whole == b" " + whole)

    def readings(self) -> list[bytes]:
        """What the segment may turn out to be: its unfinished character may become a space."""
        as_space = self._vocabulary.may_become_space(self._unfinished)
        return [self.segment, self._whole + b" "] if as_space else [self.segment]

    def end_of(self, n_kept: int) -> int:
        """The byte at which the first `n_kept` tokens end."""
        return self._ends[n_kept - 1] if n_kept else 0

    def count_before(self, cut: int) -> int:
        """How many tokens end at or before byte `cut`."""
        return bisect_right(self._ends, cut)

    def count_at(self, cut: int) -> int | None:
        """How many tokens end at byte `cut`; None if one crosses it."""
        n_kept = self.count_before(cut)
        return n_kept if self.end_of(n_kept) == cut else None

    def last_edge(self, at_least: int) -> int:
        """End of the last added token past byte `at_least`; 0 if there is none.

        Tokenizers split added tokens out of the text before they look at anything else.
        """
        added = self._vocabulary.added_ids
        for n_kept in range(len(self.ids), self.count_before(at_least), -1):
            if self.ids[n_kept - 1] in added:
                return self.end_of(n_kept)
        return 0

    def is_canonical(self, n_kept: int, since: int) -> bool:
        """Whether the kept text from token `since` on, alone, has the kept tokens."""
        if n_kept in (since, len(self.ids)):
            return True
        # The space that is read before a text will be there again.
        start = self.end_of(since) if since else self._n_before
        kept = self.segment[start : self.end_of(n_kept)]
        return tuple(self._encode(kept)) == self.ids[since:n_kept]

    def keep(self, n_kept: int) -> Boundary:
        end = self.end_of(n_kept)
        if end < self._n_unspelled:
            raise BoundaryError(f"the vocabulary cannot spell byte {self._n_unspelled - 1}")
        pending = self.segment[end:]
        return Boundary(self.ids[:n_kept], pending, len(self.ids) - n_kept)


def _align(
    whole: bytes, pieces: Sequence[bytes], is_added: Sequence[bool]
) -> tuple[bytes, list[int], int]:
    """The text as the tokens spell it, where each token ends in it, and up to which byte they
    do not spell it.

    llama.cpp drops bytes that a vocabulary has no token for; ends before such a byte are unknown
    and said to be right after it. SentencePiece puts a space before the text and after an added
    token, some of which also swallow the blanks that follow them.
    """
    spelled = b"".join(pieces)
    if spelled in (whole, b" " + whole):
        return spelled, list(accumulate(map(len, pieces))), 0
    end = len(whole)
    n_unknown = len(pieces)
    while n_unknown:
        index = n_unknown - 1
        starts_fragment = index == 0 or is_added[index - 1]
        start = _start_of(pieces[index], whole, end, starts_fragment, is_added[index])
        if start is None:
            break
        end, n_unknown = start, index
    known = pieces[n_unknown:]
    ends = [end] * n_unknown + [end + n_bytes for n_bytes in accumulate(map(len, known))]
    return whole[:end] + b"".join(known), ends, end


def _start_of(
    piece: bytes, whole: bytes, end: int, starts_fragment: bool, is_added: bool
) -> int | None:
    """Where a token that ends at `end` starts; None if the text there is another."""
    if whole.endswith(piece, 0, end):
        return end - len(piece)
    if starts_fragment and piece[:1] == b" " and whole.endswith(piece[1:], 0, end):
        return end - len(piece) + 1
    if is_added:
        end = len(whole[:end].rstrip())
        return end - len(piece) if whole.endswith(piece, 0, end) else None
    return None


def _cuts(segment: bytes, tokenized: _Tokenized, vocabulary: Vocabulary) -> list[int]:
    """Uncrossable places, the last one first and then some pretoken starts before it."""
    edge = tokenized.last_edge(len(segment) - _WINDOW)
    origin = max(edge, _character_start(segment, len(segment) - _WINDOW))
    n_whole = len(segment) - incomplete_tail(segment)
    starts, open_end = _pretoken_starts(segment[origin:n_whole], vocabulary)
    if origin == edge:
        starts = [0, *starts]
    limit = min(_start_of_added_token(segment, vocabulary), origin + open_end)
    known = [origin + start for start in starts if origin + start <= limit][::-1]
    if known:
        return [_last_uncrossed(segment, known[0], known[0], limit, vocabulary), *known[:4]]
    # Tokens from before the window may reach into it.
    reach = origin + vocabulary.max_piece_bytes
    cut = _last_uncrossed(segment, origin, reach, limit, vocabulary)
    return [cut] if cut >= reach else []


def _pretoken_starts(tail: bytes, vocabulary: Vocabulary) -> tuple[list[int], int]:
    """Byte offsets in `tail` at which pretokens certainly start, and where certainty ends.

    `tail` is known to begin at a pretoken only if it has no blank after a letter or digit.
    """
    text = tail.decode("utf-8", "surrogateescape")
    pretokenizer = _pretokenizer(vocabulary.pretokenizer)
    if vocabulary.model != "gpt2":
        return [], len(tail)
    if not pretokenizer.knows(text):
        # All expressions split final blanks by what follows them.
        return [], _n_bytes(text.rstrip())
    anchors = pretokenizer.anchors(text)
    base = anchors[-1] if anchors else 0
    starts, open_end = pretokenizer.stable_starts(text[base:])
    at = [*anchors[-4:-1], *(base + start for start in starts)]
    return [_n_bytes(text[:index]) for index in at], _n_bytes(text[: base + open_end])


def _n_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


@lru_cache(maxsize=16)
def _pretokenizer(name: str) -> Pretokenizer:
    return Pretokenizer(name)


def _character_start(segment: bytes, at: int) -> int:
    """The first byte from `at` on that does not continue a character."""
    at = max(0, at)
    while at < len(segment) and segment[at] & 0xC0 == 0x80:
        at += 1
    return at


def _last_uncrossed(
    segment: bytes, start: int, reach: int, limit: int, vocabulary: Vocabulary
) -> int:
    """The last character start up to `limit` that no token laid over the bytes covers.

    Tokens begin from `start` on; earlier ones reach to `reach`. Returns `start` if there is none.
    """
    longest = vocabulary.max_piece_bytes
    near = limit - 3 * longest
    if near > start:
        # It is seldom farther up, and tokens from before `near` reach no farther than they can.
        found = _last_uncrossed(segment, near, near + longest, limit, vocabulary)
        if found > near:
            return found
    best = start
    for at in range(start, limit + 1):
        if reach <= at and not _continues(segment, at):
            best = at
        rest = segment[at : at + longest]
        if vocabulary.extends_strictly(rest):
            break
        reach = max(reach, at + vocabulary.longest_prefix(rest))
    return best


def _continues(segment: bytes, at: int) -> bool:
    return at < len(segment) and segment[at] & 0xC0 == 0x80


def _longest_extended_tail(segment: bytes, vocabulary: Vocabulary) -> int:
    """Length of the longest tail that some drawable token extends."""
    for length in range(min(len(segment), vocabulary.max_piece_bytes), 0, -1):
        if vocabulary.extends_strictly(segment[len(segment) - length :]):
            return length
    return 0


def _start_of_added_token(segment: bytes, vocabulary: Vocabulary) -> int:
    """Where the segment's tail may be the beginning of an added token; its end if it may not."""
    for length in range(min(len(segment), vocabulary.max_added_bytes), 0, -1):
        if vocabulary.added_extends(segment[len(segment) - length :]):
            return len(segment) - length
    return len(segment)
