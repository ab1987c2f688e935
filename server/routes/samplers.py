"""llama-server's `samplers` and `logit_bias`.

The list says which samplers apply, and in which order: one that is not named is off, whatever its
field says. `infill`, which keeps only near-certain continuations and is in every editor plugin's
list, is not built; greedy is nearest to it, and is what such a list gets unless it names
`temperature`. Of several candidates that is the first, as all would be one text: the others are
drawn among near-certain continuations. `adaptive_p` is not built either, and refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from suture.server.request import SAMPLERS, SamplingParams
from suture.server.routes.fields import MAX_BIASES, MAX_INT, integral

_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "t": "temperature",
    "x": "xtc",
    "i": "infill",
    "a": "adaptive_p",
}
# llama-server knows samplers by these names too.
_ALIASES = {
    "top-k": "top_k",
    "top-p": "top_p",
    "nucleus": "top_p",
    "typical-p": "typ_p",
    "typical": "typ_p",
    "typ-p": "typ_p",
    "typ": "typ_p",
    "min-p": "min_p",
    "temp": "temperature",
    "top-n-sigma": "top_n_sigma",
}


# llama.cpp's `infill` keeps what has a fifth of all probability; this, of the best token's.
_NEAR_CERTAIN = 0.2


def only_listed(params: SamplingParams, names: list[str]) -> SamplingParams:
    """`params` with the samplers of `names` alone, in that order."""
    if _has_infill_alone(names):
        params = replace(params, temperature=0.0)
        names = [*names, "temperature"]
    return replace(params, samplers=tuple(name for name in names if name in SAMPLERS))


def of_others(params: SamplingParams, names: list[str]) -> SamplingParams | None:
    """What candidates after the first are drawn with; None where that is nothing else."""
    if not _has_infill_alone(names):
        return None
    drawn = [name for name in names if name != "min_p"]
    drawn[drawn.index("infill")] = "min_p"
    return only_listed(replace(params, min_p=max(params.min_p, _NEAR_CERTAIN)), drawn)


def _has_infill_alone(names: list[str]) -> bool:
    return "infill" in names and "temperature" not in names


def _samplers(value: Any) -> Any:
    if isinstance(value, str):
        value = [_LETTERS.get(letter, "") for letter in value]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("must be an array of names of samplers")
    names = [_ALIASES.get(name, name) for name in value]
    if not set(names) <= set(_LETTERS.values()):
        raise ValueError("must name samplers of " + ", ".join(_LETTERS.values()))
    if "adaptive_p" in names:
        raise ValueError("with adaptive_p is not supported yet")
    if len(names) > len(set(names)):
        raise ValueError("must name no sampler twice")
    return names


def _logit_bias(value: Any) -> Any:
    """`[[id, bias], ...]` or `{"id": bias, ...}`, where `false` bans."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise ValueError("must be an array of pairs [token id, bias]")
    if len(pairs) > MAX_BIASES:
        raise ValueError(f"must be at most {MAX_BIASES} pairs, not {len(pairs)}")
    return [(_token_id(token), _bias(bias)) for token, bias in pairs]


def _token_id(token: Any) -> int:
    if isinstance(token, str) and token.isascii() and token.isdigit() and len(token) < 10:
        return int(token)
    if isinstance(token, str):
        raise ValueError("by text is not supported yet: token ids only")
    token = integral(token)
    if type(token) is not int or abs(token) > MAX_INT:
        raise ValueError("must have integers as token ids")
    return token


def _bias(bias: Any) -> float:
    if bias is False:
        return -math.inf
    if type(bias) not in (int, float) or not -1e30 <= bias <= 1e30:
        raise ValueError("must have numbers, or false, as biases")
    return float(bias)


_BUILT = {letter: name for letter, name in _LETTERS.items() if name != "adaptive_p"}
_NAMES = [*_BUILT.values(), *_ALIASES]
_BIAS: dict[str, Any] = {
    "anyOf": [{"const": False}, {"type": "number", "minimum": -1e30, "maximum": 1e30}]
}
_DIGITS = "^[0-9]{1,9}$"

SamplerNames = Annotated[
    list[str],
    BeforeValidator(_samplers),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"enum": _NAMES}, "uniqueItems": True},
                {
                    "type": "string",
                    "pattern": f"^[{''.join(_BUILT)}]*$",
                    "not": {"pattern": r"(.).*\1"},
                },
            ]
        }
    ),
]
LogitBias = Annotated[
    list[tuple[int, float]],
    BeforeValidator(_logit_bias),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "array",
                    "maxItems": MAX_BIASES,
                    "items": {
                        "type": "array",
                        "prefixItems": [
                            {
                                "anyOf": [
                                    {"type": "integer", "minimum": 0, "maximum": MAX_INT},
                                    {"type": "string", "pattern": _DIGITS},
                                ]
                            },
                            _BIAS,
                        ],
                        "items": False,
                        "minItems": 2,
                    },
                },
                {
                    "type": "object",
                    "maxProperties": MAX_BIASES,
                    "propertyNames": {"pattern": _DIGITS},
                    "additionalProperties": _BIAS,
                },
            ]
        }
    ),
]
