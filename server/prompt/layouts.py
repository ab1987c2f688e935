"""Layouts: the order in which text and sentinels stand at the end of a prompt.

  plain  P                                    text is completed left to right
  psm    [pre] P [suf] S [mid]                of a family trained so
  spm    [pre] [suf] S [mid] P                of a family trained psm
         [suf] S [pre] P [mid]                of a family trained so

The first spm is no misprint: for a model trained psm it costs nothing against psm, where the
second costs 9 bits at the first line. It ends with plain text, which can be healed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from suture.healing.vocabulary import Vocabulary
from suture.server.errors import InfillUnsupported, InvalidRequest
from suture.server.prompt.families import FimFamily, Order, Role, missing_sentinels
from suture.server.prompt.parts import Part
from suture.server.request import CompletionRequest

LayoutName = Literal["plain", "psm", "spm"]
LayoutRole = Role | Literal["prefix", "suffix"]

_HOLES: Mapping[tuple[Order, LayoutName], tuple[LayoutRole, ...]] = MappingProxyType(
    {
        ("psm", "psm"): ("pre", "prefix", "suf", "suffix", "mid"),
        ("psm", "spm"): ("pre", "suf", "suffix", "mid", "prefix"),
        ("spm", "spm"): ("suf", "suffix", "pre", "prefix", "mid"),
    }
)


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of one model: `roles` in order, and the ids of those that are sentinels."""

    name: LayoutName
    roles: tuple[LayoutRole, ...]
    sentinel_ids: Mapping[Role, int]

    @property
    def n_sentinels(self) -> int:
        """How many control tokens the layout takes."""
        return len(self.roles) - self.roles.count("prefix") - self.roles.count("suffix")

    @property
    def shows_suffix(self) -> bool:
        """Whether the text after the cursor is in the prompt."""
        return "suffix" in self.roles

    @property
    def ends_with_prefix(self) -> bool:
        """Whether the generation goes on right behind the prefix, which can be healed then."""
        return self.roles[-1] == "prefix"

    def parts(self, prefix_ids: tuple[int, ...], suffix_ids: tuple[int, ...]) -> tuple[Part, ...]:
        """The layout filled in."""
        ids: dict[LayoutRole, tuple[int, ...]] = {"prefix": prefix_ids, "suffix": suffix_ids}
        ids.update((role, (token_id,)) for role, token_id in self.sentinel_ids.items())
        return tuple(Part(role, ids[role]) for role in self.roles)


PLAIN = Layout("plain", ("prefix",), MappingProxyType({}))


def choose_layout(
    request: CompletionRequest, vocabulary: Vocabulary, family: FimFamily | None
) -> Layout:
    """The layout that a request asks for, or for "auto" the one that the family was trained in.

    Without a family, an empty suffix is completed left to right and any other raises
    `InfillUnsupported`. Raises `InvalidRequest` for a layout that the family does not have.
    """
    if not request.infill:
        return PLAIN
    if family is None:
        if request.suffix:
            raise InfillUnsupported(_unsupported(vocabulary))
        return PLAIN
    name = family.order if request.layout == "auto" else request.layout
    roles = _HOLES.get((family.order, name))
    if roles is None:
        raise InvalidRequest(
            f"layout {name} does not fit this model: {family.name} was trained {family.order}",
            field="layout",
        )
    return Layout(name, roles, family.sentinel_ids)


def _unsupported(vocabulary: Vocabulary) -> str:
    """llama.cpp's words, which clients match on, and what to do."""
    missing = "".join(f"{name} token is missing. " for name in missing_sentinels(vocabulary))
    unknown = "it has the tokens, but the order they were trained in is not known. "
    return (
        f"Infill is not supported by this model: {missing or unknown}"
        "Serve one that was trained to fill in the middle: the default of `suture serve` is one,"
        " and `suture models` lists others."
    )
