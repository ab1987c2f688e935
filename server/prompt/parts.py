"""The parts a prompt is put together from, in order: control tokens and encoded texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from suture.healing.boundary import Encode
from suture.healing.vocabulary import Vocabulary
from suture.server.errors import EngineError
from suture.server.prompt.families import FimFamily

ControlRole = Literal["bos", "pre", "suf", "mid", "rep", "sep", "user", "assistant"]
TextRole = Literal["repository", "extra", "path", "header", "prefix", "suffix"]

UNNAMED = "untitled"
MAX_PATH = 256

_CONTROL_ROLES = frozenset(get_args(ControlRole))


@dataclass(frozen=True, slots=True)
class Part:
    """The ids of one control token or of one text; `role` says of which."""

    role: ControlRole | TextRole
    ids: tuple[int, ...]

    @property
    def is_control(self) -> bool:
        """Whether this is a token that no text of the user is encoded to."""
        return self.role in _CONTROL_ROLES


def one_line(path: str, length: int = MAX_PATH) -> str:
    """The last `length` characters of a path or name, without line ends."""
    return re.sub(r"[\r\n]+", " ", path[-length:])


def plain_text_only(encode: Encode, vocabulary: Vocabulary, family: FimFamily | None) -> Encode:
    """`encode`, with `EngineError` raised where it makes a control token of plain text (F1).

    A sentinel may be of another kind. The unknown token is none: it stands for text of the user
    that the vocabulary cannot spell.
    """
    sentinels = frozenset(family.sentinel_ids.values() if family else ())
    forbidden = vocabulary.control_ids | sentinels

    def encode_plain(text_bytes: bytes) -> Sequence[int]:
        ids = encode(text_bytes)
        if not forbidden.isdisjoint(ids):
            raise EngineError("the tokenizer took text of the request for a control token")
        return ids

    return encode_plain
