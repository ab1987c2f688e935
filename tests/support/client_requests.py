"""What clients send: `tests/golden/clients`, a file a client, and how they read the answers.

Of each request there are the `path`, `headers` and `body`; what it `becomes` for the completer, as
fields of a `CompletionRequest`; and of the answer the place of the `text` and what else the client
`reads`, each with its JSON type. `how` says where it is all from: a recording of the client, or its
sources.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from support.http_server import Json
from suture.server.request import CompletionRequest

FOLDER = Path(__file__).parents[1] / "golden" / "clients"

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def all_requests() -> list[tuple[str, Json]]:
    """Every request of every client, under a name."""
    found: list[tuple[str, Json]] = []
    for path in sorted(FOLDER.glob("*.json")):
        client = json.loads(path.read_text("utf-8"))
        found += [(f"{path.stem}: {one['name']}", one) for one in client["requests"]]
    return found


def recorded_body(client: str, name: str) -> Any:
    """The body of one of a client's requests."""
    requests = json.loads((FOLDER / f"{client}.json").read_text("utf-8"))["requests"]
    [body] = [one["body"] for one in requests if one["name"] == name]
    return body


def understood(request: CompletionRequest, expected: Json) -> Json:
    """Those fields of `request` that are `expected`, as JSON has them."""
    fields = json.loads(json.dumps(asdict(request)))
    sampling = fields["sampling"]
    return {name: fields[name] if name in fields else sampling[name] for name in expected}


def answers(content: bytes, framing: str) -> list[Json]:
    """The JSON objects of an answer, split as the client splits them."""
    if framing == "json":
        return [json.loads(content)]
    lines = content.decode().split("\n")
    if framing == "lines":
        return [json.loads(line) for line in lines if line]
    data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def at(answer: Any, place: list[Any]) -> Any:
    """What is at `place` in an answer: a key or an index for each step; None where it is not."""
    for step in place:
        try:
            answer = answer[step]
        except (KeyError, IndexError):
            return None
    return answer


def is_of(kind: str, value: Any) -> bool:
    """Whether a value has the JSON type that a client takes it for."""
    # true is an int in Python
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
