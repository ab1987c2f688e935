"""SGLang, by its own `/generate`.

Its constraint is a regular expression or a grammar, one of them, by xgrammar: as in vLLM special
tokens are taken for the text they show, and banned where that could be.

An event tells all tokens so far, or only the new ones where the server was started so. How many
there are in all is told in either case, and tells which it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suture.healing import Vocabulary
from suture.server.engine.remote.affinity import routing_headers
from suture.server.engine.remote.constraints import (
    grammar_for,
    known_ends,
    regex_of,
    taken_for_text,
)
from suture.server.engine.remote.drawing import ABLE, biases_of, check_asked, check_biases, drawing
from suture.server.engine.remote.errors import BackendFailed
from suture.server.engine.remote.events import (
    count_in,
    event_of,
    object_in,
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
from suture.server.request import CompletionRequest

_MAX_BIASES = 1000
_FINISHES: Mapping[object, Any] = {"length": "length", "abort": "abort"}


class SGLang:
    """An SGLang server."""

    kind: BackendKind = "sglang"
    path = "/generate"
    tells_ids = True
    best_level: Level = "recursive"

    def check(self, request: CompletionRequest) -> None:
        check_asked(request, ABLE, "SGLang")
        check_biases(request, _MAX_BIASES, "SGLang")

    def level(self, asked: Asked) -> Level:
        if not asked.pending or asked.level == "none":
            return "none"
        return asked.level if _constraint(asked) else "none"

    def body(self, asked: Asked, model: str, vocabulary: Vocabulary) -> Json:
        body: Json = {
            "input_ids": list(asked.prompt_ids),
            "sampling_params": _sampling_params(asked, vocabulary),
            "stream": True,
        }
        if asked.n_probs is not None:
            body["return_logprob"] = True
            body["top_logprobs_num"] = asked.n_probs
        if asked.affinity.cache_salt is not None:
            # By its name of today, and by the one that it had before.
            body["cache_salt"] = body["extra_key"] = asked.affinity.cache_salt
        return body

    def headers(self, affinity: Affinity) -> Mapping[str, str]:
        return routing_headers(affinity.key)

    def reader(self, vocabulary: Vocabulary) -> Reader:
        return _Answer().hear


def _sampling_params(asked: Asked, vocabulary: Vocabulary) -> Json:
    drawn = drawing(asked.sampling)
    params: Json = {
        "max_new_tokens": asked.max_tokens,
        "temperature": drawn.temperature,
        "top_k": drawn.top_k or -1,
        "top_p": drawn.top_p,
        "min_p": drawn.min_p,
        "repetition_penalty": drawn.repeat_penalty,
        "presence_penalty": drawn.presence_penalty,
        "frequency_penalty": drawn.frequency_penalty,
        "stop_token_ids": sorted(asked.end_ids),
        "skip_special_tokens": False,
        **_constraint(asked),
    }
    if asked.sampling.seed is not None:
        params["sampling_seed"] = asked.sampling.seed % 2**63
    if biases := _biases(asked, vocabulary):
        params["logit_bias"] = biases
    if asked.ignore_eos:
        params["ignore_eos"] = True
    if asked.min_tokens:
        # Those that say the pending bytes again count too: at most as many as the bytes.
        healed = len(asked.pending) if asked.level != "none" else 0
        params["min_new_tokens"] = min(asked.min_tokens + healed, asked.max_tokens)
    return params


def _constraint(asked: Asked) -> Json:
    pending = asked.pending if asked.level != "none" else b""
    if asked.grammar is not None:
        both = grammar_for(pending, asked.grammar)
        return {"ebnf": both} if both else {}
    regex = regex_of(pending) if pending else None
    return {"regex": regex} if regex else {}


def _biases(asked: Asked, vocabulary: Vocabulary) -> dict[str, float]:
    biases = biases_of(asked.sampling)
    banned = taken_for_text(asked, known_ends(vocabulary), vocabulary)
    return biases | {str(token_id): -100.0 for token_id in banned}


class _Answer:
    """One answer, of which so much has been heard."""

    def __init__(self) -> None:
        self._n_ids = 0
        self._n_chars = 0

    def hear(self, event: object) -> Heard | None:
        told = event_of(event)
        meta = object_in(told, "meta_info")
        if "output_ids" not in told:
            raise BackendFailed("the server tells no token ids: it is no SGLang of today")
        ids = token_ids(told["output_ids"])
        n_all = count_in(meta, "completion_tokens")
        if n_all is None:
            raise BackendFailed("the server does not tell how many tokens there are")
        is_whole = len(ids) >= n_all
        start = self._n_ids if is_whole else 0
        text = text_in(told, "text")[self._n_chars if is_whole else 0 :]
        heard = Heard(
            ids[start:], text, _scores(meta, start, len(ids)), _finish(meta), _usage(meta, n_all)
        )
        self._n_ids += len(heard.token_ids or ())
        self._n_chars += len(text)
        return heard if heard.token_ids or heard.finish else None


def _finish(meta: Mapping[str, Any]) -> Any:
    finish = object_in(meta, "finish_reason")
    if not finish:
        return None
    if finish.get("type") == "abort" and (message := finish.get("message")):
        # Told as an event of its own elsewhere.
        event_of({"error": {"message": message, "code": finish.get("status_code")}})
    return _FINISHES.get(finish.get("type"), "stop")


def _usage(meta: Mapping[str, Any], n_tokens: int) -> Usage | None:
    if not object_in(meta, "finish_reason"):
        return None
    prompt = count_in(meta, "prompt_tokens") or 0
    return Usage(prompt, n_tokens, count_in(meta, "cached_tokens"))


def _scores(meta: Mapping[str, Any], start: int, end: int) -> tuple[Scored, ...]:
    """The scores of the tokens from `start` to `end` of those that an event tells."""
    of_tokens = _rows(meta.get("output_token_logprobs"))[start:end]
    tops = _rows(meta.get("output_top_logprobs"))[start:end] or [None] * len(of_tokens)
    if len(of_tokens) != len(tops):
        raise BackendFailed("the server sent log probabilities of other tokens")
    return tuple(
        scored(*_pair(one), [_pair(other) for other in _rows(top)])
        for one, top in zip(of_tokens, tops, strict=True)
    )


def _rows(value: object) -> Sequence[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BackendFailed(f"the server sent no log probabilities: {shown(value)}")
    return value


def _pair(row: object) -> tuple[object, object]:
    """The token and its log probability, out of a row that begins with these the other way."""
    if not isinstance(row, list) or len(row) < 2:
        raise BackendFailed(f"the server sent no log probability: {shown(row)}")
    return row[1], row[0]
