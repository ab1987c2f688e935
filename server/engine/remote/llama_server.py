"""llama.cpp's own server, by `/completion`.

It has the samplers that we have, by the same names: all are sent, as its defaults are its own. Its
constraint is a grammar, which compares special tokens by the text they show: `logit_bias` bans
them.

Of a character that takes several tokens it sends the last one only, with the text of all. The
tokens before it are then spelled anew from that text, byte for byte: their ids may be others than
the model's, and they have no scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from suture.healing import Vocabulary
from suture.server.engine.remote.affinity import routing_headers
from suture.server.engine.remote.constraints import composed, gbnf_of, taken_for_text
from suture.server.engine.remote.drawing import check_asked
from suture.server.engine.remote.errors import BackendFailed, TokenizerDiffers
from suture.server.engine.remote.events import (
    count_in,
    event_of,
    object_in,
    objects,
    scored,
    shown,
    text_in,
    token_ids,
)
from suture.server.engine.remote.protocol import (
    Affinity,
    Asked,
    BackendKind,
    Heard,
    Json,
    Level,
    Reader,
    Scored,
    Usage,
)
from suture.server.request import CompletionRequest, SamplingParams

_ABLE = frozenset(
    {
        "top_n_sigma",
        "top_k",
        "typical_p",
        "top_p",
        "min_p",
        "xtc_probability",
        "dynatemp_range",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "dry_multiplier",
        "logit_bias",
        "grammar",
        "n_probs",
        "many_probs",
        "ignore_eos",
        "stop_token_ids",
        "return_tokens",
        "detokenize",
        "skip_special_tokens",
    }
)
_FINISHES: Mapping[object, Any] = {"eos": "stop", "word": "stop", "limit": "length"}
# Of the last event: all the settings and the whole prompt stand in it otherwise.
_FIELDS = ("content", "tokens", "stop", "stop_type", "tokens_evaluated", "tokens_predicted")


class LlamaServer:
    """A llama-server."""

    kind: BackendKind = "llama-server"
    path = "/completion"
    tells_ids = True
    best_level: Level = "recursive"

    def check(self, request: CompletionRequest) -> None:
        check_asked(request, _ABLE, "llama-server")

    def level(self, asked: Asked) -> Level:
        if not asked.pending or asked.level == "none":
            return "none"
        return asked.level if self._grammar(asked) is not None else "none"

    def body(self, asked: Asked, model: str, vocabulary: Vocabulary) -> Json:
        body: Json = {
            "model": model,
            "prompt": list(asked.prompt_ids),
            "n_predict": asked.max_tokens,
            "stream": True,
            "return_tokens": True,
            "cache_prompt": True,
            "response_fields": [*_FIELDS, "timings"],
            "logit_bias": _biases(asked, vocabulary),
            "ignore_eos": asked.ignore_eos,
            **_samplers(asked.sampling, len(asked.prompt_ids) + asked.max_tokens),
        }
        if (grammar := self._grammar(asked)) is not None:
            body["grammar"] = grammar
        if asked.n_probs is not None:
            body["n_probs"] = max(asked.n_probs, 1)
        return body

    def headers(self, affinity: Affinity) -> Mapping[str, str]:
        return routing_headers(affinity.key)

    def reader(self, vocabulary: Vocabulary) -> Reader:
        return partial(_heard, vocabulary)

    def _grammar(self, asked: Asked) -> str | None:
        if asked.grammar is None:
            return gbnf_of(asked.pending) if asked.pending and asked.level != "none" else None
        if not asked.pending or asked.level == "none":
            return asked.grammar
        return composed(asked.pending, asked.grammar)


def _samplers(params: SamplingParams, n_tokens: int) -> Json:
    """The samplers; the whole text has `n_tokens`, and -1 for it is not taken by all versions."""
    dry_last_n = params.dry_penalty_last_n
    return {
        "samplers": list(params.samplers),
        "temperature": params.temperature,
        "dynatemp_range": params.dynatemp_range,
        "dynatemp_exponent": params.dynatemp_exponent,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "typical_p": params.typical_p,
        "top_n_sigma": params.top_n_sigma,
        "xtc_probability": params.xtc_probability,
        "xtc_threshold": params.xtc_threshold,
        "repeat_penalty": params.repeat_penalty,
        "repeat_last_n": params.repeat_last_n if params.repeat_last_n >= 0 else n_tokens,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "dry_multiplier": params.dry_multiplier,
        "dry_base": params.dry_base,
        "dry_allowed_length": params.dry_allowed_length,
        "dry_penalty_last_n": n_tokens if dry_last_n < 0 else dry_last_n,
        "dry_sequence_breakers": list(params.dry_sequence_breakers),
        "min_keep": params.min_keep,
        "mirostat": 0,
        # Of 32 bits, where all ones and -1 draw a fresh one.
        "seed": -1 if params.seed is None else params.seed % (2**32 - 1),
    }


def _biases(asked: Asked, vocabulary: Vocabulary) -> list[list[Any]]:
    """The client's biases, then the banned tokens; `false` is minus infinity.

    An end that the server does not know may be taken for pending text.
    """
    biases: list[list[Any]] = [
        [token_id, False if bias == -math.inf else bias]
        for token_id, bias in asked.sampling.logit_bias
    ]
    mistaken = taken_for_text(asked, vocabulary.eog_ids, vocabulary)
    banned = dict.fromkeys([*asked.banned_ids, *mistaken])
    return biases + [[token_id, False] for token_id in banned]


def _heard(vocabulary: Vocabulary, event: object) -> Heard | None:
    told = event_of(event)
    text, ids = text_in(told, "content"), token_ids(told.get("tokens") or [])
    scores = _scores(told.get("completion_probabilities"))
    all_ids = _with_unsent(vocabulary, ids, text)
    finish = None
    if told.get("stop"):
        finish = _FINISHES.get(told.get("stop_type"), "abort")
    elif not ids:
        return None
    scores = scores if len(scores) == len(all_ids) else ()
    return Heard(all_ids, text, scores, finish, _usage(told) if finish else None)


def _with_unsent(vocabulary: Vocabulary, ids: tuple[int, ...], text: str) -> tuple[int, ...]:
    """The tokens of a part of an answer, those before them included that were not sent."""
    piece = b"".join(_piece(vocabulary, token_id) for token_id in ids)
    said = text.encode()
    # A special token's text may be shown, and bytes that are no text are not.
    if not piece or piece == said or "\ufffd" in text:
        return ids
    if not said.endswith(piece):
        raise TokenizerDiffers(
            f"the server's tokenizer is another: it says {shown(text)!r} where tokens say {piece!r}"
        )
    return (*_spelled(vocabulary, said[: -len(piece)]), *ids)


def _piece(vocabulary: Vocabulary, token_id: int) -> bytes:
    try:
        return vocabulary.bytes_of(token_id)
    except IndexError:
        raise TokenizerDiffers(
            f"the server's tokenizer is another: it has a token {token_id}"
        ) from None


def _spelled(vocabulary: Vocabulary, data: bytes) -> tuple[int, ...]:
    """Tokens that say `data`, the longest first."""
    ids: list[int] = []
    while data:
        n_bytes = vocabulary.longest_prefix(data)
        if not n_bytes:
            raise BackendFailed(f"no token spells {data!r}, which the server says")
        ids.append(vocabulary.ids_of(data[:n_bytes])[0])
        data = data[n_bytes:]
    return tuple(ids)


def _scores(probabilities: object) -> tuple[Scored, ...]:
    return tuple(
        scored(
            one.get("id"),
            one.get("logprob"),
            [(other.get("id"), other.get("logprob")) for other in objects(one.get("top_logprobs"))],
        )
        for one in objects(probabilities)
    )


def _usage(told: Mapping[str, Any]) -> Usage:
    timings = object_in(told, "timings")
    prompt = count_in(told, "tokens_evaluated") or 0
    evaluated = count_in(timings, "prompt_n")
    cached = None if evaluated is None else max(prompt - evaluated, 0)
    return Usage(prompt, count_in(told, "tokens_predicted") or 0, cached)
