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
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from suture.healing.gguf import GgufError, read_header
from suture.healing.pieces import (
    SPACE_MARK,
    UnsupportedVocabulary,
    escapes_spaces,
    pieces_of,
)
from suture.healing.specials import TokenKind, control_ids, end_ids, visible_ids

__all__ = ["TokenKind", "UnsupportedVocabulary", "Vocabulary"]

_FIM_KEYS = {
    "pre": ("fim_pre_token_id", "prefix_token_id"),
    "suf": ("fim_suf_token_id", "suffix_token_id"),
    "mid": ("fim_mid_token_id", "middle_token_id"),
    "pad": ("fim_pad_token_id",),
    "rep": ("fim_rep_token_id",),
    "sep": ("fim_sep_token_id",),
}
# Families whose files may leave `add_bos_token` out and still mean it.
_BOS_PRETOKENIZERS = frozenset(
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano"
    " tekken chameleon".split()
)


class Vocabulary:
    """Pieces, kinds and special ids of a model. Immutable.

    `pieces` are given by id; for control, unknown and unused tokens that is the text they show,
    and their piece is empty. `texts` replaces what all tokens show. Rows from ``len(pieces)`` to
    `n_vocab` are padding. Raises `ValueError` where the lengths disagree.
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
    ) -> None:
        n_pieces = len(pieces)
        self.n_vocab = n_pieces if n_vocab is None else n_vocab
        if self.n_vocab < n_pieces:
            raise ValueError(f"{n_pieces} tokens do not fit in {self.n_vocab} rows of logits")
        self._kinds = np.full(self.n_vocab, TokenKind.UNUSED, np.int32)
        self._kinds[:n_pieces] = TokenKind.NORMAL if kinds is None else np.asarray(kinds, np.int32)
        if texts is not None and len(texts) != n_pieces:
            raise ValueError(f"{len(texts)} texts for {n_pieces} tokens")
        self._texts = texts
        self._shown = pieces
        self._pieces = [*pieces, *[b""] * (self.n_vocab - n_pieces)]
        for token_id in self._ids_of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED):
            self._pieces[token_id] = b""
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.eog_ids = eog_ids
        self.add_bos = add_bos
        self.model = model
        self.pretokenizer = pretokenizer
        self.fim_ids: Mapping[str, int] = MappingProxyType(dict(fim_ids or {}))
        self._escapes_spaces = escapes_spaces(model, pretokenizer)
        self._index()

    def _index(self) -> None:
        pieces = self._pieces
        ordinary = self._ids_of_kind(TokenKind.NORMAL, TokenKind.BYTE)
        added = [i for i in self._ids_of_kind(TokenKind.USER_DEFINED) if pieces[i]]
        drawable = [i for i in ordinary if pieces[i]] + [i for i in added if pieces[i].isspace()]
        drawable.sort(key=pieces.__getitem__)
        self._keys = [pieces[token_id] for token_id in drawable]
        self.sorted_ids: npt.NDArray[np.int32] = np.array(drawable, np.int32)
        self.rank: npt.NDArray[np.int32] = np.full(self.n_vocab, -1, np.int32)
        self.rank[self.sorted_ids] = np.arange(len(drawable), dtype=np.int32)
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
            for token_id in self._ids_of_kind(TokenKind.CONTROL, TokenKind.USER_DEFINED)
        }

    def _ids_of_kind(self, *kinds: TokenKind) -> list[int]:
        return np.flatnonzero(np.isin(self._kinds, kinds)).tolist()

    @classmethod
    def from_gguf(cls, path: Path) -> Vocabulary:
        """The vocabulary of a model file.

        Raises `GgufError` for a file that cannot be read or has no tokens, and
        `UnsupportedVocabulary` for a tokenizer whose tokens have no fixed bytes.
        """
        header = read_header(path)
        try:
            return _from_metadata(header.metadata, header.tensor_shapes)
        except _BadMetadata as error:
            raise GgufError(f"{path}: {error}") from None

    def bytes_of(self, token_id: int) -> bytes:
        """The token's piece; raises `IndexError` outside ``range(n_vocab)``."""
        if token_id < 0:
            raise IndexError(f"token id {token_id} is negative")
        return self._pieces[token_id]

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
        """The token's kind; padding rows are `UNUSED`."""
        return TokenKind(int(self._kinds[token_id]))

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a control or unknown token: it has a text but no piece."""
        return bool(self._kinds[token_id] in (TokenKind.CONTROL, TokenKind.UNKNOWN))

    def as_read(self, segment: bytes) -> bytes:
        """The text as the tokenizer reads it: SentencePiece takes its ``▁`` for a space."""
        return segment.replace(SPACE_MARK, b" ") if self._escapes_spaces else segment

    def may_become_space(self, unfinished: bytes) -> bool:
        """Whether a continuation can make of these bytes a character that is read as a space."""
        return self._escapes_spaces and bool(unfinished) and SPACE_MARK.startswith(unfinished)

    @cached_property
    def silent_ids(self) -> tuple[int, ...]:
        """All rows that add no bytes: special, unused, padding."""
        return tuple(i for i, piece in enumerate(self._pieces) if not piece)

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """The tokens that stand for no text, such as the end of a document."""
        return frozenset(self._ids_of_kind(TokenKind.CONTROL))

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

    def proper_prefixes(self, pending: bytes) -> npt.NDArray[np.int32]:
        """Ids of the drawable tokens whose piece is a proper, non-empty prefix of `pending`."""
        longest = min(len(pending) - 1, self.max_piece_bytes)
        ranges = [self._ranks(pending[:length]) for length in range(1, longest + 1)]
        ranks = [rank for ranks in ranges for rank in ranks]
        return self.sorted_ids[ranks] if ranks else self.sorted_ids[:0]

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


class _BadMetadata(ValueError):
    """The metadata lack something that every vocabulary has."""


def _from_metadata(
    metadata: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]
) -> Vocabulary:
    strings = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(strings, list) or not strings:
        raise _BadMetadata("the file has no vocabulary (tokenizer.ggml.tokens)")
    model = str(metadata.get("tokenizer.ggml.model", ""))
    pretokenizer = str(metadata.get("tokenizer.ggml.pre", "default"))
    is_spm = model == "llama"
    ids = {string: token_id for token_id, string in enumerate(strings)}
    fim_ids = _explicit_fim_ids(metadata, len(strings))
    kinds = _kinds(metadata, len(strings), ids, fim_ids)
    eos_id = _id(metadata, "eos_token_id", len(strings), default=2 if is_spm else None)
    ends = (_id(metadata, key, len(strings)) for key in ("eot_token_id", "eom_token_id"))
    return Vocabulary(
        pieces_of(strings, kinds, model, pretokenizer),
        kinds=kinds,
        n_vocab=max(len(strings), _n_rows(metadata, shapes)),
        bos_id=_id(metadata, "bos_token_id", len(strings), default=1 if is_spm else None),
        eos_id=eos_id,
        eog_ids=frozenset({i for i in (eos_id, *ends) if i is not None} | end_ids(ids, fim_ids)),
        add_bos=bool(
            metadata.get(
                "tokenizer.ggml.add_bos_token", is_spm or pretokenizer in _BOS_PRETOKENIZERS
            )
        ),
        model=model,
        pretokenizer=pretokenizer,
        fim_ids=fim_ids,
    )


def _kinds(
    metadata: Mapping[str, object],
    n_tokens: int,
    ids: Mapping[bytes, int],
    fim_ids: Mapping[str, int],
) -> npt.NDArray[np.int32]:
    kinds = np.full(n_tokens, TokenKind.NORMAL, np.int32)
    declared = metadata.get("tokenizer.ggml.token_type")
    if declared is not None:
        if not isinstance(declared, np.ndarray) or len(declared) < n_tokens:
            raise _BadMetadata("tokenizer.ggml.token_type does not give every token a kind")
        kinds[:] = declared[:n_tokens]
    kinds[~np.isin(kinds, list(TokenKind))] = TokenKind.UNUSED
    # Old converters fill unused rows with user-defined tokens of this form.
    kinds[[i for string, i in ids.items() if string == b"[PAD%d]" % i]] = TokenKind.UNUSED
    kinds[list(control_ids(ids, fim_ids))] = TokenKind.CONTROL
    kinds[list(visible_ids(ids))] = TokenKind.USER_DEFINED
    return kinds


def _explicit_fim_ids(metadata: Mapping[str, object], n_tokens: int) -> dict[str, int]:
    found = {
        role: [_id(metadata, key, n_tokens) for key in keys] for role, keys in _FIM_KEYS.items()
    }
    return {role: i for role, ids in found.items() for i in ids[::-1] if i is not None}


def _id(
    metadata: Mapping[str, object], key: str, n_tokens: int, default: int | None = None
) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{key}")
    return value if isinstance(value, int) and 0 <= value < n_tokens else default


def _n_rows(metadata: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]) -> int:
    for name in ("output.weight", "token_embd.weight"):
        if len(shapes.get(name, ())) == 2:
            return shapes[name][1]
    declared = metadata.get(f"{metadata.get('general.architecture')}.vocab_size")
    return declared if isinstance(declared, int) else 0
