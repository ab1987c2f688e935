"""Refact's dialect: `GET /v1/ping` and `GET /v1/caps`, which its plugins ask their engine first.

All models that may be served are there to choose, each as one that completes; there is no chat, no
embedding and nobody to tell of use.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from suture.server.errors import Loading
from suture.server.openapi.operation import Operation, described
from suture.server.routes.completer import PROVIDER, ModelInfo, Pool
from suture.server.routes.delivery import error_response
from suture.server.routes.refact import RefactDialect
from suture.server.routes.shapes.refact import RefactCaps
from suture.server.sse import encode_json


async def ping(request: Request) -> Response:
    """What Refact's engine says where it was told nothing else to say."""
    return Response(b"pong\n", media_type="application/json")


class Caps:
    """`GET /v1/caps`: the models there are; 503 until the default one is loaded."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @described(Operation("Refact", "The models there are", answer=RefactCaps, statuses=(503,)))
    async def get(self, request: Request) -> Response:
        if self._pool.state() == "loading":
            return error_response(RefactDialect(), Loading("Loading model"))
        caps = _caps([model.info for model in self._pool.models])
        return Response(encode_json(caps), media_type="application/json")


def _caps(models: Sequence[ModelInfo]) -> RefactCaps:
    """The default model is the first of `models`."""
    completing = {_id(model): _completion(model) for model in models}
    return {
        "cloud_name": PROVIDER,
        "telemetry_basic_dest": "",
        "telemetry_basic_retrieve_my_own": "",
        "completion_models": completing,
        "chat_models": {},
        "embedding_model": _record("", "", 0)
        | {"embedding_size": 0, "rejection_threshold": 0.0, "embedding_batch": 0},
        "completion_default_model": _id(models[0]),
        "chat_default_model": "",
        "chat_thinking_model": "",
        "chat_light_model": "",
        "caps_version": 0,
        "customization": "",
        "hf_tokenizer_template": "",
        "metadata": {"pricing": None, "features": []},
    }


def _id(model: ModelInfo) -> str:
    return f"{PROVIDER}/{model.name}"


def _completion(model: ModelInfo) -> dict[str, object]:
    return _record(model.name, _id(model), model.n_ctx) | {
        # Nothing of the prompt is the client's: it sends whole files.
        "scratchpad": "",
        "scratchpad_patch": {},
        "model_family": None,
    }


def _record(name: str, model_id: str, n_ctx: int) -> dict[str, object]:
    return {
        "n_ctx": n_ctx,
        "name": name,
        "id": model_id,
        "tokenizer": "",
        "enabled": bool(name),
        "experimental": False,
        "removable": False,
        "user_configured": False,
    }
