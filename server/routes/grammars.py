"""What a text must be: `grammar` in GBNF, `json_schema`, and OpenAI's `response_format`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from suture.server.decoding.json_schema import SchemaError, schema_grammar
from suture.server.errors import InvalidRequest
from suture.server.routes.fields import RequestBody, Text

JSON_OBJECT: dict[str, Any] = {"type": "object"}
_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "object"}, {"const": True}]}
_FORMATS: dict[str, Any] = {
    "anyOf": [
        {"type": "object", "required": ["type"], "properties": {"type": {"const": "text"}}},
        {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {"const": "json_object"},
                "schema": {"anyOf": [*_SCHEMA["anyOf"], {"type": "null"}]},
            },
        },
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "properties": {
                "type": {"const": "json_schema"},
                "json_schema": {
                    "type": "object",
                    "required": ["schema"],
                    "properties": {"schema": _SCHEMA},
                },
            },
        },
    ]
}


def _response_format(value: Any) -> Any:
    if not isinstance(value, dict) or value.get("type") not in (
        "text",
        "json_object",
        "json_schema",
    ):
        raise ValueError('must be an object with the type "text", "json_object" or "json_schema"')
    if value["type"] == "text":
        return None
    if value["type"] == "json_object":
        schema = value.get("schema")
        return JSON_OBJECT if schema is None else schema
    wrapper = value.get("json_schema")
    if not isinstance(wrapper, dict) or wrapper.get("schema") is None:
        raise ValueError("must have a json_schema with a schema")
    return wrapper["schema"]


class GrammarFields(RequestBody):
    """At most one of them may be given; the schema of a `response_format` is what is kept of it."""

    GROUP = "grammars"

    grammar: Text = Field(
        default="", description="What the text must be, in GBNF, from the rule root on."
    )
    json_schema: Annotated[Any, WithJsonSchema(_SCHEMA)] = Field(
        default=None,
        description="A JSON schema that the text must satisfy. What would restrict further than a "
        "grammar can (pattern, minimum, …) is refused.",
    )

    SCHEMA_FIELDS: ClassVar[tuple[str, ...]] = ("json_schema",)

    @property
    def grammar_field(self) -> str:
        """The field that `gbnf` is made of."""
        asked = [name for name in self.SCHEMA_FIELDS if getattr(self, name) is not None]
        return asked[0] if asked else "grammar"

    @property
    def gbnf(self) -> str | None:
        """The grammar asked for, not yet checked. Raises `InvalidRequest` for a schema."""
        schemas = {name: getattr(self, name) for name in self.SCHEMA_FIELDS}
        asked = [name for name, schema in schemas.items() if schema is not None]
        if len(asked) + bool(self.grammar) > 1:
            raise InvalidRequest(f'"{asked[0]}" cannot be had beside another grammar', asked[0])
        if not asked:
            return self.grammar or None
        try:
            return schema_grammar(schemas[asked[0]])
        except SchemaError as error:
            raise InvalidRequest(f'"{asked[0]}" {error}', asked[0]) from None


class FormatFields(GrammarFields):
    """As OpenAI has it too."""

    response_format: Annotated[Any, BeforeValidator(_response_format), WithJsonSchema(_FORMATS)] = (
        Field(default=None, description="The same, as OpenAI's API has it.")
    )

    SCHEMA_FIELDS = ("json_schema", "response_format")
