"""llama.cpp's tokens of a text by way of tiktoken, which is several times faster.

Tiktoken joins neighbours by rank, whatever the merges say, and splits by one expression. That
gives llama.cpp's tokens where a model's ids stand in the order of its merges and its family
splits by one expression; `first_difference` puts it to the test on texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tiktoken

from suture.healing.boundary import Encode
from suture.healing.pretokenizer import pattern_of
from suture.healing.specials import TokenKind
from suture.healing.vocabulary import Vocabulary


class TiktokenTokenizer:
    """The tokenizer of a byte-level vocabulary.

    Bytes that the vocabulary has no token for give none, as in llama.cpp: in the encoding their
    ids lie past `n_vocab`.
    """

    def __init__(self, vocabulary: Vocabulary, pattern: str, ranks: Mapping[bytes, int]) -> None:
        self._n_vocab = vocabulary.n_vocab
        self._added = {vocabulary.text_of(token_id) for token_id in vocabulary.added_ids}
        missing = [bytes([byte]) for byte in range(256) if bytes([byte]) not in ranks]
        self.encoding = tiktoken.Encoding(
            "gguf",
            pat_str=pattern,
            mergeable_ranks={
                **ranks,
                **{byte: self._n_vocab + index for index, byte in enumerate(missing)},
            },
            special_tokens=_marked(vocabulary),
        )

    def encode(self, segment: bytes) -> list[int]:
        """The tokens of plain text: no control token is taken out of it, added ones are.

        Raises `UnicodeDecodeError` for bytes that are not UTF-8.
        """
        text = segment.decode()
        ids = self.encoding.encode(text, allowed_special=self._added, disallowed_special=())
        return [token_id for token_id in ids if token_id < self._n_vocab]

    def encode_all(self, segments: Sequence[bytes], n_threads: int) -> list[list[int]]:
        """As `encode` for each of several texts, on so many threads, which do not take turns."""
        encoded = self.encoding.encode_batch(
            [segment.decode() for segment in segments],
            num_threads=n_threads,
            allowed_special=self._added,
            disallowed_special=(),
        )
        return [[token_id for token_id in ids if token_id < self._n_vocab] for ids in encoded]

    def encode_markup(self, segment: bytes) -> list[int]:
        """The tokens of text in which control tokens stand by their own text."""
        ids = self.encoding.encode(segment.decode(), allowed_special="all")
        return [token_id for token_id in ids if token_id < self._n_vocab]


def tokenizer_from_gguf(path: Path, cache: Path | None = None) -> TiktokenTokenizer | None:
    """As `tokenizer_of` the model file's vocabulary. Raises as `Vocabulary.from_gguf` does."""
    return tokenizer_of(Vocabulary.from_gguf(path, cache))


def tokenizer_of(vocabulary: Vocabulary) -> TiktokenTokenizer | None:
    """The tokenizer of a vocabulary; None where tiktoken cannot give llama.cpp's tokens.

    That is so for vocabularies that are not byte-level or come without merges, families that
    split by several expressions, ids out of the order of merges, and marked tokens that begin
    with one another, such as runs of blanks.
    """
    pattern = pattern_of(vocabulary.pretokenizer) if vocabulary.model == "gpt2" else None
    if pattern is None or _is_ambiguous(_marked(vocabulary)):
        return None
    is_mergeable = _merged(vocabulary)
    if is_mergeable is None:
        return None
    is_mergeable[[i for byte in range(256) for i in vocabulary.ids_of(bytes([byte]))]] = True
    normal = vocabulary.ids_of_kind(TokenKind.NORMAL)
    ids = normal[is_mergeable[normal]].tolist()
    ranks = dict(zip(map(vocabulary.bytes_of, ids), ids, strict=True))
    return TiktokenTokenizer(vocabulary, pattern, ranks)


def first_difference(left: Encode, right: Encode, texts: Iterable[str]) -> str | None:
    """The first text that two tokenizers disagree about; None if there is none."""
    for text in texts:
        if list(left(text.encode())) != list(right(text.encode())):
            return text
    return None


def _marked(vocabulary: Vocabulary) -> dict[str, int]:
    """The tokens that are taken out of the text before it is split, by their text."""
    special = vocabulary.ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN).tolist()
    ids = sorted({*special, *vocabulary.added_ids})
    return {vocabulary.text_of(i): i for i in ids if vocabulary.text_of(i)}


def _is_ambiguous(marked: Iterable[str]) -> bool:
    """Whether a text is the beginning of another: tiktoken takes either, llama.cpp the longer."""
    return any(longer.startswith(text) for text, longer in pairwise(sorted(marked)))


def _merged(vocabulary: Vocabulary) -> npt.NDArray[np.bool_] | None:
    """Which rows merges make; None if they do not ascend with the merges."""
    if vocabulary.merges is None:
        return None
    made = vocabulary.merges[:, 2]
    made = made[made >= 0]
    is_merged = np.zeros(vocabulary.n_vocab, np.bool_)
    is_merged[made] = True
    highest_before = np.maximum.accumulate(np.concatenate(([-1], made[:-1])))
    # In order, every id that is made for the first time is the highest so far.
    n_highest = np.count_nonzero(made > highest_before)
    return is_merged if n_highest == np.count_nonzero(is_merged) else None
