"""`POST /v1/explain`: why a completion is what it is; `GET /explain` is a page to watch it on.

The body is that of `/infill`, and checked as it is. Of it `stream`, `n`, `seq` and the temperature
say nothing here; `n_predict` is 8 where there is none, 0 is 1, and no text has more than 64 tokens.
Errors are in the words of `/v1/`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from suture.server.explanation import (
    CoverNode,
    Covers,
    CoverShare,
    Explanation,
    Method,
    Token,
)
from suture.server.openapi.operation import Operation
from suture.server.request import EXPLAINED_TOKENS, CompletionRequest
from suture.server.routes.asker import asked_by
from suture.server.routes.body import read_json, validate
from suture.server.routes.completer import ModelInfo, Pool, ServedModel, model_asked_for
from suture.server.routes.delivery import (
    Dialect,
    error_response,
    public_error,
    while_connected,
)
from suture.server.routes.limits import places_of
from suture.server.routes.llama_cpp import InfillBody
from suture.server.routes.shapes.suture import ExplainAnswer
from suture.server.settings import Settings
from suture.server.sse import encode_json

Json = dict[str, Any]


def explained_request(body: Json, settings: Settings, model: ModelInfo) -> CompletionRequest:
    """The request that `body` asks to have explained; raises `InvalidRequest`."""
    if body.get("n_predict") is None and body.get("max_tokens") is None:
        body = body | {"n_predict": EXPLAINED_TOKENS}
    # Its texts are compared by their covers, not by the scores of their tokens.
    return replace(validate(InfillBody, body).to_request(settings, model), n_probs=None)


class Explain:
    """ASGI endpoint of `POST /v1/explain`; a client that leaves ends its explanation."""

    operation = Operation(
        "Suture",
        "Why a completion is what it is",
        (InfillBody,),
        ExplainAnswer,
        statuses=(500, 501, 502, 503),
        example={"input_prefix": "console.log(userNa", "input_suffix": ""},
    )

    def __init__(self, dialect: Dialect, pool: Pool, settings: Settings) -> None:
        self._dialect = dialect
        self._pool = pool
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_json(Request(scope, receive))
            model = model_asked_for(self._pool, body)
            request = asked_by(explained_request(body, self._settings, model.info), scope)
            with places_of(scope).take(user=request.user):
                await while_connected(receive, self._answer(request, model, scope, receive, send))
        except ClientDisconnect:
            return
        except Exception as raised:
            await error_response(self._dialect, public_error(raised))(scope, receive, send)

    async def _answer(
        self,
        request: CompletionRequest,
        model: ServedModel,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        with model.lease() as completer:
            explanation = await completer.explain(request)
        body = encode_json(explanation_json(explanation, model.info.name))
        headers = {"Cache-Control": "no-store"}
        await Response(body, 200, headers, "application/json")(scope, receive, send)


def explanation_json(explanation: Explanation, model: str) -> Json:
    """The body of an answer."""
    boundary, prompt, asked = explanation.boundary, explanation.prompt, explanation.asked
    covers = explanation.covers
    return {
        "model": model,
        "asked": asked.name,
        "finish": asked.result.finish,
        "reason": asked.result.reason,
        "cursor": {**_bytes("before", boundary.before), **_bytes("after", boundary.after)},
        "boundary": {
            "typed": [*map(_token, boundary.typed)],
            "kept": [*map(_token, boundary.kept)],
            **_bytes("pending", boundary.pending),
            "dropped_tokens": boundary.dropped_tokens,
        },
        "covers": None if covers is None else _covers(covers, len(boundary.pending)),
        "methods": [*map(_method, explanation.methods)],
        "diagnoses": [
            {"code": one.code, "healed": one.is_healed, "found": one.found, "cure": one.cure}
            for one in explanation.diagnoses
        ],
        "prompt": {
            "layout": prompt.layout,
            "boundary": prompt.boundary,
            "truncated": prompt.truncated,
            "excluded": prompt.n_excluded,
            "tokens": prompt.n_tokens,
            "reused": prompt.n_reused,
            "evaluated": prompt.n_tokens - prompt.n_reused,
            "segments": [
                {"role": one.role, "tokens": one.n_tokens, "reused": one.n_reused}
                for one in prompt.segments
            ],
        },
    }


def _bytes(name: str, value: bytes) -> Json:
    return {name: value.decode("utf-8", "replace"), f"{name}_bytes": list(value)}


def _token(token: Token) -> Json:
    return {"id": token.token_id, "name": token.name, "bytes": list(token.piece)}


def _covers(covers: Covers, n_pending: int) -> Json:
    return {
        "evidence": {
            "probability": math.exp(covers.log_evidence),
            "logprob": covers.log_evidence,
            "bits_per_byte": -covers.log_evidence / math.log(2) / max(n_pending, 1),
        },
        "tv_bound": covers.tv_bound,
        "canonical_only": covers.is_filtered,
        "nodes": [*map(_node, covers.nodes)],
        "best": [*map(_cover, covers.best)],
        "others": covers.others,
    }


def _node(node: CoverNode) -> Json:
    return {
        "token": _token(node.token),
        "parent": node.parent,
        "end": node.end,
        "probability": node.probability,
    }


def _cover(cover: CoverShare) -> Json:
    return {
        "tokens": [*map(_token, cover.tokens)],
        "exact_end": cover.is_exact_end,
        **_bytes("overhang", cover.overhang),
        "probability": cover.probability,
        "next": [
            {"token": _token(one.token), "probability": one.probability} for one in cover.following
        ],
    }


def _method(method: Method) -> Json:
    return {
        "name": method.name,
        "asked": method.is_asked,
        "level": method.level,
        **_bytes("pending", method.pending),
        "text": method.text,
        "finish": method.result.finish,
        "reason": method.result.reason,
    }
