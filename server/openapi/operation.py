"""What the OpenAPI document says of an endpoint that its models do not say: on the endpoint itself.

An endpoint is described by an attribute `operation`. Functions and methods get it from the
decorator `described`; a route whose endpoint has none is in no document, and fails a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel

from suture.server.sse import Framing

Tag = Literal["llama.cpp", "OpenAI", "Mistral", "DeepSeek", "Tabby", "Refact", "Ollama", "Suture"]
TAGS: tuple[Tag, ...] = get_args(Tag)

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a URL. `values` is its JSON schema, `example` a value that is worth asking."""

    name: str
    description: str
    values: Mapping[str, Any]
    example: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing to ask a server for.

    `bodies` are the models that its body is checked with: a body that has the required fields of a
    later one is of that one. `answer` is the type of a 200's JSON, None where it is no JSON but
    `media`, or nothing where that is None too. Where a body may ask for a stream, `streamed` is the
    type of each of its values, told apart as `framing` does. `statuses` are those of errors beside
    the ones that every route has. `queries` stand behind the path, `in_path` those that its braces
    name. `example` is a body that is worth sending.
    """

    tag: Tag
    summary: str
    bodies: tuple[type[BaseModel], ...] = ()
    answer: Any = None
    media: str | None = None
    streamed: Any = None
    framing: Framing | None = None
    statuses: tuple[int, ...] = ()
    queries: tuple[Parameter, ...] = ()
    in_path: tuple[Parameter, ...] = ()
    example: Mapping[str, Any] = field(default_factory=dict)


def described(operation: Operation) -> Callable[[Endpoint], Endpoint]:
    """Puts `operation` on a function."""

    def describe(endpoint: Endpoint) -> Endpoint:
        endpoint.operation = operation  # type: ignore[attr-defined]
        return endpoint

    return describe


def operation_of(endpoint: object) -> Operation | None:
    """What stands on an endpoint."""
    operation = getattr(endpoint, "operation", None)
    return operation if isinstance(operation, Operation) else None
