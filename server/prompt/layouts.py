"""Layouts: the order in which text and sentinels stand in a prompt.

  plain  P                                    text is completed left to right
  psm    [pre] P [suf] S [mid]                of a family trained so
  spm    [pre] [suf] S [mid] P                of a family trained psm
         [suf] S [pre] P [mid]                of a family trained so
         [suf] S [pre] P                      of one that has no middle token
  anchor [pre] P1 [suf] S [mid] P2            of a family trained psm; P2 is typed (`anchors.py`)

The first spm is no misprint: for a model trained psm it costs nothing against psm, where the
second costs 9 bits at the first line. It ends with plain text, which can be healed, as anchor does.

In psm, sentinels and the suffix stand between the prefix and what is generated. Its tail is
healed in psm too where it is *moved*: given back, and said first behind [mid], by the middle.
Where it is *kept*, nothing is healed. A family trained psm has seen holes begin inside words, so
which is better is measured, not known.

Text from other files (`extra`) stands before all this, except in a family that was shown it as
the head of the prefix. A chat model gets the hole as a user's turn, behind a header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from suture.healing.boundary import Encode
from suture.healing.vocabulary import Vocabulary
from suture.server.errors import InfillUnsupported, InvalidRequest
from suture.server.prompt.families import (
    FimFamily,
    HoleLayout,
    LayoutDefaults,
    Order,
    Role,
    TailBoundary,
    missing_sentinels,
)
from suture.server.prompt.parts import Part
from suture.server.prompt.paths import one_line, shown_path
from suture.server.prompt.text_encoding import starts_with_space
from suture.server.request import CompletionRequest

LayoutName = Literal["plain", "psm", "spm", "anchor"]
HoleRole = Literal["pre", "suf", "mid", "prefix", "suffix", "extra", "typed"]

_HOLES: Mapping[tuple[Order, LayoutName], tuple[HoleRole, ...]] = MappingProxyType(
    {
        ("psm", "psm"): ("pre", "prefix", "suf", "suffix", "mid"),
        ("psm", "anchor"): ("pre", "prefix", "suf", "suffix", "mid", "typed"),
        ("psm", "spm"): ("pre", "suf", "suffix", "mid", "prefix"),
        ("spm", "spm"): ("suf", "suffix", "pre", "prefix", "mid"),
    }
)


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of one model: the roles of texts and sentinels in order.

    `sentinel_ids` are the ids of the sentinels among them. `opening` and `header` are parts that
    stand before and behind the extra text, `closing` the last ones, whatever the texts are.
    `boundary` is what psm does with the prefix's tail; None in other layouts.
    """

    name: LayoutName
    roles: tuple[HoleRole, ...]
    sentinel_ids: Mapping[Role, int]
    opening: tuple[Part, ...] = ()
    header: tuple[Part, ...] = ()
    closing: tuple[Part, ...] = ()
    boundary: TailBoundary | None = None

    @property
    def n_fixed(self) -> int:
        """How many tokens the layout takes beside the texts."""
        framing = (*self.opening, *self.header, *self.closing)
        n_texts = sum(role in ("prefix", "suffix", "extra", "typed") for role in self.roles)
        return len(self.roles) - n_texts + sum(len(part.ids) for part in framing)

    @property
    def shows_suffix(self) -> bool:
        """Whether the text after the cursor is in the prompt."""
        return "suffix" in self.roles

    @property
    def has_anchor(self) -> bool:
        """Whether the prefix is parted, and its last part stands at the prompt's end."""
        return self.roles[-1] == "typed" and not self.closing

    @property
    def heals_prefix(self) -> bool:
        """Whether what is generated can begin with the prefix's tail, which is healed then."""
        is_last = self.roles[-1] in ("prefix", "typed") and not self.closing
        return is_last or self.boundary == "move"

    def begins_with_prefix(self, extra: tuple[Part, ...]) -> bool:
        """Whether the prefix begins a document, and does not stand behind other text (S1)."""
        at = self.roles.index("prefix")
        is_behind_extra = at > 0 and self.roles[at - 1] == "extra"
        return not (is_behind_extra and (extra or self.header))

    def parts(
        self,
        prefix_ids: tuple[int, ...],
        suffix_ids: tuple[int, ...],
        extra: tuple[Part, ...] = (),
        typed_ids: tuple[int, ...] = (),
    ) -> tuple[Part, ...]:
        """The layout filled in."""
        parts: list[Part] = list(self.opening)
        for role in self.roles:
            match role:
                case "extra":
                    parts += [*extra, *self.header]
                case "prefix":
                    parts.append(Part("prefix", prefix_ids))
                case "suffix":
                    parts.append(Part("suffix", suffix_ids))
                case "typed":
                    parts.append(Part("typed", typed_ids))
                case _:
                    parts.append(Part(role, (self.sentinel_ids[role],)))
        return (*parts, *self.closing)


PLAIN = Layout("plain", ("extra", "prefix"), MappingProxyType({}))


def choose_layout(
    request: CompletionRequest,
    vocabulary: Vocabulary,
    family: FimFamily | None,
    encode: Encode,
    defaults: LayoutDefaults | None = None,
) -> Layout:
    """The layout that a request asks for, or for "auto" that of `defaults`, or of the family.

    Without a family, a suffix that is blank is completed left to right, as behind the last line
    of a file, and any other raises `InfillUnsupported`, and so does a tokenizer that cannot encode
    a suffix as it stands. Raises `InvalidRequest` for a layout that the family does not have.
    `encode` is the one for text inside a prompt.
    """
    if not request.infill:
        return PLAIN
    if family is None:
        if request.suffix.strip():
            raise InfillUnsupported(_unsupported(vocabulary))
        return PLAIN
    if starts_with_space(encode, vocabulary):
        raise InfillUnsupported(_spaced(family.name))
    if defaults is None or (family.order, defaults.layout) not in _HOLES:
        defaults = family.defaults
    name = _hole_layout(request, family, defaults)
    hole = _HOLES.get((family.order, name))
    if hole is None:
        raise InvalidRequest(
            f"layout {name} does not fit this model: {family.name} was trained {family.order}",
            field="layout",
        )
    layout = _framed(name, hole, family, request, encode)
    return replace(layout, boundary=_tail_boundary(request, layout, defaults))


def _hole_layout(
    request: CompletionRequest, family: FimFamily, defaults: LayoutDefaults
) -> HoleLayout:
    if request.layout != "auto":
        return request.layout
    # Only psm has a choice of boundary, so who makes it asks for psm.
    if request.fim_boundary != "auto" and family.order == "psm":
        return "psm"
    # Unhealed text that stands last is cut inside tokens; inside the prompt it was so in training.
    return family.order if request.healing == "off" else defaults.layout


def _tail_boundary(
    request: CompletionRequest, layout: Layout, defaults: LayoutDefaults
) -> TailBoundary | None:
    if layout.name != "psm":
        return None
    # Else the tail would go on with the suffix, or begin a turn of the model's own.
    is_behind_mid = layout.roles[-1] == "mid" and not layout.closing
    if request.healing == "off" or not is_behind_mid:
        return "keep"
    return defaults.boundary if request.fim_boundary == "auto" else request.fim_boundary


def _framed(
    name: LayoutName,
    hole: tuple[HoleRole, ...],
    family: FimFamily,
    request: CompletionRequest,
    encode: Encode,
) -> Layout:
    """The hole with the places of the other files, the header, and the turn it stands in."""
    ids = family.sentinel_ids
    roles = [role for role in hole if role != "mid" or "mid" in ids]
    roles.insert(roles.index("prefix") if family.repository.inside_prefix else 0, "extra")
    header: tuple[Part, ...] = ()
    if text := family.repository.cursor_header:
        path, language = shown_path(request.path, 64), one_line(request.language or "", 32)
        # The makers' names of languages begin with a capital: Python, Go.
        language = language[:1].upper() + language[1:]
        header_text = text.format(path=path, language=language)
        header = (Part("header", tuple(encode(header_text.encode()))),)
    opening, closing = (
        (Part(role, (ids[role],)), Part("header", tuple(encode(b"\n")))) if role in ids else ()
        for role in ("user", "assistant")
    )
    return Layout(name, tuple(roles), ids, opening, header, closing)


def _spaced(family: str) -> str:
    return (
        f"Infill is not supported by this model: it is of the family {family}, but its tokenizer"
        " puts a space before every text, also before a suffix, where the model saw none, and has"
        " no character to put there instead."
    )


def _unsupported(vocabulary: Vocabulary) -> str:
    """llama.cpp's words, which clients match on, and what to do."""
    missing = "".join(f"{name} token is missing. " for name in missing_sentinels(vocabulary))
    unknown = "it has the tokens, but the order they were trained in is not known. "
    return (
        f"Infill is not supported by this model: {missing or unknown}"
        "Serve one that was trained to fill in the middle: the default of `suture serve` is one,"
        " and `suture models` lists others."
    )
