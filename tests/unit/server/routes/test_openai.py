from __future__ import annotations

from typing import Any

import pytest

from support.fake_completer import MODEL
from support.http_server import Json, settings
from suture.server.errors import InvalidRequest
from suture.server.request import CompletionRequest
from suture.server.routes.openai import OpenAIDialect


def parse(body: Json) -> CompletionRequest:
    return OpenAIDialect().parse({"prompt": "a"} | body, settings(), MODEL).request


def test_fields_are_taken_over() -> None:
    request = parse(
        {
            "suffix": "b",
            "max_tokens": 9999,
            "temperature": 0,
            "top_p": 0.5,
            "top_k": 3,
            "stop": ["x", ""],
            "seed": 5,
            "n": 2,
            "presence_penalty": 1,
            "logit_bias": {"7": -100},
            "return_tokens": True,
        }
    )
    assert (request.prefix, request.suffix, request.infill) == ("a", "b", True)
    assert request.max_tokens == MODEL.n_ctx and request.stop == ("x",)
    assert request.sampling.temperature == 0 and request.sampling.top_k == 3
    assert request.n == 2
    assert request.sampling.seed == 5 and request.sampling.presence_penalty == 1
    assert request.sampling.logit_bias == ((7, -100.0),) and request.return_tokens


@pytest.mark.parametrize(
    ("field", "value", "neutral"),
    [
        ("best_of", 2, 1),
        ("echo", True, False),
    ],
)
def test_what_cannot_be_done_yet_is_refused_unless_it_changes_nothing(
    field: str, value: Any, neutral: Any
) -> None:
    with pytest.raises(InvalidRequest, match="not supported yet") as raised:
        parse({field: value})
    assert raised.value.field == field
    parse({field: neutral})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", 1),
        ("n", 0),
        ("n", 17),
        ("n", True),
        ("max_tokens", -1),
        ("max_tokens", False),
        ("temperature", -0.1),
        ("stop", {}),
        ("stream_options", []),
        ("stream_options", {"include_usage": 1}),
        ("logit_bias", []),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": 101}),
        ("logit_bias", {"1": None}),
        ("logit_bias", {"1000": 1}),
        ("user", 3),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse({field: value})
    assert raised.value.field is not None and raised.value.field.startswith(field)


def test_a_schema_that_is_null_is_absent() -> None:
    any_json = parse({"response_format": {"type": "json_object"}})
    null = parse({"response_format": {"type": "json_object", "schema": None}})
    assert null.grammar == any_json.grammar is not None
    with pytest.raises(InvalidRequest, match="must have a json_schema with a schema"):
        parse({"response_format": {"type": "json_schema", "json_schema": {"schema": None}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "\ud800"},
        {"properties": {"\ud800": {}}},
        {"items": {"$ref": "#/b/" + "9" * 5000}, "b": [True]},
    ],
)
def test_a_schema_that_cannot_be_told_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse({"json_schema": schema})
    assert raised.value.field == "json_schema"


def test_a_grammar_says_which_field_it_is_from() -> None:
    assert parse({"grammar": "root ::= [a]"}).grammar_field == "grammar"
    assert parse({"json_schema": {}}).grammar_field == "json_schema"
    schema = {"type": "json_object"}
    assert parse({"response_format": schema}).grammar_field == "response_format"
