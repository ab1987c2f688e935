"""Field types and groups of fields that more than one dialect has.

A field is of exactly its JSON type: no number for text, no text for a number, no true for 1. An
integer may be written 8.0, as some clients do. null counts as absent, except where a dialect
says otherwise (`NOT_NULL`).

A field that would change the result and cannot be served yet is refused unless it has the value
that changes nothing (`NOT_YET`): nothing is ignored silently but what the original ignores too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from suture.server.errors import InvalidRequest
from suture.server.request import MAX_CANDIDATES, SamplingParams

MAX_INT = 2**31 - 1
# Below what the automaton takes: a request's shape may add stops of its own.
MAX_STOPS = 64
MAX_STOP_BYTES = 4096
MAX_BIASES = 1024
MAX_BREAKERS = 32
MAX_PROBS = 100


def no_lone_surrogates(text: str) -> str:
    """`text`; raises `ValueError` where it has half of a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"must be Unicode text: lone surrogate at {error.start}") from None
    return text


def integral(value: Any) -> Any:
    """`value`, an integer where it is one written as 8.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _one_or_many(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise ValueError("must be a string or an array of strings")
    if len(value) > MAX_STOPS and isinstance(value, list):
        # Now: each item that is none would be told of.
        raise ValueError(f"must be at most {MAX_STOPS} strings, not {len(value)}")
    return [value] if isinstance(value, str) else value


def _bounded_stops(stops: list[str]) -> list[str]:
    n_bytes = sum(len(stop.encode("utf-8", "replace")) for stop in stops)
    if n_bytes > MAX_STOP_BYTES:
        raise ValueError(f"must be at most {MAX_STOP_BYTES} bytes together, not {n_bytes}")
    return stops


def _breakers(texts: list[str]) -> list[str]:
    if not texts or not all(texts):
        raise ValueError(f"must be 1 to {MAX_BREAKERS} strings that are not empty")
    return texts


def _n_probs(value: Any) -> Any:
    value = integral(value)
    if type(value) is not int or not 0 <= value <= MAX_PROBS:
        raise ValueError(f"must be a number of tokens from 0 to {MAX_PROBS}")
    return value


def stops_schema(most: int) -> dict[str, Any]:
    """What `StopStrings` takes, where there may be `most` of them."""
    stop = {"type": "string", "maxLength": MAX_STOP_BYTES}
    return {
        "anyOf": [stop, {"type": "array", "items": stop, "maxItems": most}],
        "description": "Where one of these stands, the text ends before it. They may have "
        f"{MAX_STOP_BYTES} bytes together; an empty one is ignored.",
    }


Probs = Annotated[
    int,
    BeforeValidator(_n_probs),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAX_PROBS}),
]
Text = Annotated[str, AfterValidator(no_lone_surrogates)]
Integer = Annotated[int, BeforeValidator(integral), Field(ge=-MAX_INT, le=MAX_INT)]
Count = Annotated[int, BeforeValidator(integral), Field(ge=0, le=MAX_INT)]
Candidates = Annotated[int, BeforeValidator(integral), Field(ge=1, le=MAX_CANDIDATES)]
LastTokens = Annotated[int, BeforeValidator(integral), Field(ge=-1, le=MAX_INT)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Share = Annotated[float, Field(ge=0, le=1)]
StopStrings = Annotated[
    list[Text],
    BeforeValidator(_one_or_many),
    AfterValidator(_bounded_stops),
    WithJsonSchema(stops_schema(MAX_STOPS)),
]


class RequestBody(BaseModel):
    """A JSON body; unknown fields are ignored, as the originals do."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=())

    # What the document calls the fields that a class has beyond those before it.
    GROUP: ClassVar[str] = ""
    NOT_NULL: ClassVar[frozenset[str]] = frozenset()
    NOT_YET: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _prepare(cls, body: dict[str, Any]) -> dict[str, Any]:
        present = {k: v for k, v in body.items() if v is not None or k in cls.NOT_NULL}
        for field, neutral in cls.NOT_YET.items():
            if field in present and not _is_one_of(present[field], neutral):
                raise InvalidRequest(f'"{field}" is not supported yet', field)
        return present


def _is_one_of(value: object, candidates: tuple[Any, ...]) -> bool:
    # true == 1 in Python, and "n": true is not "n": 1
    return any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in candidates)


class ModelFields(RequestBody):
    """Which of the models answers."""

    model: Text | None = Field(
        default=None, description="A served model's name; any other asks the default one."
    )


class SamplingFields(RequestBody):
    """Sampling fields that have one name in every dialect; absent is the dialect's default."""

    GROUP = "sampling"
    # What a request that says nothing is served with.
    SAMPLING: ClassVar[SamplingParams] = SamplingParams()

    temperature: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="0 takes the best token each time."
    )
    top_k: Integer | None = Field(
        default=None, description="Leaves the k most probable tokens; 0 or less is off."
    )
    top_p: Share | None = Field(
        default=None, description="Leaves the fewest tokens that reach this probability; 1 is off."
    )
    min_p: Share | None = Field(
        default=None,
        description="Leaves those this many times as probable as the best; 0 is off.",
    )
    repeat_penalty: Annotated[float, Field(ge=1e-6, le=1e6)] | None = Field(
        default=None,
        description="Above 1, tokens among the last repeat_last_n become less likely; 1 is off.",
    )
    repeat_last_n: LastTokens | None = Field(
        default=None, description="How many tokens penalties look back at; -1 is the whole context."
    )
    presence_penalty: Number | None = Field(
        default=None, description="Subtracted once from tokens among the last repeat_last_n."
    )
    frequency_penalty: Number | None = Field(
        default=None, description="Subtracted each time that a token stands there."
    )
    typical_p: Number | None = Field(
        default=None,
        description="Leaves those whose surprise is nearest to the expected; 1 is off.",
    )
    top_n_sigma: Number | None = Field(
        default=None,
        description="Leaves logits within so many standard deviations of the best; 0 is off.",
    )
    xtc_probability: Share | None = Field(
        default=None,
        description="With this chance, of all that reach xtc_threshold only the least probable "
        "stays.",
    )
    xtc_threshold: Share | None = None
    dynatemp_range: Annotated[float, Field(ge=-1e6, le=1e6)] | None = Field(
        default=None, description="With a range the temperature follows the entropy; 0 is off."
    )
    dynatemp_exponent: Annotated[float, Field(ge=0, le=1e6)] | None = None
    min_keep: Count | None = Field(
        default=None, description="top_p, min_p, typical_p and XTC leave at least so many tokens."
    )
    dry_multiplier: Number | None = Field(
        default=None,
        description="DRY: what would go on with a repetition longer than dry_allowed_length "
        "becomes less likely, by dry_multiplier × dry_base to the power of what is over; 0 is off.",
    )
    dry_base: Number | None = Field(default=None, description="Below 1 it is the default.")
    dry_allowed_length: Count | None = None
    dry_penalty_last_n: LastTokens | None = Field(
        default=None, description="How many tokens DRY looks back at; -1 is the whole context."
    )
    dry_sequence_breakers: (
        Annotated[
            list[Text],
            Field(max_length=MAX_BREAKERS, fail_fast=True),
            AfterValidator(_breakers),
            WithJsonSchema(
                {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "minItems": 1,
                    "maxItems": MAX_BREAKERS,
                }
            ),
        ]
        | None
    ) = Field(default=None, description="No repetition that DRY sees goes over one of these.")
    seed: Annotated[int, BeforeValidator(integral), Field(ge=-1, le=2**64 - 1)] | None = Field(
        default=None,
        description="The same seed draws the same tokens from the same logits; -1 is a fresh one.",
    )

    def sampling(self, n_ctx: int) -> SamplingParams:
        """The parameters asked for, over `SAMPLING`.

        `top_k` below 0 is off; `repeat_last_n` and `dry_penalty_last_n` -1 are the whole context;
        a `dry_base` below 1 is the default; `seed` -1 is a fresh one, and so is llama.cpp's own
        "random" value of 2**32-1.
        """
        asked = {
            name: value
            for name in SamplingFields.model_fields
            if name != "seed" and (value := getattr(self, name)) is not None
        }
        params = replace(self.SAMPLING, **asked)
        return replace(
            params,
            top_k=max(0, params.top_k),
            repeat_last_n=n_ctx if params.repeat_last_n == -1 else params.repeat_last_n,
            dry_base=params.dry_base if params.dry_base >= 1 else self.SAMPLING.dry_base,
            dry_sequence_breakers=tuple(params.dry_sequence_breakers),
            seed=None if self.seed in (None, -1, 2**32 - 1) else self.seed,
        )


def check_token_id(token_id: int, n_vocab: int, field: str) -> int:
    """`token_id`, if the vocabulary has it. `n_vocab` 0: not known yet, so anything is."""
    if token_id < 0 or 0 < n_vocab <= token_id:
        raise InvalidRequest(f'"{field}" must be token ids from 0 to {n_vocab - 1}', field)
    return token_id
