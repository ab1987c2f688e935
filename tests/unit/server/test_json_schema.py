"""Schemas as grammars: what they compile to is read by the grammar's own check."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.decoding import gbnf
from suture.server.decoding.json_schema import SchemaError, schema_grammar
from suture.server.errors import InvalidRequest

GOOD: list[Any] = [
    {},
    True,
    {"type": "object"},
    {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    {"properties": {"a": True, "b": {}}, "additionalProperties": {"type": "integer"}},
    {"required": ["x"], "additionalProperties": False},
    {"type": ["string", "null"], "maxLength": 5},
    {"enum": ['a"b\\', "\n", 1.5, None, {"x": [1]}, "é"]},
    {"anyOf": [{"const": 1}, {"type": "array", "items": {"type": "boolean"}}]},
    {
        "type": "array",
        "minItems": 2,
        "maxItems": 500,
        "items": {"format": "uuid", "type": "string"},
    },
    {"prefixItems": [{"type": "string"}, {"type": "number"}], "items": False},
    {"items": [{"type": "string"}]},
    {"type": "array", "maxItems": 0},
    {"allOf": [{"$ref": "#/$defs/a"}, {"required": ["q"]}], "$defs": {"a": {"properties": {}}}},
    {
        "$ref": "#/definitions/a~1b%20c",
        "definitions": {
            "a/b c": {
                "type": "object",
                "properties": {"next": {"$ref": "#/definitions/a~1b%20c"}, "all": {"$ref": "#"}},
            }
        },
    },
]
BAD: list[tuple[Any, str]] = [
    (False, "where a schema is expected"),
    ([], "where a schema is expected"),
    ({"type": "nonsense"}, "unknown type"),
    ({"type": [{}]}, "unknown type"),
    ({"type": []}, "not empty"),
    ({"properties": []}, "no object"),
    ({"required": "name"}, "array of names"),
    ({"required": 3}, "array of names"),
    ({"enum": []}, "not empty"),
    ({"enum": list(range(3000))}, "values"),
    ({"type": "string", "pattern": "^}$"}, "pattern is not supported yet"),
    ({"type": "integer", "minimum": 3}, "minimum is not supported yet"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems is not supported yet"),
    ({"type": "array", "maxItems": 10**12}, "from 0 to"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "less than"),
    ({"type": "string", "minLength": True}, "from 0 to"),
    ({"$ref": "https://example.org/schema"}, "not within it"),
    ({"$ref": "#/nowhere"}, "points at nothing"),
    ({"$ref": 3}, "no text"),
    ({"anyOf": [True], "properties": {}}, "beside anyOf"),
    ({"allOf": [{"type": "string"}, {"minLength": 3}]}, "other than objects"),
    ({"allOf": [{"properties": 3}, {"required": 3}]}, "no object"),
    ({"prefixItems": [True], "items": True}, "than prefixItems"),
    ({"prefixItems": [True, True], "maxItems": 1}, "than prefixItems"),
    ({"const": "\ud800"}, "lone surrogate"),
    ({"enum": [{"\ud800": 1}]}, "lone surrogate"),
    ({"properties": {"\ud800": True}}, "lone surrogate"),
    ({"const": float("inf")}, "too large"),
    ({"items": {"$ref": "#/b/" + "9" * 900}, "b": [True]}, "points at nothing"),
    ({"items": {"$ref": "#/b/" + "9" * 5000}, "b": [True]}, "1000 characters"),
    ({"description": "x" * 300_000}, "at most 262144 bytes"),
    ({"type": ["null"] * 9}, "more than 8 types"),
    ({"enum": ["x" * 40_000, "y" * 40_000]}, "makes a grammar of more than 65536 bytes"),
    ({"type": "string", "format": "date", "maxLength": 3}, "length beside a format"),
    ({"allOf": [{"properties": {"a": {}}}, {"properties": {"a": {}}}]}, "property twice in allOf"),
    (
        {"allOf": [{"properties": {"a": {}}}, {"additionalProperties": False}]},
        "additionalProperties in allOf",
    ),
    ({"type": "string", "enum": [1, None]}, "none is of its type"),
    ({"properties": {"a" * 3000: {}}, "additionalProperties": True}, "too long names"),
]


@pytest.mark.parametrize("schema", GOOD)
def test_a_schema_becomes_a_grammar(schema: Any) -> None:
    gbnf.check(schema_grammar(schema))


@pytest.mark.parametrize(("schema", "reason"), BAD)
def test_what_is_no_schema_or_too_much_of_one_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        schema_grammar(schema)


def test_a_schema_nested_deeper_than_python_goes_is_refused() -> None:
    schema: Any = []
    for _ in range(100_000):
        schema = [schema]
    with pytest.raises(SchemaError, match="deeper"):
        schema_grammar({"const": schema})


def test_what_references_lead_to_is_counted_each_time_before_it_is_looked_at() -> None:
    names = [f"p{i}" for i in range(6000)]
    part = {"properties": dict.fromkeys(names, True), "required": names}
    with pytest.raises(SchemaError, match="more than 10000 names"):
        schema_grammar({"allOf": [{"$ref": "#/d"}] * 2, "d": part})
    with pytest.raises(SchemaError, match="more than 1000 parts"):
        schema_grammar({"allOf": [{"$ref": "#/d"}] * 5000, "d": {"required": ["a"]}})


def test_values_of_another_type_are_left_out() -> None:
    grammar = schema_grammar({"type": ["integer", "null"], "enum": ["a", 1, 2.0, 2.5, None, True]})
    assert 'part-0 ::= "1" | "2.0" | "null"\n' in grammar


def test_a_deep_schema_is_refused() -> None:
    schema: Any = {}
    for _ in range(500):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match="deeper"):
        schema_grammar(schema)


def test_a_large_schema_is_refused() -> None:
    with pytest.raises(SchemaError, match="has more than"):
        schema_grammar({"anyOf": [{"type": "string"}] * 5000})


def test_references_that_double_are_looked_into_once() -> None:
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(25)} | {
        "d25": {"type": "null"}
    }
    with pytest.raises(InvalidRequest, match="too many ways"):
        gbnf.check(schema_grammar({"$ref": "#/$defs/d0", "$defs": definitions}))


def test_a_reference_to_itself_alone_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="begins with itself"):
        gbnf.check(schema_grammar({"$ref": "#"}))


WORDS = [
    *("type", "properties", "required", "items", "anyOf", "allOf", "enum", "$ref", "minItems"),
    *("maxLength", "additionalProperties", "prefixItems", "const", "a", "object", "string", "#/a"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_a_schema_or_refused(schema: Any) -> None:
    try:
        gbnf.check(schema_grammar(schema))
    except (SchemaError, InvalidRequest) as error:
        assert "\n" not in str(error) and len(str(error)) < 300
