"""llama.cpp's dialect: `POST /models/load` and `POST /models/unload`, as its router has them.

Both return at once: `GET /models` says when it is done. What is so already is fine, where
llama-server has a 400 for it: who asks twice wants no error.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from suture.server.errors import EngineError
from suture.server.openapi.operation import Operation, described
from suture.server.routes.body import read_json, validate
from suture.server.routes.completer import NoSuchModel, Pool, ServedModel
from suture.server.routes.fields import RequestBody, Text
from suture.server.routes.shapes.llama_cpp import LlamaCppSuccess
from suture.server.sse import encode_json


class ModelBody(RequestBody):
    """The body of both."""

    model: Text


class ModelLoading:
    """Loads and unloads the models of a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @described(
        Operation(
            "llama.cpp",
            "Have a model loaded",
            (ModelBody,),
            LlamaCppSuccess,
            statuses=(404, 500, 503),
            example={"model": "qwen2.5-coder-1.5b"},
        )
    )
    async def load(self, request: Request) -> Response:
        model = await self._model(request)
        model.load()
        if model.state() == "failed":
            raise EngineError(f"the model {model.info.name} could not be loaded")
        return _success()

    @described(
        Operation(
            "llama.cpp",
            "Have a model unloaded",
            (ModelBody,),
            LlamaCppSuccess,
            statuses=(404, 503),
            example={"model": "qwen2.5-coder-1.5b"},
        )
    )
    async def unload(self, request: Request) -> Response:
        (await self._model(request)).unload()
        return _success()

    async def _model(self, request: Request) -> ServedModel:
        body = validate(ModelBody, await read_json(request))
        model = self._pool.named(body.model)
        if model is None:
            raise NoSuchModel("model is not found")
        return model


def _success() -> Response:
    return Response(encode_json({"success": True}), media_type="application/json")
