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
    model_validator,
)

from suture.server.errors import InvalidRequest
from suture.server.request import SamplingParams

MAX_INT = 2**31 - 1
# Below what the automaton takes: a request's shape may add stops of its own.
MAX_STOPS = 64
MAX_STOP_BYTES = 4096
MAX_CANDIDATES = 16
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


def _integral(value: Any) -> Any:
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
    value = _integral(value)
    if type(value) is not int or not 0 <= value <= MAX_PROBS:
        raise ValueError(f"must be a number of tokens from 0 to {MAX_PROBS}")
    return value


Probs = Annotated[int, BeforeValidator(_n_probs)]
Text = Annotated[str, AfterValidator(no_lone_surrogates)]
Integer = Annotated[int, BeforeValidator(_integral), Field(ge=-MAX_INT, le=MAX_INT)]
Count = Annotated[int, BeforeValidator(_integral), Field(ge=0, le=MAX_INT)]
Candidates = Annotated[int, BeforeValidator(_integral), Field(ge=1, le=MAX_CANDIDATES)]
LastTokens = Annotated[int, BeforeValidator(_integral), Field(ge=-1, le=MAX_INT)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Share = Annotated[float, Field(ge=0, le=1)]
StopStrings = Annotated[list[Text], BeforeValidator(_one_or_many), AfterValidator(_bounded_stops)]


class RequestBody(BaseModel):
    """A JSON body; unknown fields are ignored, as the originals do."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=())

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


class SamplingFields(RequestBody):
    """Sampling fields that have one name in every dialect; absent is the dialect's default."""

    temperature: Annotated[float, Field(ge=0, le=1e6)] | None = None
    top_k: Integer | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    repeat_penalty: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None
    repeat_last_n: LastTokens | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    typical_p: Number | None = None
    top_n_sigma: Number | None = None
    xtc_probability: Share | None = None
    xtc_threshold: Share | None = None
    dynatemp_range: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    dynatemp_exponent: Annotated[float, Field(ge=0, le=1e6)] | None = None
    min_keep: Count | None = None
    dry_multiplier: Number | None = None
    dry_base: Number | None = None
    dry_allowed_length: Count | None = None
    dry_penalty_last_n: LastTokens | None = None
    dry_sequence_breakers: (
        Annotated[
            list[Text], Field(max_length=MAX_BREAKERS, fail_fast=True), AfterValidator(_breakers)
        ]
        | None
    ) = None
    seed: Annotated[int, BeforeValidator(_integral), Field(ge=-1, le=2**64 - 1)] | None = None

    def sampling(self, defaults: SamplingParams, n_ctx: int) -> SamplingParams:
        """The parameters asked for, over `defaults`.

        `top_k` below 0 is off; `repeat_last_n` and `dry_penalty_last_n` -1 are the whole context;
        a `dry_base` below 1 is the default; `seed` -1 is a fresh one, and so is llama.cpp's own
        "random" value of 2**32-1.
        """
        asked = {
            name: value
            for name in SamplingFields.model_fields
            if name != "seed" and (value := getattr(self, name)) is not None
        }
        params = replace(defaults, **asked)
        return replace(
            params,
            top_k=max(0, params.top_k),
            repeat_last_n=n_ctx if params.repeat_last_n == -1 else params.repeat_last_n,
            dry_base=params.dry_base if params.dry_base >= 1 else defaults.dry_base,
            dry_sequence_breakers=tuple(params.dry_sequence_breakers),
            seed=None if self.seed in (None, -1, 2**32 - 1) else self.seed,
        )


def check_token_id(token_id: int, n_vocab: int, field: str) -> int:
    """`token_id`, if the vocabulary has it. `n_vocab` 0: not known yet, so anything is."""
    if token_id < 0 or 0 < n_vocab <= token_id:
        raise InvalidRequest(f'"{field}" must be token ids from 0 to {n_vocab - 1}', field)
    return token_id
