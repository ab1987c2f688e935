"""vLLM from 0.12 on, by `/v1/completions`.

Its constraint is `structured_outputs`: a regular expression, or a grammar where the client asks for
one. Older names of it are ignored without a word, so answers are checked. A server that was started
with Suture's logits processor heals by the bytes themselves: `VllmStrict`.

Every sampler is sent, off or not: what is not, vLLM takes from the model's own defaults.

Biases ban the special tokens that xgrammar would take for the pending bytes, as it takes all for
the text they show. More than 1024 biases end the engine on a GPU, so at most `MAX_BIASES` are sent,
the client's first and sentinels before others; and none where none is needed, because with
speculative decoding vLLM takes none at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suture.healing import Vocabulary
from suture.server.engine.remote.affinity import routing_headers
from suture.server.engine.remote.constraints import (
    grammar_for,
    known_ends,
    regex_of,
    taken_for_text,
)
from suture.server.engine.remote.drawing import (
    ABLE,
    MAX_PROBS,
    biases_of,
    check_asked,
    check_biases,
    drawing,
)
from suture.server.engine.remote.errors import BackendFailed
from suture.server.engine.remote.events import (
    event_of,
    objects,
    openai_usage,
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
)
from suture.server.request import CompletionRequest

# Of the 1024 that a GPU takes.
MAX_BIASES = 1000
_FINISHES: Mapping[object, Any] = {"length": "length", "abort": "abort", "error": "abort"}
_TOKEN = "token_id:"


class Vllm:
    """A stock vLLM."""

    kind: BackendKind = "vllm"
    path = "/v1/completions"
    tells_ids = True
    best_level: Level = "recursive"

    def check(self, request: CompletionRequest) -> None:
        check_asked(request, ABLE, "vLLM")
        check_biases(request, MAX_BIASES, "vLLM")

    def level(self, asked: Asked) -> Level:
        if not asked.pending or asked.level == "none":
            return "none"
        return asked.level if self._constraint(asked) else "none"

    def body(self, asked: Asked, model: str, vocabulary: Vocabulary) -> Json:
        drawn = drawing(asked.sampling)
        body: Json = {
            "model": model,
            "prompt": list(asked.prompt_ids),
            # It makes one token at least.
            "max_tokens": max(asked.max_tokens, 1),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "temperature": drawn.temperature,
            "top_k": drawn.top_k,
            "top_p": drawn.top_p,
            "min_p": drawn.min_p,
            "repetition_penalty": drawn.repeat_penalty,
            "presence_penalty": drawn.presence_penalty,
            "frequency_penalty": drawn.frequency_penalty,
            "stop_token_ids": sorted(asked.end_ids),
            **self._constraint(asked),
        }
        if asked.sampling.seed is not None:
            body["seed"] = _int64(asked.sampling.seed)
        if biases := self._biases(asked, vocabulary):
            body["logit_bias"] = biases
        if asked.ignore_eos:
            body["ignore_eos"] = True
        if asked.min_tokens:
            body["min_tokens"] = min(_least(asked), body["max_tokens"])
        if asked.n_probs is not None:
            body["logprobs"] = min(asked.n_probs, MAX_PROBS)
            body["return_tokens_as_token_ids"] = True
        if asked.affinity.cache_salt is not None:
            body["cache_salt"] = asked.affinity.cache_salt
        return body

    def headers(self, affinity: Affinity) -> Mapping[str, str]:
        return routing_headers(affinity.key)

    def reader(self, vocabulary: Vocabulary) -> Reader:
        return _heard

    def _constraint(self, asked: Asked) -> Json:
        """The one constraint, as a field of the body; none where nothing is asked for."""
        pending = asked.pending if asked.level != "none" else b""
        if asked.grammar is not None:
            both = grammar_for(pending, asked.grammar)
            return {"structured_outputs": {"grammar": both}} if both else {}
        regex = regex_of(pending) if pending else None
        return {"structured_outputs": {"regex": regex}} if regex else {}

    def _biases(self, asked: Asked, vocabulary: Vocabulary) -> dict[str, float]:
        """The client's biases, and bans of the special tokens that may be taken for text."""
        biases = biases_of(asked.sampling)
        for token_id in taken_for_text(asked, known_ends(vocabulary), vocabulary):
            if len(biases) >= MAX_BIASES:
                break
            biases[str(token_id)] = -100.0
        return biases


class VllmStrict(Vllm):
    """A vLLM that was started with Suture's logits processor.

    That takes any bytes, masks by tokens and knows special ones from their text. A grammar would be
    one for the pending bytes too: beside one, healing is the grammar's.
    """

    def _constraint(self, asked: Asked) -> Json:
        if asked.grammar is not None:
            return super()._constraint(asked)
        if not asked.pending or asked.level == "none":
            return {}
        return {"vllm_xargs": {"heal_hex": asked.pending.hex()}}

    def _biases(self, asked: Asked, vocabulary: Vocabulary) -> dict[str, float]:
        if asked.grammar is not None:
            return super()._biases(asked, vocabulary)
        return biases_of(asked.sampling)


def _least(asked: Asked) -> int:
    """So many tokens that enough of them are new: those that say the pending bytes again count too.

    They are at most as many as the bytes.
    """
    healed = len(asked.pending) if asked.level != "none" else 0
    return asked.min_tokens + healed


def _int64(seed: int) -> int:
    return seed - 2**64 if seed >= 2**63 else seed


def _heard(event: object) -> Heard | None:
    chunk = event_of(event)
    usage = openai_usage(chunk)
    choices = objects(chunk.get("choices"))
    if not choices:
        return None if usage is None else Heard((), usage=usage)
    choice = choices[0]
    finish = choice.get("finish_reason")
    if "token_ids" not in choice and not finish:
        raise BackendFailed("the server tells no token ids: it is no vLLM from 0.12 on")
    return Heard(
        token_ids(choice.get("token_ids") or []),
        text_in(choice, "text"),
        _scores(choice.get("logprobs")),
        None if finish is None else _FINISHES.get(finish, "stop"),
        usage,
    )


def _scores(logprobs: object) -> tuple[Scored, ...]:
    if logprobs is None:
        return ()
    if not isinstance(logprobs, dict):
        raise BackendFailed(f"the server sent no log probabilities: {shown(logprobs)}")
    names, values = logprobs.get("tokens") or [], logprobs.get("token_logprobs") or []
    tops = logprobs.get("top_logprobs") or [None] * len(names)
    if not len(names) == len(values) == len(tops):
        raise BackendFailed("the server sent log probabilities of other tokens")
    return tuple(
        scored(_id_of(name), value, [(_id_of(one), p) for one, p in (top or {}).items()])
        for name, value, top in zip(names, values, tops, strict=True)
    )


def _id_of(name: object) -> int:
    if not isinstance(name, str) or not name.startswith(_TOKEN):
        raise BackendFailed(f"the server names a token {shown(name)}, not by its id")
    try:
        return int(name[len(_TOKEN) :])
    except ValueError:
        raise BackendFailed(f"the server names a token {shown(name)}, not by its id") from None
