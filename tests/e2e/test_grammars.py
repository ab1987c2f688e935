"""Grammars over real HTTP with a real model."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from e2e.conftest import Served

pytestmark = [pytest.mark.e2e, pytest.mark.model]

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PROMPT = 'A person as JSON: {"name": "Anna"}\nAnother person as JSON: '


@pytest.mark.parametrize("seed", [1, 2])
def test_a_json_schema_gives_json_with_its_fields(small_server: Served, seed: int) -> None:
    body = {"json_schema": NAME, "temperature": 0.8, "top_k": 40, "seed": seed}
    hole = {"input_prefix": PROMPT, "input_suffix": "", "n_predict": 80, "shape": "raw"}
    answer = small_server.post("/infill", body | hole)
    assert type(json.loads(answer["content"])["name"]) is str
    answer = small_server.post("/v1/completions", body | {"prompt": PROMPT, "max_tokens": 80})
    assert type(json.loads(answer["choices"][0]["text"])["name"]) is str


def test_response_formats_are_openais(small_server: Served) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "boolean"}}}
    body = {"prompt": "Is the sky blue? As JSON: ", "max_tokens": 60, "temperature": 0}
    answer = small_server.post("/v1/completions", body | {"response_format": schema})
    assert json.loads(answer["choices"][0]["text"]) in (True, False)
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_grammar_sees_what_comes_after_the_cursor(small_server: Served) -> None:
    """Of `const userNa` the given-back bytes are said again, and are not the grammar's."""
    body = {
        "prompt": "const userName = 1; const userNa",
        "grammar": 'root ::= "me" | "tion"',
        "temperature": 0,
    }
    answer = small_server.post("/v1/completions", body)
    assert answer["choices"][0]["text"] == "me"
    assert answer["suture"]["healing"]["level"] == "exact"


@pytest.mark.parametrize(
    "bad",
    [
        {"grammar": "root ::= x"},
        {"grammar": "root ::= " + "(" * 50_000},
        {"grammar": 'root ::= root "a"'},
        {"grammar": "a" * 100_000},
        {"grammar": 3},
        {"grammar": 'root ::= "a"', "json_schema": {}},
        {"json_schema": {"type": "nonsense"}},
        {"json_schema": {"$ref": "#"}},
        {"json_schema": {"anyOf": [{"items": {}}] * 3000}},
        {"json_schema": []},
        {"json_schema": {"const": "\ud800"}},
        {"json_schema": {"items": {"$ref": "#/b/" + "9" * 5000}, "b": [True]}},
        {"json_schema": {"type": "string", "pattern": "^(((a+)+)+)+$"}},
    ],
)  # fmt: skip
def test_what_is_no_grammar_is_a_400_and_the_server_goes_on(
    small_server: Served, bad: dict[str, Any]
) -> None:
    for path in ("/infill", "/v1/completions"):
        body = {"prompt": "x", "input_prefix": "x", "input_suffix": "", "max_tokens": 3} | bad
        # Escaped: a lone surrogate cannot be sent as UTF-8.
        content = json.dumps(body)
        response = httpx2.post(small_server.url + path, content=content, timeout=30)
        assert response.status_code == 400, response.text
        message = response.json()["error"]["message"]
        assert "\n" not in message and len(message) < 400
    assert small_server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})
