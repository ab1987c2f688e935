"""Token ids and the bytes they stand for.

A token's *piece* is its bytes. Several ids may share a piece (SentencePiece has a byte token
beside the character), and control tokens have none.

V1  `bytes_of` is total over the rows of the logits; control, unknown, unused and padding rows
    map to ``b""`` and are never drawn.
V2  a piece maps to all its ids.

*Drawable* tokens are those that healing may put into the text: ordinary ones, and user-defined
runs of blanks, which are how some vocabularies spell indentation. Other user-defined tokens are
markup (``<tool_call>``): they keep their bytes, but a typed ``<`` never heals into one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from suture.healing.gguf import mapped, parse_header
from suture.healing.gguf_vocabulary import table_of
from suture.healing.pieces import SPACE_MARK, UnsupportedVocabulary, escapes_spaces
from suture.healing.specials import TokenKind
from suture.healing.tiktoken_vocabulary import read_encoding
from suture.healing.token_table import MergeSource, TokenTable, drawable_order
from suture.healing.tokenizer_json import read_tokenizer_json
from suture.healing.vocabulary_cache import cached_table

if TYPE_CHECKING:
    import tiktoken

TokenIds: TypeAlias = npt.NDArray[np.intp]

__all__ = ["TokenKind", "UnsupportedVocabulary", "Vocabulary"]

_WITHOUT_PIECE = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED)


class Vocabulary:
    """Pieces, kinds and special ids of a model. Immutable.

    `pieces` are given by id; for control, unknown and unused tokens that is the text they show,
    and their piece is empty. `texts` replaces what all tokens show. Rows from ``len(pieces)`` to
    `n_vocab` are padding. `merges` gives a byte-pair encoding's merges when first asked,
    `architecture` and `title` are what the file says of the model, and `order` is the
    `drawable_order` where that is known. Raises `ValueError` where the lengths disagree.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        *,
        kinds: Sequence[TokenKind] | npt.NDArray[np.int32] | None = None,
        texts: Sequence[str] | None = None,
        n_vocab: int | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
        eog_ids: frozenset[int] = frozenset(),
        add_bos: bool = False,
        model: str = "gpt2",
        pretokenizer: str = "default",
        fim_ids: Mapping[str, int] | None = None,
        merges: MergeSource | None = None,
        architecture: str = "",
        title: str = "",
        order: npt.NDArray[np.int32] | None = None,
    ) -> None:
        n_pieces = len(pieces)
        self.n_vocab = n_pieces if n_vocab is None else n_vocab
        if self.n_vocab < n_pieces:
            raise ValueError(f"{n_pieces} tokens do not fit in {self.n_vocab} rows of logits")
        self._kinds = np.full(self.n_vocab, TokenKind.UNUSED, np.int32)
        if kinds is not None and len(kinds) != n_pieces:
            raise ValueError(f"{len(kinds)} kinds for {n_pieces} tokens")
        self._kinds[:n_pieces] = TokenKind.NORMAL if kinds is None else np.asarray(kinds, np.int32)
        if texts is not None and len(texts) != n_pieces:
            raise ValueError(f"{len(texts)} texts for {n_pieces} tokens")
        self._texts = texts
        self._shown = pieces
        self._pieces = [*pieces, *[b""] * (self.n_vocab - n_pieces)]
        for token_id in self.ids_of_kind(*_WITHOUT_PIECE).tolist():
            self._pieces[token_id] = b""
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.eog_ids = eog_ids
        self.add_bos = add_bos
        self.model = model
        self.pretokenizer = pretokenizer
        self.fim_ids: Mapping[str, int] = MappingProxyType(dict(fim_ids or {}))
        self.architecture = architecture
        self.title = title
        self._merges = merges
        self._escapes_spaces = escapes_spaces(model, pretokenizer)
        self._index(drawable_order(self._pieces, self._kinds) if order is None else order)

    def _index(self, order: npt.NDArray[np.int32]) -> None:
        pieces = self._pieces
        added = [i for i in self.ids_of_kind(TokenKind.USER_DEFINED).tolist() if pieces[i]]
        self._keys = [pieces[token_id] for token_id in order.tolist()]
        # As wide as numpy's own indices: narrower ones are converted at every use, which takes
        # three times as long as gathering the logits of all tokens that begin with a space.
        self.sorted_ids: TokenIds = order.astype(np.intp)
        self.rank: npt.NDArray[np.int32] = np.full(self.n_vocab, -1, np.int32)
        self.rank[order] = np.arange(len(order), dtype=np.int32)
        self.sorted_ids.setflags(write=False)
        self.rank.setflags(write=False)
        self.max_piece_bytes = max(map(len, self._keys), default=0)
        self.single_bytes = frozenset(b for b in range(256) if self._ranks(bytes([b])))
        self._added = {pieces[i]: i for i in added}
        self._added_keys = sorted(self._added)
        self.added_ids = frozenset(added)
        self.max_added_bytes = max(map(len, self._added_keys), default=0)
        self._specials = {
            self.text_of(token_id): token_id
            for token_id in self.ids_of_kind(TokenKind.CONTROL, TokenKind.USER_DEFINED).tolist()
        }

    @classmethod
    def from_gguf(cls, path: Path, cache: Path | None = None) -> Vocabulary:
        """The vocabulary of a model file; out of the folder `cache` where it was read before.

        Raises `GgufError` for a file that cannot be read or has no tokens, and
        `UnsupportedVocabulary` for a tokenizer whose tokens have no fixed bytes.
        """
        if cache is not None:
            return cls._of(cached_table(path, cache))
        with mapped(path) as data:
            return cls._of(table_of(parse_header(data)))

    @classmethod
    def from_tokenizer_json(
        cls,
        path: Path,
        *,
        n_vocab: int | None = None,
        bos: str | None = None,
        eos: str | None = None,
    ) -> Vocabulary:
        """The vocabulary of a `tokenizer.json`, as Hugging Face's `tokenizers` writes it.

        The file does not tell how many rows the logits have, nor which token ends a text, nor
        always which one begins it: `n_vocab`, `eos` and `bos` do. Raises `TokenizerFileError` for
        a file that cannot be understood, and `UnsupportedVocabulary` for a tokenizer whose tokens
        have no fixed bytes.
        """
        return cls._of(read_tokenizer_json(path, n_vocab=n_vocab, bos=bos, eos=eos))

    @classmethod
    def from_tiktoken(
        cls,
        encoding: tiktoken.Encoding,
        *,
        n_vocab: int | None = None,
        bos: str | None = None,
        eos: str | None = "<|endoftext|>",
    ) -> Vocabulary:
        """The vocabulary of an encoding, with `n_vocab` rows of logits if it has fewer.

        Raises `ValueError` where `bos` is not one of its special tokens.
        """
        return cls._of(read_encoding(encoding, n_vocab=n_vocab, bos=bos, eos=eos))

    @classmethod
    def _of(cls, table: TokenTable) -> Vocabulary:
        return cls(
            table.pieces,
            kinds=table.kinds,
            n_vocab=table.n_vocab,
            bos_id=table.bos_id,
            eos_id=table.eos_id,
            eog_ids=table.eog_ids,
            add_bos=table.add_bos,
            model=table.model,
            pretokenizer=table.pretokenizer,
            fim_ids=table.fim_ids,
            merges=table.merges,
            architecture=table.architecture,
            title=table.title,
            order=table.order,
        )

    def bytes_of(self, token_id: int) -> bytes:
        """The token's piece; raises `IndexError` outside ``range(n_vocab)``."""
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        try:
            return self._pieces[token_id]
        except IndexError:
            raise IndexError(f"token id {token_id} is not below {self.n_vocab}") from None

    def text_of(self, token_id: int) -> str:
        """What the token looks like to a human; specials by their own text, padding empty."""
        if not 0 <= token_id < self.n_vocab:
            raise IndexError(f"token id {token_id} is not below {self.n_vocab}")
        if token_id >= len(self._shown):
            return ""
        if self._texts is not None:
            return self._texts[token_id]
        return self._shown[token_id].decode("utf-8", "replace")

    def kind_of(self, token_id: int) -> TokenKind:
        """The token's kind; padding rows are `UNUSED`. Raises `IndexError` as `bytes_of` does."""
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        return TokenKind(int(self._kinds[token_id]))

    def ids_of_kind(self, *kinds: TokenKind) -> npt.NDArray[np.intp]:
        """The rows of these kinds, rising."""
        return np.flatnonzero(np.isin(self._kinds, kinds))

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control or unknown token: it has a text but no piece."""
        return self.kind_of(token_id) in (TokenKind.CONTROL, TokenKind.UNKNOWN)

    def as_read(self, segment: bytes) -> bytes:
        """The text as the tokenizer reads it: SentencePiece takes its ``▁`` for a space."""
        return segment.replace(SPACE_MARK, b" ") if self._escapes_spaces else segment

    def may_become_space(self, unfinished: bytes) -> bool:
        """Whether a continuation can make of these bytes a character that is read as a space."""
        return self._escapes_spaces and bool(unfinished) and SPACE_MARK.startswith(unfinished)

    @cached_property
    def merges(self) -> npt.NDArray[np.int32] | None:
        """The merges, first learned first: rows of left, right and merged id, -1 for no token.

        None where the source has none: not a byte-pair encoding, or one that does not tell them.
        """
        return None if self._merges is None else self._merges()

    @cached_property
    def silent_ids(self) -> tuple[int, ...]:
        """All rows that add no bytes: special, unused, padding."""
        return tuple(i for i, piece in enumerate(self._pieces) if not piece)

    @cached_property
    def ids_by_length(self) -> list[npt.NDArray[np.int32]]:
        """All rows, those whose pieces are of one length together, the shortest first."""
        lengths = np.array([len(piece) for piece in self._pieces])
        order = np.argsort(lengths, kind="stable").astype(np.int32)
        return np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)

    @cached_property
    def lone_byte(self) -> bytes:
        """The first ASCII byte that no longer token holds, so that nothing is joined with it.

        Nothing if there is none.
        """
        inside = set(b"".join(key for key in self._keys if len(key) > 1))
        return bytes(sorted(set(range(1, 128)) & self.single_bytes - inside)[:1])

    @cached_property
    def n_most_alike(self) -> int:
        """The most drawable tokens that share a piece."""
        return max((sum(1 for _ in alike) for _, alike in groupby(self._keys)), default=0)

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """The tokens that stand for no text, such as the end of a document."""
        return frozenset(self.ids_of_kind(TokenKind.CONTROL).tolist())

    def special_id(self, text: str) -> int | None:
        """The control or added token with exactly this text."""
        return self._specials.get(text)

    def ids_of(self, piece: bytes) -> tuple[int, ...]:
        """All ids with exactly this piece, added tokens last; none for ``b""``."""
        ids = tuple(self.sorted_ids[rank].item() for rank in self._ranks(piece))
        added = self._added.get(piece)
        return ids if added is None or added in ids else (*ids, added)

    def extending(self, prefix: bytes) -> range:
        """Ranks of the drawable tokens whose piece starts with `prefix`, equal ones first."""
        low = bisect_left(self._keys, prefix)
        above = _successor(prefix)
        high = len(self._keys) if above is None else bisect_left(self._keys, above, low)
        return range(low, high)

    def extends_strictly(self, prefix: bytes) -> bool:
        """Whether some drawable token is longer than `prefix` and starts with it."""
        at = bisect_right(self._keys, prefix)
        return at < len(self._keys) and self._keys[at].startswith(prefix)

    def longest_prefix(self, data: bytes) -> int:
        """Length of the longest drawable piece that `data` starts with; 0 if there is none."""
        bound = data[: self.max_piece_bytes]
        while bound:
            at = bisect_right(self._keys, bound)
            key = self._keys[at - 1] if at else b""
            if bound.startswith(key):
                return len(key)
            bound = bound[: _common_length(bound, key)]
        return 0

    def proper_prefixes(self, pending: bytes) -> TokenIds:
        """Ids of the drawable tokens whose piece is a proper, non-empty prefix of `pending`."""
        longest = min(len(pending) - 1, self.max_piece_bytes)
        ranges = [self._ranks(pending[:length]) for length in range(1, longest + 1)]
        ranks = [rank for ranks in ranges for rank in ranks]
        return self.sorted_ids[ranks] if ranks else self.sorted_ids[:0]

    def spelling(self, data: bytes) -> tuple[list[tuple[int, int]], range]:
        """The drawable tokens that `data` starts with or equals, each with its length.

        And the ranks of those that start with all of `data` and go on.
        """
        keys, found, low = self._keys, list[tuple[int, int]](), 0
        for length in range(1, len(data) + 1):
            piece = data[:length]
            low = bisect_left(keys, piece, low)
            while low < len(keys) and keys[low] == piece:
                found.append((self.sorted_ids[low].item(), length))
                low += 1
            if low == len(keys) or not keys[low].startswith(piece):
                return found, range(0)
        above = _successor(data)
        return found, range(low, len(keys) if above is None else bisect_left(keys, above, low))

    def added_extends(self, prefix: bytes) -> bool:
        """Whether some added token is longer than `prefix` and starts with it."""
        at = bisect_right(self._added_keys, prefix)
        return at < len(self._added_keys) and self._added_keys[at].startswith(prefix)

    def _ranks(self, piece: bytes) -> range:
        low = bisect_left(self._keys, piece)
        return range(low, bisect_right(self._keys, piece, low) if piece else low)


def _successor(prefix: bytes) -> bytes | None:
    """The least byte string above all that start with `prefix`; None if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def _common_length(left: bytes, right: bytes) -> int:
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))
