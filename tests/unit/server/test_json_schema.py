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
    ({"prefixItems": [True], "items": True}, "after prefixItems"),
]


@pytest.mark.parametrize("schema", GOOD)
def test_a_schema_becomes_a_grammar(schema: Any) -> None:
    gbnf.check(schema_grammar(schema))


@pytest.mark.parametrize(("schema", "reason"), BAD)
def test_what_is_no_schema_or_too_much_of_one_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        schema_grammar(schema)


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
