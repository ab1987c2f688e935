"""Is this what the tokenizer would have made of the text?

A sequence of tokens is *canonical* if it is what the tokenizer makes of its own bytes, and can be
continued if it is the beginning of such a sequence. For byte-pair encoding that is a question about
neighbours: within what the pre-tokenizer leaves together, a sequence is canonical exactly if every
two neighbours are.

N1  No two neighbours in the tokens of a text are refused, if its pre-tokenizer is known or there is
    none, and it has no bytes that the vocabulary lacks, which llama.cpp leaves out.
N2  Where a pair's own bytes are split in one way whatever stands around them, it is taken exactly
    if the tokenizer makes these two tokens of them.

A pair alone does not decide where its surroundings do: which digits form a group of three, whether
``'s`` is a contraction, which blanks stand together. There `is_pair` takes it if there are
surroundings that permit it, and `extends` reads those on the left. Not decided by either:

- what a character is of which only the first bytes are there, or only the last of a pair's;
- whether a word that is still open can go on so that its last token stays as it is;
- whether an added token should have been found in the text, where more than two tokens spell it;
- by `is_pair`, whether the two are all of a word, in families that take a word for one token
  whatever the merges say;
- splits by characters that a family's expression lists one by one (deepseek-llm, deepseek-v3).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, compress, pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from suture.healing.boundary import Encode
from suture.healing.merges import Merges
from suture.healing.pretokenizer import Pretokenizer
from suture.healing.seams import Seams
from suture.healing.vocabulary import TokenKind, Vocabulary

# Families that take a word for one token if there is one, whether or not merges make it.
_WHOLE_WORDS = frozenset(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano minicpm5 youtu"
    " glm4 glm5 tekken granite-embed-multi-97m".split()
)
_BARRIERS = (TokenKind.CONTROL, TokenKind.USER_DEFINED)


def is_canonical(ids: Sequence[int], vocabulary: Vocabulary, encode: Encode) -> bool:
    """Whether these ordinary tokens are what `encode` makes of their own bytes.

    Where the tokenizer reads a space before a text, they are asked about behind a byte that joins
    with nothing.
    """
    anchor = b"" if vocabulary.model == "gpt2" else vocabulary.lone_byte
    before = list(encode(anchor)) if anchor else []
    data = b"".join(map(vocabulary.bytes_of, ids))
    return list(encode(anchor + data)) == [*before, *ids]


class CanonicalPairs:
    """Which tokens may follow which in a canonical sequence.

    `encode` is asked where the vocabulary has no merges or its pre-tokenizer is not known; there a
    pair is taken that is right by its own bytes. Up to `max_cached` pairs are remembered. Not for
    several threads at once.
    """

    def __init__(self, vocabulary: Vocabulary, encode: Encode, max_cached: int = 1 << 16) -> None:
        self._vocabulary = vocabulary
        self._added = [vocabulary.bytes_of(token_id) for token_id in vocabulary.added_ids]
        self._rule = _rule_of(vocabulary, encode)
        self._max_cached = max_cached
        self._cached: dict[tuple[int | None, int], _Verdict] = {}
        self._may_begin = lru_cache(max_cached)(self._rule.may_begin)
        self._doubtful = lru_cache(max_cached // 16)(self._doubtful_of)
        self._extends_any = lru_cache(max_cached // 16)(self._extends_any_of)
        self._barriers = frozenset(vocabulary.ids_of_kind(*_BARRIERS).tolist())

    def learn_blanks(self) -> None:
        """Ask beforehand which blanks may stand behind a line feed, where it takes long at first.

        There are hundreds of tokens of blanks, and a cursor in an indentation asks about most of
        them at once. Nothing is asked of `encode`.
        """
        if not isinstance(self._rule, _Merging):
            return
        vocabulary = self._vocabulary
        for left in vocabulary.ids_of(b"\n")[:1]:
            for token_id in range(vocabulary.n_vocab):
                if vocabulary.bytes_of(token_id).isspace():
                    self._verdict(left, token_id)

    def is_pair(self, left: int, right: int) -> bool:
        """Whether some canonical sequence has these two as neighbours.

        Control tokens are neighbours of all tokens, unused rows of none.
        """
        return self._verdict(left, right) is not _Verdict.NO

    def depends(self, left: int, right: int) -> bool:
        """Whether a pair that is taken is so only in some surroundings."""
        return self._verdict(left, right) is _Verdict.DEPENDS

    @property
    def n_cached(self) -> int:
        """How many pairs are remembered."""
        return len(self._cached)

    def extends(self, left_ids: Sequence[int], token_id: int) -> bool:
        """Whether some canonical sequence begins with these tokens and goes on with that one.

        The tokenizer splits before `left_ids`, which are the beginning of such a sequence
        themselves; if there are none, it splits before the token.
        """
        verdict = self._verdict(left_ids[-1] if left_ids else None, token_id)
        is_yes = verdict is _Verdict.YES and token_id not in self._barriers
        if verdict is _Verdict.DEPENDS or (is_yes and self._is_open(left_ids)):
            return self._may_begin((*self._since_barrier(left_ids), token_id))
        return verdict is _Verdict.YES

    def extends_any(self, left_ids: Sequence[int], ranks: range) -> bool:
        """Whether `extends` is true of some of the drawable tokens of these ranks."""
        doubtful = self._doubtful(left_ids[-1] if left_ids else None, ranks)
        if doubtful == [] or (doubtful is None and not self._is_open(left_ids)):
            return doubtful is None
        return self._extends_any((*self._since_barrier(left_ids),), ranks)

    def _extends_any_of(self, left_ids: tuple[int, ...], ranks: range) -> bool:
        ids = self._vocabulary.sorted_ids[ranks.start : ranks.stop].tolist()
        return any(self.extends(left_ids, token_id) for token_id in ids)

    def _is_open(self, left_ids: Sequence[int]) -> bool:
        """Whether the next token, if it is text, decides on the last two: how blanks are split."""
        return len(left_ids) > 1 and self._verdict(left_ids[-2], left_ids[-1]) is _Verdict.DEPENDS

    def _doubtful_of(self, left: int | None, ranks: range) -> list[int] | None:
        """The tokens that depend on what is left of the last token; None if one does not."""
        doubtful = []
        for token_id in self._vocabulary.sorted_ids[ranks.start : ranks.stop].tolist():
            verdict = self._verdict(left, token_id)
            if verdict is _Verdict.YES:
                return None
            if verdict is _Verdict.DEPENDS:
                doubtful.append(token_id)
        return doubtful

    def _verdict(self, left: int | None, right: int) -> _Verdict:
        known = self._cached.get((left, right))
        if known is None:
            if len(self._cached) >= self._max_cached:
                self._cached.clear()
            known = self._cached[left, right] = self._decide(left, right)
        return known

    def _decide(self, left: int | None, right: int) -> _Verdict:
        """What is between two tokens; None stands for a split with nothing known before it."""
        ids = [right] if left is None else [left, right]
        if not all(map(self._may_stand, ids)) or (self._added and self._spell_added(ids)):
            return _Verdict.NO
        if self._is_barrier(right):
            return _Verdict.YES
        if left is None or self._is_barrier(left):
            return _Verdict.YES if self._rule.may_begin([right]) else _Verdict.NO
        return self._rule.pair(left, right)

    def _may_stand(self, token_id: int) -> bool:
        """Raises `IndexError` for what is no token."""
        is_barrier = self._vocabulary.kind_of(token_id) in _BARRIERS
        return is_barrier or bool(self._vocabulary.rank[token_id] >= 0)

    def _spell_added(self, ids: Sequence[int]) -> bool:
        """Whether the tokenizer would find an added token in the text of these.

        It looks for the longest first: one that is there gives way to longer ones only.
        """
        pieces = [self._vocabulary.bytes_of(token_id) for token_id in ids]
        is_there = list(map(self._is_barrier, ids))
        n_longest = max(map(len, compress(pieces, is_there)), default=0)
        others = [piece for piece, there in zip(pieces, is_there, strict=True) if not there]
        data = b"".join(pieces)
        return any(
            text in data if len(text) > n_longest else any(text in piece for piece in others)
            for text in self._added
        )

    def _is_barrier(self, token_id: int) -> bool:
        return token_id in self._barriers

    def _since_barrier(self, ids: Sequence[int]) -> Sequence[int]:
        start = len(ids)
        while start and ids[start - 1] not in self._barriers:
            start -= 1
        return ids[start:]


class _Verdict(enum.Enum):
    NO, YES, DEPENDS = range(3)


class _Rule(Protocol):
    """How a vocabulary's tokenizer is asked about ordinary tokens."""

    def pair(self, left: int, right: int) -> _Verdict:
        """Of two neighbours, whatever stands around them."""

    def may_begin(self, ids: Sequence[int]) -> bool:
        """Whether these can be the first tokens after a split."""


def _rule_of(vocabulary: Vocabulary, encode: Encode) -> _Rule:
    pretokenizer = Pretokenizer(vocabulary.pretokenizer)
    if vocabulary.model == "gpt2" and vocabulary.merges is not None and pretokenizer.known:
        return _Merging(vocabulary, vocabulary.merges, Seams(pretokenizer))
    return _Retokenizing(vocabulary, encode)


class _Merging:
    """By the merges, and the splits of a known pre-tokenizer."""

    def __init__(self, vocabulary: Vocabulary, rows: npt.NDArray[np.int32], seams: Seams) -> None:
        self._bytes_of = vocabulary.bytes_of
        self._seams = seams
        self._merges = Merges(
            rows, _byte_ids(vocabulary, rows), vocabulary.bytes_of, vocabulary.n_vocab
        )
        self._words = vocabulary if vocabulary.pretokenizer in _WHOLE_WORDS else None

    def pair(self, left: int, right: int) -> _Verdict:
        before, after = self._bytes_of(left), self._bytes_of(right)
        seam = self._seams.between(before, after)
        if seam.may_join and self._merges.keep_apart(left, right):
            # Blanks that a longer run takes in may be taken from what stands before them.
            depends = seam.depends or (before[-1:].isspace() and after[:1].isspace())
        elif seam.may_split and self._may_be_word(left) and self._may_be_word(right):
            depends = seam.depends or seam.may_join
        else:
            return _Verdict.NO
        return _Verdict.DEPENDS if depends else _Verdict.YES

    def may_begin(self, ids: Sequence[int]) -> bool:
        if len(ids) == 1:
            return self._may_be_word(ids[0]) and self._seams.may_begin(self._bytes_of(ids[0]))
        data = b"".join(map(self._bytes_of, ids))
        layouts = self._seams.layouts(data)
        return layouts is None or any(self._fits(ids, splits) for splits in layouts)

    def _may_be_word(self, token_id: int) -> bool:
        return self._words is not None or self._merges.make(token_id)

    def _fits(self, ids: Sequence[int], splits: frozenset[int]) -> bool:
        """Whether the text, split there, is merged to these tokens; its last word is open."""
        ends = [*accumulate(len(self._bytes_of(token_id)) for token_id in ids)]
        if not splits.issubset({0, *ends}):
            return False
        starts = [at for at, end in enumerate(ends[:-1], 1) if end in splits]
        *closed, open_word = (ids[a:b] for a, b in pairwise([0, *starts, len(ids)]))
        return all(map(self._is_word, closed)) and self._is_merged(open_word)

    def _is_merged(self, word: Sequence[int]) -> bool:
        if len(word) == 1:
            return self._may_be_word(word[0])
        return all(self._merges.keep_apart(left, right) for left, right in pairwise(word))

    def _is_word(self, word: Sequence[int]) -> bool:
        """Whether a word of which both ends are known is merged so, or is one token."""
        if self._words is not None and len(word) > 1:
            if self._words.ids_of(b"".join(map(self._bytes_of, word))):
                return False
        return self._is_merged(word)


class _Retokenizing:
    """By asking the tokenizer."""

    def __init__(self, vocabulary: Vocabulary, encode: Encode) -> None:
        self._vocabulary = vocabulary
        self._encode = encode

    def pair(self, left: int, right: int) -> _Verdict:
        return _Verdict.YES if self.may_begin([left, right]) else _Verdict.NO

    def may_begin(self, ids: Sequence[int]) -> bool:
        """Where only a part of a character is there, each token that is text is asked for."""
        pieces = list(map(self._vocabulary.bytes_of, ids))
        if _is_text(b"".join(pieces)):
            return is_canonical(ids, self._vocabulary, self._encode)
        alone = [i for i, piece in zip(ids, pieces, strict=True) if _is_text(piece)]
        return all(is_canonical([i], self._vocabulary, self._encode) for i in alone)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _byte_ids(vocabulary: Vocabulary, rows: npt.NDArray[np.int32]) -> list[int]:
    """The token of every byte that merging starts from, -1 where there is none.

    Of several with the same byte, that is the one which merges speak of.
    """
    merged = set(rows[:, :2].ravel().tolist())
    found = [vocabulary.ids_of(bytes([byte])) for byte in range(256)]
    normal = [[i for i in ids if vocabulary.kind_of(i) is TokenKind.NORMAL] for ids in found]
    return [max(ids, key=merged.__contains__, default=-1) for ids in normal]
