"""The OpenAPI 3.1 document of an application, made of its routes.

Nothing is said twice: bodies are the models that they are checked with, the words about an endpoint
stand on it (`operation.py`), and errors have the shape of the dialect that answers on the path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.routing import Route

from suture.server.openapi.operation import TAGS, Operation, Parameter, Tag, operation_of
from suture.server.openapi.schemas import Json, one_of, schemas_of
from suture.server.version import VERSION

_JSON = "application/json"
_ABOUT_TAGS: dict[Tag, str] = {
    "llama.cpp": "As llama.cpp's server has it, and clients made for it ask.",
    "OpenAI": "As OpenAI's API of text completions has it.",
    "Mistral": "As Mistral's API of completions between two texts has it.",
    "DeepSeek": "As DeepSeek's API has it: OpenAI's, within limits of its own.",
    "Tabby": "As Tabby's server has it. `POST /v1/completions` is Tabby's where the body has "
    "`segments`.",
    "Refact": "As Refact's engine has it: a whole file and a place in it.",
    "Ollama": "As Ollama has it.",
    "Suture": "Suture's own.",
}
_ERRORS = {
    400: "A field is missing, of a wrong type or out of range; the message names it.",
    401: "The API key is missing or unknown.",
    403: "The host, or the page that asks, is not served.",
    404: "No model of that name is served.",
    408: "The body did not come in time.",
    413: "The body is larger than 32 MiB.",
    429: "This client asks too much at once.",
    431: "The request's head is too large.",
    500: "The engine failed; other requests go on.",
    501: "The model has no sentinels, and cannot fill in.",
    502: "The inference server that was asked failed on this request.",
    503: "The model is still being loaded, or too many requests wait.",
}
# What is known of server-sent events takes `schema` for that of each of them.
_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "description": "JSON, or [DONE] at the end."}},
}
_RETRY_AFTER = {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
# Anyone may be refused, whatever is asked for.
_EVERYWHERE = (401, 403, 429, 431)
_WITH_BODY = (400, 408, 413)
_SECURITY: list[Json] = [{"bearer": []}, {"x-api-key": []}]


@dataclass(frozen=True, slots=True)
class Described:
    """A route, one of its methods, what is said of it, and the type of its errors."""

    path: str
    method: str
    operation: Operation
    error: Any


def described_routes(routes: Sequence[object], error_of: Callable[[str], Any]) -> list[Described]:
    """All that is in the document; `error_of` gives the type of a path's errors."""
    return [
        Described(route.path_format, method.lower(), operation, error_of(route.path))
        for route in routes
        if isinstance(route, Route)
        and route.include_in_schema
        and (operation := operation_of(route.endpoint))
        for method in sorted(route.methods or ())
        if method != "HEAD"
    ]


def openapi_document(
    routes: Sequence[object], error_of: Callable[[str], Any], keyless: Collection[str]
) -> Json:
    """The document. `keyless` are the paths that are open to all."""
    described = described_routes(routes, error_of)
    types = [one for route in described for one in _types(route)]
    schemas, named = schemas_of(types)
    told = iter(schemas)
    paths: Json = {}
    for route in described:
        own = [next(told) for _ in _types(route)]
        paths.setdefault(route.path, {})[route.method] = _operation(route, own, keyless)
    used = {route.operation.tag for route in described}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Suture",
            "version": VERSION,
            "description": "Code completion that fills in the middle, with token healing.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag, "description": _ABOUT_TAGS[tag]} for tag in TAGS if tag in used],
        "paths": paths,
        "components": {
            "schemas": named,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Where the server was started with API keys, one of them.",
                },
                "x-api-key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _types(route: Described) -> Iterator[Any]:
    """The types that a route's part of the document is made of, in the order of `_operation`."""
    operation = route.operation
    yield route.error
    yield from operation.bodies
    if operation.answer is not None:
        yield operation.answer
    if operation.streamed is not None:
        yield operation.streamed


def _operation(route: Described, schemas: list[Json], keyless: Collection[str]) -> Json:
    operation, rest = route.operation, iter(schemas)
    error = next(rest)
    bodies = [next(rest) for _ in operation.bodies]
    answers = {"200": _answer(operation, rest)}
    has_key = route.path not in keyless
    statuses = {*_EVERYWHERE, *operation.statuses, *(_WITH_BODY if bodies else ())}
    for status in sorted(statuses if has_key else statuses - {401}):
        answers[str(status)] = _error(status, error)
    told: Json = {
        "summary": operation.summary,
        "tags": [operation.tag],
        "operationId": _identifier(route),
        "responses": answers,
    }
    parameters = [
        *(_parameter(one, "path") for one in operation.in_path),
        *(_parameter(one, "query") for one in operation.queries),
    ]
    if parameters:
        told["parameters"] = parameters
    if bodies:
        content = {"schema": one_of(operation.bodies, bodies)}
        if operation.example:
            content["example"] = dict(operation.example)
        told["requestBody"] = {"required": True, "content": {_JSON: content}}
    # No key is needed where the server has none.
    return told | {"security": [*_SECURITY, {}] if has_key else []}


def _parameter(parameter: Parameter, place: Literal["path", "query"]) -> Json:
    told: Json = {
        "name": parameter.name,
        "in": place,
        "description": parameter.description,
        "required": place == "path",
        "schema": dict(parameter.values),
    }
    return told | ({} if parameter.example is None else {"example": parameter.example})


def _answer(operation: Operation, schemas: Iterator[Json]) -> Json:
    content: Json = {}
    if operation.answer is not None:
        content[_JSON] = {"schema": next(schemas)}
    if operation.media is not None:
        content[operation.media] = {"schema": {"type": "string"}}
    if operation.streamed is not None and operation.framing is not None:
        media = operation.framing.content_type.decode().partition(";")[0]
        # 3.1 has no word for the items of a stream; 3.2 calls it itemSchema.
        item = _EVENT if media == "text/event-stream" else {"type": "string"}
        content[media] = {"schema": item, "x-item-schema": next(schemas)}
    return {"description": "The answer."} | ({"content": content} if content else {})


def _error(status: int, schema: Json) -> Json:
    told: Json = {"description": _ERRORS[status], "content": {_JSON: {"schema": schema}}}
    return told | ({"headers": {"Retry-After": _RETRY_AFTER}} if status in (429, 503) else {})


def _identifier(route: Described) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join([route.method, *(words or ["root"])])
