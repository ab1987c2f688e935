"""The field `prompt` of llama-server and of OpenAI: text, token ids, both in a row, or several.

An array with a number in it is one prompt, and so is one text or object alone in an array; any
other array is several prompts, each of which is answered.

Token ids are taken for their text, which is tokenized anew and healed at its end. Ids of a model's
own sentinels are the one way to mean a sentinel beyond doubt: with them a prompt must be a hole.
Text is read as `raw_prompts` says of routes for text with control tokens. Ids alone, without
those, are text, whatever it spells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from suture.server.errors import InvalidRequest, Loading
from suture.server.prompt.families import FAMILIES
from suture.server.routes.completer import ModelInfo
from suture.server.routes.fields import integral, no_lone_surrogates
from suture.server.routes.raw_prompts import Hole, read_opened_hole, read_raw_hole
from suture.server.token_texts import NoText, TokenTexts

MAX_PARTS = 2**18
MAX_PROMPTS = 64

_KINDS = "must be text, or an array of token ids and texts"

Parts = list[int | str]


_ROW: dict[str, Any] = {
    "type": "array",
    "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
    "minItems": 1,
    "maxItems": MAX_PARTS,
}
_OBJECT: dict[str, Any] = {
    "type": "object",
    "required": ["prompt_string"],
    "properties": {
        "prompt_string": {"anyOf": [{"type": "string"}, _ROW]},
        "multimodal_data": {"type": ["array", "null"], "maxItems": 0},
    },
}
_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        _ROW | {"contains": {"type": "integer"}},
        _OBJECT,
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, _ROW, _OBJECT]},
            "minItems": 1,
            "maxItems": MAX_PROMPTS,
        },
    ]
}


def _prompts(value: Any) -> list[Parts]:
    if isinstance(value, list) and not any(type(integral(item)) is int for item in value):
        if not 0 < len(value) <= MAX_PROMPTS:
            raise ValueError(f"must have 1 to {MAX_PROMPTS} prompts, not {len(value)}")
        return [_parts(item) for item in value]
    return [_parts(value)]


def _parts(value: Any) -> Parts:
    """One prompt in any of the forms that llama-server has for it."""
    if isinstance(value, dict):
        if value.get("multimodal_data") not in (None, []):
            raise ValueError("with multimodal_data is not supported")
        value = value.get("prompt_string")
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(_KINDS)
    if not 0 < len(value) <= MAX_PARTS:
        raise ValueError(f"must have 1 to {MAX_PARTS} items, not {len(value)}")
    value = [integral(item) for item in value]
    if not {type(item) for item in value} <= {int, str}:
        raise ValueError(_KINDS)
    return [no_lone_surrogates(item) if isinstance(item, str) else item for item in value]


Prompts = Annotated[list[list[Any]], BeforeValidator(_prompts), WithJsonSchema(_SCHEMA)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text of a prompt, and the hole that it is, if it is one."""

    text: str
    hole: Hole | None = None


def prompt_text(parts: Parts, model: ModelInfo) -> str:
    """The text of a prompt, which is nothing but text.

    Raises `InvalidRequest`, and `Loading` for ids before the model is there.
    """
    return _text(parts, model, {})


def read_prompt(parts: Parts, model: ModelInfo) -> Prompt:
    """What a prompt says to `model`; raises as `prompt_text` does."""
    is_spelled = any(isinstance(part, str) for part in parts)
    marks = _marks(model.tokens, model.family)
    text = _text(parts, model, marks)
    if any(part in marks for part in parts):
        return Prompt(text, read_raw_hole(text, model.family))
    return Prompt(text, read_opened_hole(text, model.family) if is_spelled else None)


def _text(parts: Parts, model: ModelInfo, marks: Mapping[int | str, bytes]) -> str:
    if [*map(type, parts)] == [str]:
        return str(parts[0])
    if model.tokens is None:
        raise Loading("Loading model", retry_after=2)
    try:
        return model.tokens.prompt_text(parts, marks)
    except NoText as error:
        raise InvalidRequest(f'"prompt" {error}', "prompt") from None


def _marks(tokens: TokenTexts | None, family: str | None) -> dict[int | str, bytes]:
    """The ids of the family's sentinels, and how a client would write them in text."""
    if tokens is None:
        return {}
    texts = {text for row in FAMILIES if row.name == family for text in row.sentinels.values()}
    ids = {tokens.vocabulary.special_id(text): text for text in texts}
    return {i: text.replace("▁", " ").encode() for i, text in ids.items() if i is not None}
