"""A body's schema lets through what its model takes, and nothing else."""

from __future__ import annotations

import functools
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suture.server.errors import InvalidRequest
from suture.server.openapi.schemas import one_of, schemas_of
from suture.server.routes.body import validate
from suture.server.routes.deepseek import DeepSeekBody
from suture.server.routes.fields import RequestBody
from suture.server.routes.llama_cpp import InfillBody
from suture.server.routes.llama_cpp_completion import CompletionBody
from suture.server.routes.llama_cpp_tokens import DetokenizeBody, TokenizeBody
from suture.server.routes.mistral import FimBody
from suture.server.routes.ollama import GenerateBody, Options
from suture.server.routes.openai import CompletionsBody
from suture.server.routes.refact import CodeCompletionBody
from suture.server.routes.tabby import Event, SegmentsBody

Json = dict[str, Any]

CURSOR: Json = {"file": "a", "line": 0, "character": 0}
# What is required of each.
BODIES: dict[type[RequestBody], Json] = {
    InfillBody: {"input_prefix": "a", "input_suffix": "b"},
    CompletionBody: {"prompt": "a"},
    CompletionsBody: {"prompt": "a"},
    DeepSeekBody: {"prompt": "a"},
    FimBody: {"prompt": "a"},
    GenerateBody: {},
    Options: {},
    SegmentsBody: {"segments": {"prefix": "a"}},
    CodeCompletionBody: {"inputs": {"sources": {}, "cursor": CURSOR, "multiline": True}},
    TokenizeBody: {"content": "a"},
    DetokenizeBody: {"tokens": []},
    Event: {"type": "view", "completion_id": "a", "choice_index": 0},
}
PARTS: list[tuple[type[RequestBody], tuple[str, ...]]] = [
    (SegmentsBody, ("segments",)),
    (SegmentsBody, ("debug_options",)),
    (CodeCompletionBody, ("inputs",)),
    (CodeCompletionBody, ("inputs", "cursor")),
    (CodeCompletionBody, ("parameters",)),
    (CompletionsBody, ("stream_options",)),
]

LATER = {"debug_options", "json_schema", "mode", "response_format"}

# At the limits and beyond them, and of every type.
VALUES: list[Any] = [
    None,
    True,
    False,
    *(-2147483648, -3, -2, -1, 0, 1, 2, 8, 9, 16, 17, 20, 21, 100, 101, 1024, 1025, 4096, 4097),
    *(2**31 - 1, 2**31, 2**63 - 1, 2**63),
    *(-2.5, 0.5, 1.0, 1.5, 8.0, 9.0, 1e6, 1e7, 1e30, 1e31),
    *(
        "",
        "1",
        "a",
        "json",
        "stable",
        "raw",
        "auto",
        "5m",
        "5 minutes",
        "kt",
        "kz",
        "next_edit_suggestion",
    ),
    "x" * 300,
    "x" * 5000,
    *([], [None], [[]], [True], [1], [1.0], [1.5], ["a"], [""], ["a", "b"], [1, "b"]),
    *(["top_k"], ["top_k", "top_k"], ["infill", "temperature"], ["adaptive_p"], ["no such"]),
    *(
        [[1, 2]],
        [["1", 0.5]],
        [[1, False]],
        [[1, True]],
        [["a", 1]],
        [[1]],
        [[1, 2, 3]],
        [[1, 1e31]],
    ),
    *(["a"] * n for n in (16, 17, 32, 33, 64, 65, 256, 257)),
    *([0] * n for n in (1024, 1025)),
    *({}, {"1": 1}, {"1": False}, {"1": 101}, {"a": 1}, {"1": "a"}, {"a": "b"}),
    *(
        {"text": "a"},
        {"text": 1},
        [{"text": "a"}],
        [{"text": "a", "filename": 1}],
        [{"filename": "a"}],
    ),
    *({"type": "text"}, {"type": "json_object"}, {"type": "json_object", "schema": 1}),
    *({"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {}}}, {"type": 1}),
    *({"prompt_string": "a"}, {"prompt_string": 1}, [{"prompt_string": ["a", 1]}], [["a", 1]]),
    *({"prompt_string": "a", "multimodal_data": []}, {"prompt_string": "a", "multimodal_data": ""}),
    *({"temperature": 0}, {"temperature": "a"}, {"include_usage": None}, {"include_usage": 1}),
    *({"filepath": "a", "body": "b"}, [{"filepath": "a", "body": "b"}], [{"filepath": "a"}]),
]


@functools.cache
def validator(model: type[RequestBody]) -> jsonschema_rs.Draft202012Validator:
    [schema], named = schemas_of([model])
    return jsonschema_rs.Draft202012Validator(schema | {"components": {"schemas": named}})


def takes(model: type[RequestBody], body: Json) -> bool:
    try:
        validate(model, body)
    except InvalidRequest:
        return False
    return True


def check(model: type[RequestBody], body: Json) -> None:
    is_valid, is_taken = validator(model).is_valid(body), takes(model, body)
    assert is_taken or not is_valid, body
    # What a model takes at first is refused when a request is made of it.
    assert is_valid or not is_taken or LATER & body.keys(), body


@pytest.mark.parametrize("model", BODIES, ids=lambda model: model.__name__)
def test_each_field_takes_what_its_schema_says(model: type[RequestBody]) -> None:
    for field in (*model.model_fields, *model.NOT_YET, "unknown"):
        check(model, {key: value for key, value in BODIES[model].items() if key != field})
        for value in VALUES:
            check(model, BODIES[model] | {field: value})


@pytest.mark.parametrize(("model", "path"), PARTS)
def test_each_field_of_a_part_takes_what_its_schema_says(
    model: type[RequestBody], path: tuple[str, ...]
) -> None:
    [schema], named = schemas_of([model])
    part = BODIES[model]
    for key in path:
        part = part.get(key, {})
        schema = _resolved(_resolved(schema, named)["properties"][key], named)
    for field in (*schema["properties"], "unknown"):
        for value in VALUES:
            body: Any = part | {field: value}
            for key in reversed(path):
                inner = BODIES[model] if key == path[0] else BODIES[model][path[0]]
                body = inner | {key: body}
            check(model, body)


def _resolved(schema: Json, named: Json) -> Json:
    schema = schema.get("anyOf", [schema])[0]
    return named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


@pytest.mark.parametrize("model", BODIES, ids=lambda model: model.__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_some_fields_take_what_their_schema_says(
    model: type[RequestBody], data: st.DataObject
) -> None:
    names = st.sampled_from([*model.model_fields, *model.NOT_YET])
    odd = data.draw(st.dictionaries(names, st.sampled_from(VALUES), max_size=4))
    check(model, BODIES[model] | odd)


def test_of_several_models_the_fields_of_the_later_ones_tell() -> None:
    models = (CompletionsBody, SegmentsBody)
    schemas, named = schemas_of(models)
    schema = one_of(models, schemas) | {"components": {"schemas": named}}
    is_valid = jsonschema_rs.Draft202012Validator(schema).is_valid
    assert is_valid({"prompt": "a"})
    assert is_valid({"prompt": "a", "segments": None})
    assert is_valid({"prompt": 1, "segments": {"prefix": "a"}})
    assert not is_valid({"prompt": "a", "segments": {}})
    assert not is_valid({})
