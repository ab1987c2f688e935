"""OpenAI's dialect: `GET /v1/models` and `/v1/models/{id}`, which Mistral's client reads as well.

`GET /models` is llama-server's, of its router, and the same; `status` is as that has it. Mistral's
client takes no entry without a `type` and `capabilities`.
"""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from suture.server.openapi.operation import Operation, Parameter, described
from suture.server.routes.completer import (
    LOADED,
    ModelState,
    NoSuchModel,
    Pool,
    ServedModel,
    shown_state,
)
from suture.server.routes.shapes.openai import (
    ListedModel,
    ModelCapabilities,
    ModelList,
    ModelStatus,
)
from suture.server.sse import encode_json

_ID = Parameter(
    "id", "A served model's name.", {"type": "string", "minLength": 1}, "qwen2.5-coder-1.5b"
)


class Models:
    """What may be served, whether it can fill in, and its state."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._created = int(time.time())

    @described(Operation("OpenAI", "The models that may be served", answer=ModelList))
    async def get(self, request: Request) -> Response:
        models: ModelList = {
            "object": "list",
            "data": [self._entry(model) for model in self._pool.models],
        }
        return Response(encode_json(models), media_type="application/json")

    @described(
        Operation(
            "OpenAI",
            "One of the models that may be served",
            answer=ListedModel,
            statuses=(404,),
            in_path=(_ID,),
        )
    )
    async def get_one(self, request: Request) -> Response:
        model = self._pool.named(request.path_params["id"])
        if model is None:
            raise NoSuchModel("no model of that name is served: /v1/models lists those that are")
        return Response(encode_json(self._entry(model)), media_type="application/json")

    def _entry(self, served: ServedModel) -> ListedModel:
        model = served.info
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "suture",
            "type": "base",
            "capabilities": _capabilities(model.fim),
            "max_context_length": model.n_ctx,
            "meta": {
                "n_ctx": model.n_ctx,
                "n_vocab": model.n_vocab,
                "n_params": model.n_params,
                "size": model.size_bytes,
            },
            "fim": {"supported": model.fim, "family": model.family},
            "status": _status(shown_state(served)),
        }


def _capabilities(fills_holes: bool) -> ModelCapabilities:
    return {
        "completion_chat": False,
        "completion_fim": fills_holes,
        "function_calling": False,
        "vision": False,
    }


def _status(state: ModelState) -> ModelStatus:
    if state in LOADED:
        return {"value": "loaded"}
    return {"value": "unloaded", "failed": True} if state == "failed" else {"value": state}
