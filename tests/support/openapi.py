"""The document of a server, and what it says of an answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
from jsonschema_rs import Draft202012Validator

Json = dict[str, Any]

# What may stand beside the fields of these is theirs to say.
_OPEN = frozenset({"StatusAnswer", "LlamaCppPicked"})


@dataclass(frozen=True, slots=True)
class Described:
    """An operation of a document."""

    path: str
    method: str
    operation: Json

    @property
    def example(self) -> Json | None:
        """A body that the document says is worth sending; None where there is no body."""
        body = self.operation.get("requestBody")
        return None if body is None else dict(body["content"]["application/json"]["example"])

    def asked_of(self, model: str) -> str:
        """The path with a model's name where it names one."""
        return self.path.replace("{id}", model)

    @property
    def is_streamed(self) -> bool:
        return any("x-item-schema" in content for content in self.contents(200).values())

    def contents(self, status: int) -> Json:
        """What the document says of answers with a status, by their media types."""
        assert str(status) in self.operation["responses"], f"{self.path} answers {status}"
        found: Json = self.operation["responses"][str(status)].get("content", {})
        return found


class Document:
    """A document, which says of every answer whether it is one that it describes.

    Fields that it does not name are not described, though a client would have to bear them.
    """

    def __init__(self, document: Json) -> None:
        self.json = document
        components = copy.deepcopy(document["components"])
        for name, schema in components["schemas"].items():
            if "properties" in schema and name not in _OPEN:
                schema["additionalProperties"] = False
        self._components = components
        self._validators: dict[str, Draft202012Validator] = {}

    def operations(self) -> Iterator[Described]:
        for path, methods in self.json["paths"].items():
            for method, operation in methods.items():
                yield Described(path, method, operation)

    def operation(self, path: str, method: str) -> Described | None:
        """One of them, if it is there."""
        operation = self.json["paths"].get(path, {}).get(method)
        return None if operation is None else Described(path, method, operation)

    def check(self, asked: Described, response: httpx2.Response) -> None:
        """Raise where `response` is not what is described."""
        content_type = response.headers.get("content-type", "")
        self.check_content(asked, response.status_code, content_type, response.content)

    def check_content(
        self, asked: Described, status: int, content_type: str, content: bytes
    ) -> None:
        """The same, of the parts of a response."""
        contents = asked.contents(status)
        if not contents:
            assert content == b""
            return
        media = content_type.partition(";")[0]
        assert media in contents, f"{asked.path} answers in {media}"
        if media == "application/json":
            self.validate(contents[media]["schema"], json.loads(content))
        elif "x-item-schema" in contents[media]:
            items = list(streamed(content))
            assert items
            for item in items:
                self.validate(contents[media]["x-item-schema"], item)

    def validate(self, schema: Json, value: Any) -> None:
        """Raise where `value` is not what `schema` describes."""
        key = json.dumps(schema)
        if key not in self._validators:
            root = {**schema, "components": self._components}
            self._validators[key] = Draft202012Validator(root)
        self._validators[key].validate(value)


def streamed(content: bytes) -> Iterator[Any]:
    """The values of a stream, without what ends it."""
    for line in content.decode().split("\n"):
        data = line.removeprefix("data: ")
        if data and data != "[DONE]":
            yield json.loads(data)
