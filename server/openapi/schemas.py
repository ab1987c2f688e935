"""JSON schemas of the models that bodies are checked with, and of the types of answers.

Pydantic says what a field's own validators take. What `RequestBody` does to all fields is said
here: null is no value, what cannot be served yet has the one value that changes nothing, and a
field that says nothing of itself says what that of its base says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from suture.server.routes.fields import RequestBody, SamplingFields

Json = dict[str, Any]

REFERENCE = "#/components/schemas/{model}"
# What stands in a schema as a value, and is none.
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
_LIMITS = (("ge", "minimum", max), ("le", "maximum", min))


def schemas_of(types: Iterable[Any]) -> tuple[list[Json], Json]:
    """The schema of each type, and the named schemas that these refer to."""
    adapters = [(index, "validation", TypeAdapter(one)) for index, one in enumerate(types)]
    found, shared = TypeAdapter.json_schemas(
        adapters,  # type: ignore[arg-type]
        ref_template=REFERENCE,
        schema_generator=_Generator,
    )
    own = [_tidy(found[index, "validation"]) for index, _, _ in adapters]
    return own, _tidy(shared.get("$defs", {}))


def one_of(bodies: Sequence[type[BaseModel]], schemas: Sequence[Json]) -> Json:
    """The schema of a body that is of one of several models, told by the later ones' fields."""
    if len(schemas) == 1:
        return schemas[0]
    alternatives: list[Json] = []
    for index, (body, schema) in enumerate(zip(bodies, schemas, strict=True)):
        foreign = {
            name: {"type": "null"}
            for later in bodies[index + 1 :]
            for name, field in later.model_fields.items()
            if field.is_required() and name not in body.model_fields
        }
        beside = {"properties": foreign} if foreign else {}
        alternatives.append({"allOf": [schema, beside]} if foreign else schema)
    return {"anyOf": alternatives}


class _Generator(GenerateJsonSchema):
    """Pydantic's, with what `RequestBody` does to all of its fields."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        model = schema["cls"]
        if issubclass(model, RequestBody):
            found["properties"] = _properties(model, found)
        return found

    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:
        return False


def _properties(model: type[RequestBody], schema: Json) -> Json:
    """The properties of a body, the class's own first, then those of its bases."""
    found: Json = schema.get("properties", {})
    required = frozenset(schema.get("required", ()))
    properties: Json = {}
    for base in model.__mro__:
        for name in vars(base).get("__annotations__", ()):
            if name in found and name not in properties:
                properties[name] = _property(model, name, found[name], name in required)
                if group := vars(base).get("GROUP"):
                    properties[name]["x-group"] = group
    return properties | {name: _not_yet(neutral) for name, neutral in model.NOT_YET.items()}


def _property(model: type[RequestBody], name: str, schema: Json, required: bool) -> Json:
    about: Json = {}
    if description := _description(model, name):
        about["description"] = description
    if (default := _default(model, name)) is not None:
        about["default"] = default
    if not required and name not in model.NOT_NULL:
        schema = _nullable(schema)
    # What a reference leads to describes itself, not the field.
    return schema | about


def _not_yet(neutral: tuple[Any, ...]) -> Json:
    return {
        "enum": [*neutral, None],
        "description": "Not supported yet: only what changes nothing is taken.",
        "x-group": "not supported",
    }


def _description(model: type[BaseModel], name: str) -> str | None:
    """That of the field, or of the one that it stands in the place of."""
    for base in model.__mro__:
        fields: dict[str, FieldInfo] = getattr(base, "model_fields", {})
        if name in fields and fields[name].description:
            return fields[name].description
    return None


def _default(model: type[RequestBody], name: str) -> Any:
    """What an absent field is, as far as that is known here."""
    field = model.model_fields[name]
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is None and name in SamplingFields.model_fields and name != "seed":
        default = getattr(model.SAMPLING, name)  # type: ignore[attr-defined]
    if isinstance(default, tuple):
        return list(default)
    return default if isinstance(default, str | int | float | list | dict) else None


def _nullable(schema: Json) -> Json:
    """The same, or null."""
    null = {"type": "null"}
    if "anyOf" in schema:
        kinds = schema["anyOf"]
        return schema if null in kinds else schema | {"anyOf": [*kinds, null]}
    about: Json = {key: schema[key] for key in ("description", "default") if key in schema}
    return {"anyOf": [{k: v for k, v in schema.items() if k not in about}, null], **about}


def _tidy(node: Any) -> Any:
    """The same in fewer words, and limits in JSON Schema's."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy: Json = {
        key: value if key in _VALUES else _tidy(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
    }
    for word, keyword, tighter in _LIMITS:
        if isinstance(tidy.get(word), int | float):
            limit = tidy.pop(word)
            tidy[keyword] = tighter(limit, tidy.get(keyword, limit))
    if "default" in tidy and tidy["default"] is None:
        del tidy["default"]
    return _flat(tidy)


def _flat(schema: Json) -> Json:
    """`anyOf` of a simple type and null as one type; no `anyOf` right inside another."""
    if not isinstance(schema.get("anyOf"), list):
        return schema
    kinds: list[Json] = []
    for kind in schema["anyOf"]:
        inner = kind.get("anyOf")
        if inner and kind.keys() <= {"anyOf", "description"}:
            kinds += [one for one in inner if one not in kinds]
            schema = (
                {"description": kind["description"], **schema} if "description" in kind else schema
            )
        elif kind not in kinds:
            kinds.append(kind)
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    null = {"type": "null"}
    if len(kinds) == 2 and null in kinds:
        (other,) = (kind for kind in kinds if kind != null)
        if isinstance(other.get("type"), str) and not other.keys() & {"const", "anyOf"}:
            merged = other | {"type": [other["type"], "null"]} | rest
            return merged | {"enum": [*other["enum"], None]} if "enum" in other else merged
    return {"anyOf": kinds, **rest}
