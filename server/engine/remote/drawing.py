"""How tokens are drawn, as far as other engines can be told.

  off       a sampler that changes nothing: not among those that apply, or at its neutral value
  greedy    always the best token: then what only leaves worse ones out is off too

A server has samplers of its own and an order of its own: temperature first in vLLM, last in
llama.cpp. Its penalties look back as far as it does, whatever `repeat_last_n` says: in vLLM and
SGLang over the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest, SamplingParams

_GREEDY_BELOW = 1e-5
MAX_BIAS = 100.0
# What vLLM and SGLang can do, of what a request may ask for.
ABLE = frozenset(
    {
        "top_k",
        "top_p",
        "min_p",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "grammar",
        "n_probs",
        "min_tokens",
        "ignore_eos",
        "stop_token_ids",
        "return_tokens",
        "detokenize",
        "skip_special_tokens",
    }
)
# What llama.cpp's and Ollama's dialects draw with unless told otherwise. Nobody asks for it, so
# who speaks them is served as well as a server can.
_USUAL: Mapping[str, float] = {"top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1}
# Most of what a client may be told of each token's place.
MAX_PROBS = 20


@dataclass(frozen=True, slots=True)
class Drawing:
    """The samplers that most engines have, neutral where they are off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float


def drawing(params: SamplingParams) -> Drawing:
    """What of `params` applies; `temperature` 0 is greedy."""
    on = _on(params)
    return Drawing(
        temperature=params.temperature if "temperature" in params.samplers else 1.0,
        top_k=params.top_k if "top_k" in on else 0,
        top_p=params.top_p if "top_p" in on else 1.0,
        min_p=params.min_p if "min_p" in on else 0.0,
        repeat_penalty=params.repeat_penalty if "repeat_penalty" in on else 1.0,
        presence_penalty=params.presence_penalty if "presence_penalty" in on else 0.0,
        frequency_penalty=params.frequency_penalty if "frequency_penalty" in on else 0.0,
    )


def check_asked(request: CompletionRequest, able: frozenset[str], server: str) -> None:
    """Raise `InvalidRequest`, naming the field, for what is asked for and not among `able`."""
    drawn = [request.sampling]
    if request.sampling_of_others is not None:
        drawn.append(request.sampling_of_others)
    asked = {name for params in drawn for name in _on(params) if not _is_usual(params, name)}
    asked |= _asked(request)
    for name in sorted(asked - able):
        field = request.grammar_field if name == "grammar" else name
        raise InvalidRequest(f'"{field}" is not supported with {server}', field)
    if request.n_probs is not None and request.n_probs > MAX_PROBS and "many_probs" not in able:
        message = f"{server} tells of at most {MAX_PROBS} tokens in each place"
        raise InvalidRequest(message, "n_probs")
    if request.grammar is not None and request.grammar_scope == "prefill":
        message = '"grammar_scope" must be "output": another\'s engine begins with the output'
        raise InvalidRequest(message, "grammar_scope")


def check_biases(request: CompletionRequest, most: int, server: str) -> None:
    """Raise `InvalidRequest` for biases that a server would cut, or more than it takes."""
    biases = request.sampling.logit_bias
    if len(biases) > most:
        raise InvalidRequest(f"{server} takes at most {most} biases", "logit_bias")
    if any(abs(bias) > MAX_BIAS for _, bias in biases if bias != -float("inf")):
        message = f"{server} takes biases from -{MAX_BIAS:g} to {MAX_BIAS:g}"
        raise InvalidRequest(message, "logit_bias")


def biases_of(params: SamplingParams) -> dict[str, float]:
    """The biases as the OpenAI API has them, where -100 bans a token."""
    return {str(token_id): max(bias, -MAX_BIAS) for token_id, bias in params.logit_bias}


def _is_usual(params: SamplingParams, name: str) -> bool:
    """Whether a value is one that a dialect has for clients who say nothing."""
    return bool(getattr(params, name) == _USUAL.get(name))


def _on(params: SamplingParams) -> Mapping[str, bool]:
    """The samplers that change something, by their fields."""
    applies = set(params.samplers)
    others = {
        "typical_p": "typ_p" in applies and params.typical_p < 1.0,
        "xtc_probability": "xtc" in applies
        and params.xtc_probability > 0.0
        and params.xtc_threshold <= 0.5,
        "dynatemp_range": "temperature" in applies and params.dynatemp_range > 0.0,
    }
    is_cold = "temperature" in applies and params.temperature < _GREEDY_BELOW
    is_greedy = is_cold and not any(others.values())
    # They leave the best token in, and nothing else is drawn.
    cuts = {
        "top_n_sigma": "top_n_sigma" in applies and params.top_n_sigma > 0.0,
        "top_k": "top_k" in applies and params.top_k > 0,
        "top_p": "top_p" in applies and params.top_p < 1.0,
        "min_p": "min_p" in applies and params.min_p > 0.0,
    }
    looks_back = "penalties" in applies and params.repeat_last_n != 0
    penalties = {
        "repeat_penalty": looks_back and params.repeat_penalty != 1.0,
        "presence_penalty": looks_back and params.presence_penalty != 0.0,
        "frequency_penalty": looks_back and params.frequency_penalty != 0.0,
        "dry_multiplier": "dry" in applies and params.dry_multiplier != 0.0,
    }
    on = {**others, **({} if is_greedy else cuts), **penalties}
    on["logit_bias"] = bool(params.logit_bias)
    return {field: True for field, is_on in on.items() if is_on}


def _asked(request: CompletionRequest) -> set[str]:
    """What else is asked for that not all engines can do, by its field."""
    asked = {
        "grammar": request.grammar is not None,
        "n_probs": request.n_probs is not None,
        "min_tokens": request.min_tokens > 0,
        "ignore_eos": request.ignore_eos,
        "stop_token_ids": bool(request.stop_token_ids),
        "return_tokens": request.return_tokens,
        "detokenize": not request.detokenize,
        "skip_special_tokens": not request.skip_special_tokens,
    }
    return {field for field, is_asked in asked.items() if is_asked}
