"""The parts a prompt is put together from, in order: control tokens and encoded texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

ControlRole = Literal["bos", "pre", "suf", "mid", "rep", "sep", "user", "assistant"]
TextRole = Literal["repository", "extra", "path", "header", "prefix", "suffix", "typed"]

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
