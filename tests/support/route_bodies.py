"""Every route of the application, and bodies that those that read one can do something with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.routing import Route

from support.fake_completer import FakeCompleter
from support.http_server import settings
from suture.server.app import create_app, dialect_of

Json = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """A method and a path that are served."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def endpoints() -> list[Endpoint]:
    """All of them as the application has them now, also those that were added yesterday."""
    routes = create_app(FakeCompleter(), settings()).routes
    found = [
        Endpoint(method, route.path_format.replace("{id}", "toy"))
        for route in routes
        if isinstance(route, Route)
        for method in sorted(route.methods or {"GET"})
    ]
    assert len(routes) > 20 and len(found) > len(routes)
    return found


ENDPOINTS = endpoints()
POSTS = [endpoint.path for endpoint in ENDPOINTS if endpoint.method == "POST"]


def bodies(text: str) -> dict[str, Json]:
    """A body for each route that is understood, with `text` wherever a client has text of its own.

    What is not listed gets one with the fields of all.
    """
    infill = {
        "input_prefix": text,
        "input_suffix": text,
        "input_extra": [{"text": text, "filename": f"{text[:40]}.py"}],
        "path": f"{text[:40]}.py",
        "session": text[:40],
        "stop": [text[:40]],
        "n_predict": 4,
        "temperature": 0,
    }
    known: dict[str, Json] = {
        "/infill": infill,
        "/v1/explain": infill,
        "/completion": {"prompt": text, "n_predict": 4},
        "/completions": {"prompt": text, "n_predict": 4},
        "/tokenize": {"content": text},
        "/detokenize": {"tokens": [97, 98]},
        "/v1/completions": {"prompt": text, "suffix": text, "max_tokens": 4, "user": text[:40]},
        "/v1/fim/completions": {"prompt": text, "suffix": text, "max_tokens": 4},
        "/beta/completions": {"prompt": text, "suffix": text, "max_tokens": 4},
        "/v1/code-completion": {
            "inputs": {
                "sources": {f"{text[:40]}.py": text},
                "cursor": {"file": f"{text[:40]}.py", "line": 0, "character": 1},
                "multiline": True,
            },
            "parameters": {"max_new_tokens": 4},
        },
        "/v1/events": {"type": "view", "completion_id": text[:40], "choice_index": 0},
        "/api/generate": {"model": "toy", "prompt": text, "suffix": text},
        "/api/show": {"model": text[:40]},
    }
    every: Json = {}
    for body in known.values():
        every |= body
    return {path: known.get(path, every) for path in POSTS}


def assert_shape(path: str, status: int, answer: Any) -> None:
    """That an error is told as clients of this path understand it, in one line."""
    assert 400 <= status < 600, answer
    told = {key: value for key, value in answer.items() if key != "suture"}
    wanted = dialect_of(path).error_body(status, "", None)
    assert told.keys() == wanted.keys(), answer
    error: Any = told.get("error")
    wanted_error = wanted.get("error")
    if isinstance(wanted_error, dict):
        assert error.keys() == wanted_error.keys() and error["type"] == wanted_error["type"]
        message = error["message"]
    else:
        message = next(told[key] for key in ("message", "detail", "error") if key in told)
    assert message and "\n" not in message and len(message) < 400
