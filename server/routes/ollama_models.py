"""Ollama's dialect: `GET /api/tags`, `/api/ps` and `/api/version`, and `POST /api/show`.

Models have their own names with the tag that Ollama gives what has none. Clients look here for
whether one can fill in: some for the capability `insert`, others for `.Suffix` in the template,
which is otherwise of no use here.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from suture.server.errors import InvalidRequest
from suture.server.openapi.operation import Operation, described
from suture.server.prompt.families import FAMILIES
from suture.server.routes.body import read_json, validate
from suture.server.routes.completer import LOADED, ModelInfo, Pool, model_asked_for, shown_state
from suture.server.routes.fields import RequestBody, Text
from suture.server.routes.ollama import DEFAULTS, check_model
from suture.server.routes.shapes.ollama import (
    OllamaProcesses,
    OllamaShown,
    OllamaTags,
    OllamaVersion,
)
from suture.server.sse import encode_json
from suture.server.version import VERSION

# Clients refuse servers older than what they need: this one's `/api/generate` is what is here.
OLLAMA_VERSION = "0.12.11"
# What Ollama says of a model that is kept for ever; here it is kept for as long as it is used.
_NEVER = "2318-01-01T00:00:00Z"
_PROMPT, _SUFFIX = "{{ .Prompt }}", "{{ .Suffix }}"


class ShowBody(RequestBody):
    """The body of `POST /api/show`; what else it may have only changes what is shown."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"type": "string", "minLength": 1}}}
                for name in ("model", "name")
            ]
        }
    )

    model: Text = Field(default="", description="One of model and name is required.")
    name: Text = Field(default="", description="The same, where there is no model.")


@described(Operation("Ollama", "The version", answer=OllamaVersion))
async def api_version(request: Request) -> Response:
    """`GET /api/version`: the Ollama that clients may take this for, and what it is."""
    return _json({"version": OLLAMA_VERSION, "suture": {"version": VERSION}})


class Tags:
    """`GET /api/tags`: the models that may be served."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @described(Operation("Ollama", "The models that may be served", answer=OllamaTags))
    async def get(self, request: Request) -> Response:
        return _json({"models": [_tag(model.info) for model in self._pool.models]})


class RunningModels:
    """`GET /api/ps`: the models that are loaded."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @described(Operation("Ollama", "The models that are loaded", answer=OllamaProcesses))
    async def get(self, request: Request) -> Response:
        loaded = [model for model in self._pool.models if shown_state(model) in LOADED]
        return _json({"models": [_running(model.info) for model in loaded]})


class ShownModel:
    """`POST /api/show`: what is known of a model."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @described(
        Operation(
            "Ollama",
            "What is known of a model",
            (ShowBody,),
            OllamaShown,
            statuses=(404,),
            example={"model": "qwen2.5-coder-1.5b"},
        )
    )
    async def post(self, request: Request) -> Response:
        body = validate(ShowBody, await read_json(request))
        asked = body.model or body.name
        if not asked:
            raise InvalidRequest('"model" is required', "model")
        model = model_asked_for(self._pool, {"model": asked}).info
        check_model(asked, model.name)
        return _json(
            {
                "modelfile": f"FROM {model.name}\n",
                "parameters": _parameters(model),
                "template": _template(model),
                "details": _details(model),
                "model_info": _model_info(model),
                "capabilities": _capabilities(model),
                "modified_at": _modified_at(model),
            }
        )


def _json(value: object) -> Response:
    return Response(encode_json(value), media_type="application/json")


def _entry(model: ModelInfo) -> dict[str, object]:
    name = model.name if ":" in model.name else f"{model.name}:latest"
    return {
        "name": name,
        "model": name,
        "size": model.size_bytes or 0,
        "digest": _digest(model),
        "details": _details(model),
    }


def _tag(model: ModelInfo) -> dict[str, object]:
    more = {"modified_at": _modified_at(model), "capabilities": _capabilities(model)}
    return _entry(model) | more


def _running(model: ModelInfo) -> dict[str, object]:
    # How much of it is on a GPU nobody has told us.
    more = {"expires_at": _NEVER, "size_vram": 0, "context_length": model.n_ctx}
    return _entry(model) | more


def _details(model: ModelInfo) -> dict[str, object]:
    architecture = _architecture(model)
    return {
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture],
        "parameter_size": _short(model.n_params),
        "quantization_level": "unknown",
    }


def _model_info(model: ModelInfo) -> dict[str, Any]:
    architecture = _architecture(model)
    return {
        "general.architecture": architecture,
        "general.basename": model.name,
        "general.parameter_count": model.n_params or 0,
        f"{architecture}.context_length": model.n_ctx,
        f"{architecture}.vocab_size": model.n_vocab,
    }


def _architecture(model: ModelInfo) -> str:
    return model.architecture or model.family or "unknown"


def _capabilities(model: ModelInfo) -> list[str]:
    return ["completion", "insert"] if model.fim else ["completion"]


def _parameters(model: ModelInfo) -> str:
    """The defaults, one a line, as in a Modelfile; clients size their prompts by `num_ctx`."""
    shown: dict[str, object] = {"num_ctx": model.n_ctx} if model.n_ctx else {}
    shown |= {name: getattr(DEFAULTS, name) for name in ("temperature", "top_k", "top_p")}
    return "\n".join(f"{name:<30} {value}" for name, value in shown.items())


def _template(model: ModelInfo) -> str:
    """The model's template as Ollama would have it: of a hole, or the prompt alone."""
    if not model.fim:
        return _PROMPT
    return "{{ if .Suffix }}" + _hole_template(model.family) + "{{ else }}" + _PROMPT + "{{ end }}"


def _hole_template(family: str | None) -> str:
    row = next((row for row in FAMILIES if row.name == family), None)
    if row is None:
        return _PROMPT + _SUFFIX
    before, behind = row.sentinels["pre"] + _PROMPT, row.sentinels["suf"] + _SUFFIX
    ordered = (before, behind) if row.order == "psm" else (behind, before)
    return "".join(ordered) + row.sentinels.get("mid", "")


def _digest(model: ModelInfo) -> str:
    """Sixty-four hex digits that change with the file: nobody reads gigabytes to list a name."""
    stamp = f"{model.name}\0{model.size_bytes}\0{_modified_at(model)}"
    return hashlib.sha256(stamp.encode("utf-8", "surrogateescape")).hexdigest()


def _modified_at(model: ModelInfo) -> str:
    try:
        seconds = Path(model.path).stat().st_mtime
    except OSError:  # the file was moved since it was loaded
        seconds = 0.0
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _short(n_params: int | None) -> str:
    """`1543714304` -> `1.5B`."""
    if not n_params:
        return "unknown"
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if n_params >= size:
            return f"{n_params / size:.1f}{unit}"
    return str(n_params)
