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


def test_what_cannot_be_done_is_refused_unless_it_changes_nothing() -> None:
    with pytest.raises(InvalidRequest, match="not supported yet") as raised:
        parse({"echo": True})
    assert raised.value.field == "echo"
    with pytest.raises(InvalidRequest, match="not supported") as raised:
        parse({"best_of": 3, "n": 2})
    assert raised.value.field == "best_of"
    assert parse({"echo": False, "best_of": 1}) == parse({})
    assert parse({"best_of": 2, "n": 2}) == parse({"n": 2})


def test_the_chat_apis_name_of_the_length_is_understood() -> None:
    assert parse({"max_completion_tokens": 50}).max_tokens == 50
    assert parse({"max_completion_tokens": 50, "max_tokens": 0}).max_tokens == 0
    assert parse({}).max_tokens == 16


def test_a_hole_in_the_form_of_a_family_is_a_hole_as_with_a_suffix() -> None:
    marked = {"prompt": "<PRE> def f( <SUF>):\n <MID>"}
    assert parse(marked) == parse({"prompt": "def f(", "suffix": "):\n"})
    with_suffix = parse(marked | {"suffix": "x"})
    assert (with_suffix.prefix, with_suffix.suffix) == (marked["prompt"], "x")


def test_several_prompts_are_a_request_each() -> None:
    body = {"prompt": ["a", "b"], "suffix": "c", "n": 2}
    asked = OpenAIDialect().parse(body, settings(), MODEL)
    assert [(one.prefix, one.suffix) for one in asked.requests] == [
        *[("a", "c")] * 2,
        *[("b", "c")] * 2,
    ]


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
