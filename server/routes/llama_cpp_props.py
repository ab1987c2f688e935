"""llama.cpp's dialect: `GET /props`, what the server is and what it takes for granted, and
`GET /lora-adapters`, of which there are none.

The model's file is named without its folder, which may say whose home it is. There is no chat.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from suture.server.errors import Loading
from suture.server.openapi.operation import Operation, described
from suture.server.routes.completer import LOADED, ModelInfo, Pool, model_asked_for
from suture.server.routes.delivery import error_response
from suture.server.routes.llama_cpp import (
    DEFAULTS,
    MODEL_QUERY,
    LlamaCppDialect,
    sampling_settings,
)
from suture.server.routes.shapes.llama_cpp import LlamaCppProps
from suture.server.sse import encode_json
from suture.server.version import VERSION


class Props:
    """`GET /props`, of the `model` in the query; 503 while that is loaded."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @described(
        Operation(
            "llama.cpp",
            "What is served",
            answer=LlamaCppProps,
            statuses=(503,),
            queries=(MODEL_QUERY,),
        )
    )
    async def get(self, request: Request) -> Response:
        model = model_asked_for(self._pool, request.query_params)
        state = model.state()
        if state == "loading":
            return error_response(LlamaCppDialect(), Loading("Loading model"))
        answer = _props(model.info, len(model.slots())) | {"is_sleeping": state not in LOADED}
        return Response(encode_json(answer), media_type="application/json")


@described(Operation("llama.cpp", "Adapters, of which there are none", answer=list[dict[str, Any]]))
async def lora_adapters(request: Request) -> Response:
    """As llama-server says it where it was started without any."""
    return Response(b"[]", media_type="application/json")


def _props(model: ModelInfo, n_slots: int) -> dict[str, object]:
    return {
        "default_generation_settings": _default_settings(model.n_ctx),
        "total_slots": n_slots,
        "model_alias": model.name,
        "model_path": PurePath(model.path).name,
        "chat_template": "",
        "chat_template_caps": {},
        "modalities": {"vision": False, "audio": False},
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        **_specials(model),
        "build_info": f"suture-{VERSION}",
    }


def _default_settings(n_ctx: int) -> dict[str, object]:
    """A slot in which nothing runs yet, as llama-server describes one."""
    params = sampling_settings(DEFAULTS) | {
        "n_predict": -1,
        "seed": -1,
        "n_probs": 0,
        "stop": [],
        "ignore_eos": False,
        "grammar": "",
        "stream": False,
    }
    return {
        "id": 0,
        "id_task": -1,
        "n_ctx": n_ctx,
        "speculative": False,
        "is_processing": False,
        "params": params,
        "prompt": "",
        "next_token": {
            "has_next_token": True,
            "has_new_line": False,
            "n_remain": -1,
            "n_decoded": 0,
            "stopping_word": "",
        },
    }


def _specials(model: ModelInfo) -> dict[str, object]:
    """The texts of the tokens that begin and end a document; empty where there is none."""
    if model.tokens is None:
        return {"bos_token": "", "eos_token": ""}
    vocabulary = model.tokens.vocabulary
    ids = {"bos_token": vocabulary.bos_id, "eos_token": vocabulary.eos_id}
    return {name: "" if i is None else vocabulary.text_of(i) for name, i in ids.items()}
