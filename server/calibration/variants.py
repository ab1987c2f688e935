"""The ways in which a hole can be asked for: a layout, what psm does with the tail, and healing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from suture.server.completion import LoadedModel
from suture.server.errors import InvalidRequest
from suture.server.prompt.families import HoleLayout, TailBoundary
from suture.server.prompt.layouts import choose_layout
from suture.server.prompt.text_encoding import text_encoding
from suture.server.request import CompletionRequest, Healing

# In the order in which prompts share most: the prefix first, then the suffix.
_LAYOUTS: tuple[tuple[HoleLayout, TailBoundary | None], ...] = (
    ("psm", "keep"),
    ("psm", "move"),
    ("anchor", None),
    ("spm", None),
)
_HEALINGS: tuple[Healing, ...] = ("off", "recursive", "exact")


@dataclass(frozen=True, slots=True)
class Variant:
    """`boundary` is psm's, None in other layouts; psm heals only what it moves."""

    layout: HoleLayout
    boundary: TailBoundary | None
    healing: Healing

    @property
    def place(self) -> tuple[HoleLayout, TailBoundary | None]:
        """What its prompt looks like."""
        return self.layout, self.boundary

    @staticmethod
    def all() -> tuple[Variant, ...]:
        """Those that any model may have."""
        return tuple(
            Variant(layout, boundary, healing)
            for layout, boundary in _LAYOUTS
            for healing in _HEALINGS
        )

    def __str__(self) -> str:
        return " ".join(filter(None, (self.layout, self.boundary, self.healing)))

    def request(self, prefix: str, suffix: str, max_tokens: int) -> CompletionRequest:
        """What a client that wants the variant would send for the rest of the line."""
        return CompletionRequest(
            prefix,
            suffix,
            infill=True,
            healing=self.healing,
            layout=self.layout,
            fim_boundary=self.boundary or "auto",
            shape="line",
            max_tokens=max_tokens,
        )


def variants_of(model: LoadedModel) -> tuple[Variant, ...]:
    """Those that the model has, in the order in which they are asked best.

    psm keep stands once: nothing is healed there, whatever is asked for. Raises
    `InfillUnsupported` for a model that fills no holes.
    """
    return tuple(_variants(model))


def _variants(model: LoadedModel) -> Iterator[Variant]:
    vocabulary = model.engine.vocabulary
    encode = text_encoding(model.codec.encode, vocabulary, model.family).inner
    for variant in Variant.all():
        try:
            # With a text behind the cursor: a model without sentinels would go on left to right.
            request = variant.request("a", "b", 1)
            chosen = choose_layout(request, vocabulary, model.family, encode)
        except InvalidRequest:
            continue
        if variant.healing == "exact" and model.coverings is None:
            continue
        is_healed = variant.healing != "off"
        if chosen.boundary == variant.boundary and (chosen.heals_prefix or not is_healed):
            yield variant
