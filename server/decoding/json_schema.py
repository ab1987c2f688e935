"""JSON Schema to GBNF: the JSON texts that satisfy a schema, as a grammar.

As llama.cpp's converters have it, an object has the properties that its schema names, the required
ones first, each in the order of the schema, and others only where `additionalProperties` says so
in words. Numbers have at most 16 digits before and after the point, so that a model cannot run on.
A keyword that restricts and cannot be told in the grammar is refused; one that only describes is
ignored, and so are formats other than date, time, date-time and uuid.

A schema is converted where others wait, so all that conversion takes is bounded: the schema's own
size, its parts and names each time that a reference leads to them, and the size of the grammar.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from suture.server.decoding.gbnf import MAX_BYTES as MAX_GRAMMAR_BYTES

MAX_BYTES = 1 << 18
MAX_DEPTH = 64
MAX_SCHEMAS = 1000
MAX_COUNT = 1000
MAX_VALUES = 2000
MAX_NAMES = 10_000
MAX_TYPES = 8
MAX_REFERENCE = 1000
MAX_EXCLUDED = 2000

_COMMA = ' "," space '
_HEX = "[0-9a-fA-F]"
# What stands in no JSON string as itself.
_NEVER_PLAIN = r'"\\\x7F\x00-\x1F'
_RULES: Mapping[str, str] = MappingProxyType(
    {
        "space": r'"" | " " | "\n"{1,2} [ \t]{0,20}',
        "value": 'object | array | string | number | "true" | "false" | "null"',
        "object": '"{" space (member ("," space member)* space)? "}"',
        "member": 'string ":" space value',
        "array": '"[" space (value ("," space value)* space)? "]"',
        "string": r'"\"" char* "\""',
        "char": rf'[^{_NEVER_PLAIN}] | "\\" (["\\/bfnrt] | "u" {_HEX}{{4}})',
        "integer": '"-"? ("0" | [1-9] [0-9]{0,15})',
        "number": 'integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
        "boolean": '"true" | "false"',
        "null": '"null"',
        "date": '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])',
        "clock": '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{3})?',
        "time": 'clock ("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])',
        "date-time": 'date "T" time',
        "uuid": ' "-" '.join(f"{_HEX}{{{n}}}" for n in (8, 4, 4, 4, 12)),
    }
)
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
_OTHER_TYPES = MappingProxyType(
    {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
)
_FORMATS = frozenset({"date", "time", "date-time", "uuid"})
_OBJECT = frozenset({"properties", "required", "additionalProperties"})
_ARRAY = frozenset({"items", "prefixItems", "minItems", "maxItems"})
_STRING = frozenset({"minLength", "maxLength", "format"})
_UNION = ("anyOf", "oneOf")
_REFUSED = frozenset(
    "pattern minimum maximum exclusiveMinimum exclusiveMaximum multipleOf not if then else "
    "patternProperties propertyNames minProperties maxProperties dependencies dependentRequired "
    "dependentSchemas contains minContains maxContains additionalItems unevaluatedItems "
    "unevaluatedProperties $dynamicRef $recursiveRef".split()
)


class SchemaError(ValueError):
    """Not a schema, or one that cannot be told in a grammar; says which part."""


def schema_grammar(schema: Any) -> str:
    """The grammar, in GBNF, of the JSON texts that a schema describes; of ``{}``, any object.

    Raises `SchemaError`.
    """
    _check_json(schema)
    converter = _Converter(schema)
    root = "object" if schema == {} else converter.rule_of(schema, 0)
    return "".join(
        _line(name, rule) for name, rule in {"root": root, **converter.rules, **_RULES}.items()
    )


def _line(name: str, rule: str) -> str:
    return f"{name} ::= {rule}\n"


_N_BYTES_OF_RULES = len("".join(_line(name, rule) for name, rule in _RULES.items()))


def _check_json(schema: Any) -> None:
    """Raise `SchemaError` for what is no JSON text of a sane size."""
    try:
        n_bytes = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except RecursionError:
        raise SchemaError(f"goes deeper than {MAX_DEPTH}") from None
    except UnicodeEncodeError:
        raise SchemaError("must be Unicode text: it has a lone surrogate") from None
    except ValueError:
        raise SchemaError("has a number that is too large") from None
    if n_bytes > MAX_BYTES:
        raise SchemaError(f"must be at most {MAX_BYTES} bytes, not {n_bytes}")


class _Converter:
    """Names a rule for each part of a schema; recursive references are recursive rules."""

    def __init__(self, document: Any) -> None:
        self.rules: dict[str, str] = {}
        self._document = document
        self._references: dict[str, str] = {}
        self._n_schemas = 0
        self._n_values = 0
        self._n_names = 0
        self._n_bytes = _N_BYTES_OF_RULES + 100  # and the rule `root`

    def rule_of(self, schema: Any, depth: int) -> str:
        """The name of the rule of a schema."""
        self._n_schemas += 1
        if self._n_schemas > MAX_SCHEMAS or depth > MAX_DEPTH:
            raise SchemaError(f"has more than {MAX_SCHEMAS} parts, or goes deeper than {MAX_DEPTH}")
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict):
            raise SchemaError(f"has {_shown(schema)} where a schema is expected")
        refused = sorted(_REFUSED & schema.keys())
        if schema.get("uniqueItems") is True:
            refused.append("uniqueItems")
        if refused:
            raise SchemaError(f"{refused[0]} is not supported yet")
        return self._rule_of_object(schema, depth)

    def _rule_of_object(self, schema: dict[str, Any], depth: int) -> str:
        for word in ("$ref", "const", "enum", *_UNION, "allOf"):
            if word in schema:
                _check_alone(schema, word)
        if "$ref" in schema:
            return self._reference(schema["$ref"], depth)
        if "const" in schema:
            return self._literals([schema["const"]], schema)
        if "enum" in schema:
            return self._literals(_list(schema, "enum"), schema)
        for word in _UNION:
            if word in schema:
                return self._union(_list(schema, word), depth)
        if "allOf" in schema:
            return self._all_of(_list(schema, "allOf"), depth)
        return self._typed(schema, depth)

    def _typed(self, schema: dict[str, Any], depth: int) -> str:
        kind = schema.get("type", _implied(schema))
        if isinstance(kind, list):
            if len(kind) > MAX_TYPES:
                raise SchemaError(f"has more than {MAX_TYPES} types")
            return self._union([{**schema, "type": one} for one in _list(schema, "type")], depth)
        if not isinstance(kind, str) or kind not in _TYPES | {"value"}:
            raise SchemaError(f"has the unknown type {_shown(kind)}")
        if kind == "object" and schema.keys() & _OBJECT:
            return self._object(schema, depth)
        if kind == "array" and schema.keys() & _ARRAY:
            return self._array(schema, depth)
        if kind == "string" and schema.keys() & _STRING:
            return self._string(schema)
        return kind

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        properties = _properties(schema)
        self._count_names(schema)
        required = dict.fromkeys(_names(schema))
        # A required property may be any value where the schema does not say which.
        properties = properties | {name: True for name in required if name not in properties}
        members = {
            name: self._named(f'{_literal(name)} ":" space {self.rule_of(part, depth + 1)}')
            for name, part in properties.items()
        }
        more = schema.get("additionalProperties", False)
        others = None
        if more is not False:
            key = self._other_name(properties) if properties else "string"
            others = self._named(f'{key} ":" space {self.rule_of(more, depth + 1)}')
        first = [rule for name, rule in members.items() if name in required]
        optional = [rule for name, rule in members.items() if name not in required]
        inside = self._members(first, optional, others)
        return self._named(f'"{{" space {inside} "}}"')

    def _other_name(self, names: Iterable[str]) -> str:
        """The rule of all names but these, without escapes: they could spell one of these."""
        taken = {name for name in names if _is_plain(name)}
        if sum(map(len, taken)) > MAX_EXCLUDED:
            raise SchemaError("has too long names beside additionalProperties")
        following: dict[str, list[str]] = {"": []}
        for name in sorted(taken):
            for n in range(len(name)):
                if name[: n + 1] not in following:
                    following[name[: n + 1]] = []
                    following[name[:n]].append(name[n])
        rules: dict[str, str] = {}
        for begun in sorted(following, key=len, reverse=True):
            chars = following[begun]
            ways = [f'"{_escaped(char)}" {rules[begun + char]}' for char in chars]
            ways.append(f"[^{''.join(map(_escaped, chars))}{_NEVER_PLAIN}] [^{_NEVER_PLAIN}]*")
            rules[begun] = self._named(" | ".join(ways if begun in taken else [*ways, '""']))
        return self._named(rf'"\"" {rules[""]} "\""')

    def _members(self, first: list[str], optional: list[str], others: str | None) -> str:
        """All of `first`, some of `optional`, any number of `others`, and a space if any."""
        rest = self._named(f'("," space {others})*') if others else ""
        heads = [f"{others} {rest}"] if others else []
        for member in reversed(optional):
            heads.append(f"{member} {rest}")
            rest = self._named(f'("," space {member})? {rest}')
        if first:
            return f"{_COMMA.join(first)} {rest} space"
        return f"(({' | '.join(reversed(heads))}) space)?" if heads else ""

    def _array(self, schema: dict[str, Any], depth: int) -> str:
        prefix = _list(schema, "prefixItems") if "prefixItems" in schema else []
        items = schema.get("items", not prefix)
        if isinstance(items, list):  # as drafts before 2020 wrote a prefix
            prefix, items = items, False
        least, most = _bounds(schema, "minItems", "maxItems")
        if prefix:
            if items is not False or least > len(prefix) or most not in (None, len(prefix)):
                raise SchemaError("has other counts than prefixItems, which is not supported yet")
            parts = [self.rule_of(part, depth + 1) for part in prefix]
            return self._named(f'"[" space {_COMMA.join(parts)} space "]"')
        if items is False or most == 0:
            return self._named('"[" space "]"')
        item = self.rule_of(items, depth + 1)
        more = f'("," space {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        inside = f"{item} {more} space"
        return self._named(f'"[" space {inside if least else f"({inside})?"} "]"')

    def _string(self, schema: dict[str, Any]) -> str:
        least, most = _bounds(schema, "minLength", "maxLength")
        form = schema.get("format")
        if isinstance(form, str) and form in _FORMATS:
            if schema.keys() & {"minLength", "maxLength"}:
                raise SchemaError("has a length beside a format, which is not supported yet")
            return self._named(rf'"\"" {form} "\""')
        return self._named(rf'"\"" char{{{least},{"" if most is None else most}}} "\""')

    def _union(self, parts: Iterable[Any], depth: int) -> str:
        return self._named(" | ".join(self.rule_of(part, depth + 1) for part in parts))

    def _all_of(self, parts: list[Any], depth: int) -> str:
        """Objects that have the properties of all; of one part, that part."""
        if len(parts) == 1:
            return self.rule_of(parts[0], depth + 1)
        if len(parts) > MAX_SCHEMAS:
            raise SchemaError(f"has more than {MAX_SCHEMAS} parts")
        merged: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        for part in parts:
            if isinstance(part, dict) and "$ref" in part:
                part = self._find(part["$ref"])
            is_object = isinstance(part, dict) and part.get("type", "object") == "object"
            if not is_object or not part.keys() <= {"type", "title", "description", *_OBJECT}:
                raise SchemaError("has allOf of other than objects, which is not supported yet")
            self._count_names(part)
            if _properties(part).keys() & merged["properties"].keys():
                raise SchemaError("has a property twice in allOf, which is not supported yet")
            if part.get("additionalProperties", True) not in (True, {}):
                raise SchemaError("has additionalProperties in allOf, which is not supported yet")
            merged["properties"] |= _properties(part)
            merged["required"] += _names(part)
        return self.rule_of(merged, depth + 1)

    def _reference(self, reference: Any, depth: int) -> str:
        if not isinstance(reference, str):
            raise SchemaError("has a $ref that is no text")
        if reference not in self._references:
            # Named before it is looked into: it may refer to itself.
            name = self._references[reference] = f"ref-{len(self._references)}"
            self._add(name, self.rule_of(self._find(reference), depth + 1))
        return self._references[reference]

    def _find(self, reference: Any) -> Any:
        """What a reference within the document points at."""
        if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
            raise SchemaError(f"has the $ref {_shown(reference)}, which is not within it")
        if len(reference) > MAX_REFERENCE:
            raise SchemaError(f"has a $ref of more than {MAX_REFERENCE} characters")
        part = self._document
        for step in unquote(reference).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(part, dict) and key in part:
                part = part[key]
            elif isinstance(part, list) and _is_index(key) and int(key) < len(part):
                part = part[int(key)]
            else:
                raise SchemaError(f"has the $ref {_shown(reference)}, which points at nothing")
        return part

    def _literals(self, values: list[Any], schema: dict[str, Any]) -> str:
        self._n_values += len(values)
        if self._n_values > MAX_VALUES:
            raise SchemaError(f"has more than {MAX_VALUES} values")
        fitting = [value for value in values if _is_of_type(value, schema.get("type"))]
        if not fitting:
            raise SchemaError("has values of which none is of its type")
        return self._named(" | ".join(map(_literal, fitting)))

    def _count_names(self, schema: dict[str, Any]) -> None:
        required = schema.get("required")
        n_required = len(required) if isinstance(required, list) else 0
        self._n_names += len(_properties(schema)) + n_required
        if self._n_names > MAX_NAMES:
            raise SchemaError(f"has more than {MAX_NAMES} names")

    def _named(self, rule: str) -> str:
        name = f"part-{len(self.rules)}"
        self._add(name, rule)
        return name

    def _add(self, name: str, rule: str) -> None:
        self.rules[name] = rule
        self._n_bytes += len(_line(name, rule).encode())
        if self._n_bytes > MAX_GRAMMAR_BYTES:
            raise SchemaError(f"makes a grammar of more than {MAX_GRAMMAR_BYTES} bytes")


def _literal(value: Any) -> str:
    """The JSON text of a value, as a literal of the grammar."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_plain(name: str) -> bool:
    """Whether a JSON string spells it as it is."""
    return not any(char in '"\\\x7f' or char < " " for char in name)


def _escaped(char: str) -> str:
    """A character as literals and classes of the grammar may have it."""
    return char if char.isascii() and char.isalnum() else f"\\U{ord(char):08X}"


def _is_of_type(value: Any, kind: Any) -> bool:
    """Whether a value is of a schema's `type`, which may be none or several."""
    kinds = kind if isinstance(kind, list) else [kind]
    is_number = type(value) in (int, float)
    own = "number" if is_number else _OTHER_TYPES[type(value)]
    return kind is None or own in kinds or ("integer" in kinds and is_number and value % 1 == 0)


def _is_index(key: str) -> bool:
    return key.isdecimal() and len(key) < 10


def _check_alone(schema: dict[str, Any], word: str) -> None:
    """What says all of a schema must not have beside it what would restrict it further."""
    restricting = (_OBJECT | _ARRAY | _STRING | {"$ref", "const", "enum", "allOf", *_UNION}) - {
        word
    }
    beside = sorted(restricting & schema.keys())
    if beside:
        raise SchemaError(f"has {beside[0]} beside {word}, which is not supported yet")


def _implied(schema: dict[str, Any]) -> str:
    """The type that a schema's keywords are about."""
    words = schema.keys()
    kinds = [("object", _OBJECT), ("array", _ARRAY), ("string", _STRING - {"format"})]
    return next((kind for kind, own in kinds if words & own), "value")


def _bounds(schema: dict[str, Any], least: str, most: str) -> tuple[int, int | None]:
    low, high = schema.get(least, 0), schema.get(most)
    for count in (low, low if high is None else high):
        if type(count) is not int or not 0 <= count <= MAX_COUNT:
            raise SchemaError(f"{least} and {most} must be integers from 0 to {MAX_COUNT}")
    if high is not None and high < low:
        raise SchemaError(f"{most} is less than {least}")
    return low, high


def _list(schema: dict[str, Any], word: str) -> list[Any]:
    values = schema[word]
    if not isinstance(values, list) or not values:
        raise SchemaError(f"{word} must be an array that is not empty")
    return values


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise SchemaError("has properties that are no object")
    return properties


def _names(schema: dict[str, Any]) -> list[str]:
    names = schema.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SchemaError("required must be an array of names")
    return names


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
