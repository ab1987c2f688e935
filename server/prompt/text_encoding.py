"""Plain text to token ids, where it begins a document and where it stands inside one.

  dummy space   the space that SentencePiece reads before every text it is given
  opening       the encoding of a text that begins a document, with the dummy space
  inner         the encoding of one that stands behind other text, or is a suffix: without it
  anchor        a character that merges with none: text is encoded behind it, and its ids dropped

For tokenizers without a dummy space both encodings are the same.

F1  Control ids come from the family only. SentencePiece merges text to any token that is spelled
    so, control tokens too (CodeLlama's `▁<PRE>`, out of a tag in HTML): such a token is replaced
    by those of its text in two parts.
S1  The dummy space stands before text that begins a document: the first text of a prompt or
    behind a prefix sentinel, and never elsewhere. That is how the makers of CodeLlama and of
    Codestral encode a hole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

from suture.healing.boundary import Encode
from suture.healing.vocabulary import TokenKind, Vocabulary
from suture.server.errors import EngineError

_SPELLED = (TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.NORMAL)


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """The encodings of plain text, by where it stands."""

    opening: Encode
    inner: Encode

    @property
    def has_dummy_space(self) -> bool:
        """Whether it matters where a text stands."""
        return self.opening is not self.inner


class Controls(Protocol):
    """What names tokens that may be no part of a text: a family, or a plan made with it."""

    @property
    def stop_ids(self) -> frozenset[int]: ...


def text_encoding(
    encode: Encode, vocabulary: Vocabulary, controls: Controls | None = None
) -> TextEncoding:
    """How this tokenizer encodes plain text; `encode` is its own function.

    Where no character can be an anchor, `inner` keeps the dummy space, which `starts_with_space`
    shows. The encodings raise `EngineError` where the tokenizer makes of plain text what cannot
    be plain text (F1).
    """
    plain = partial(_plain, vocabulary, controls.stop_ids if controls else frozenset())
    anchor = _anchor(vocabulary) if starts_with_space(encode, vocabulary) else None
    if anchor is None:
        both = partial(plain, encode, encode)
        return TextEncoding(both, both)
    behind = partial(_behind, anchor, tuple(encode(anchor)), encode)
    return TextEncoding(partial(plain, encode, behind), partial(plain, behind, behind))


def spelled(pending: bytes, inner: Encode, vocabulary: Vocabulary) -> Sequence[int]:
    """Tokens that say the bytes, which may begin or end inside a character."""
    try:
        pending.decode()
    except UnicodeDecodeError:
        pass  # the tokenizer would make replacement characters of them
    else:
        return inner(pending)
    token_ids: list[int] = []
    while n_bytes := vocabulary.longest_prefix(pending):
        token_ids.append(vocabulary.ids_of(pending[:n_bytes])[-1])
        pending = pending[n_bytes:]
    return token_ids


def starts_with_space(encode: Encode, vocabulary: Vocabulary) -> bool:
    """Whether `encode` reads a space before a text that has none."""
    ids = encode(b"x")
    return bool(ids) and vocabulary.bytes_of(ids[0]).startswith(b" ")


def _behind(
    anchor: bytes, anchor_ids: tuple[int, ...], encode: Encode, text_bytes: bytes
) -> Sequence[int]:
    """The ids of a text that stands behind other text."""
    ids = encode(anchor + text_bytes)
    n_anchor = len(anchor_ids)
    if tuple(ids[:n_anchor]) != anchor_ids:
        raise EngineError("the tokenizer joins text to a character that no other token contains")
    return ids[n_anchor:]


@lru_cache(maxsize=1)
def _anchor(vocabulary: Vocabulary) -> bytes | None:
    """A character with a token of its own that occurs in no other token; None if all do.

    The lowest one: where there are byte tokens, one of the control characters.
    """
    pieces = map(vocabulary.bytes_of, range(vocabulary.n_vocab))
    n_uses = Counter(c for piece in pieces for c in piece.decode("utf-8", "replace"))
    alone = (
        character
        for character, n in n_uses.items()
        if n == len(vocabulary.ids_of(character.encode()))
    )
    # The library is written in C, where a NUL ends a text, and blanks are treated specially.
    return min((c for c in alone if c > "\0" and not c.isspace()), default="").encode() or None


def _plain(
    vocabulary: Vocabulary,
    controls: frozenset[int],
    encode: Encode,
    inner: Encode,
    text_bytes: bytes,
) -> Sequence[int]:
    """The ids of `text_bytes` by `encode`, control tokens replaced by those of their text (F1).

    Those of a family, `controls`, may be of another kind. The unknown token is none: it stands for
    text that the vocabulary cannot spell.
    """
    ids = encode(text_bytes) if text_bytes else ()
    forbidden = vocabulary.control_ids | controls
    if forbidden.isdisjoint(ids):
        return ids
    plain_ids: list[int] = []
    for token_id in ids:
        if token_id not in forbidden:
            plain_ids.append(token_id)
            continue
        shown = vocabulary.as_read(vocabulary.text_of(token_id).encode())
        # The text may have got its first space from the tokenizer.
        is_of_text = shown in b" " + vocabulary.as_read(text_bytes)
        spelling = shown.decode()
        if vocabulary.kind_of(token_id) not in _SPELLED or len(spelling) < 2 or not is_of_text:
            raise EngineError("the tokenizer took text of the request for a control token")
        for part in (spelling[:-1], spelling[-1:]):
            plain_ids += _plain(vocabulary, controls, inner, inner, part.encode())
    return plain_ids
