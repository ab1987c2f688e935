"""Bodies that other servers answer with a 500 or a crash (llama.cpp#4833, llama.cpp#8179)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from support.fake_completer import FakeCompleter
from support.http_server import Json, settings
from suture.server.app import create_app

SENTINELS = {
    "input_prefix": "s = '<|fim_middle|>' # <|fim_suffix|>\nx = ",
    "input_suffix": "\n<|endoftext|>",
}
HOLE: Json = {"input_prefix": "a", "input_suffix": "b"}
END: Json = {"input_prefix": "a", "input_suffix": ""}

ROWS: list[tuple[str, Any, int, str]] = [
    ("every field absent", {}, 400, "input_prefix"),
    ("null prefix", {"input_prefix": None, "input_suffix": ""}, 400, "input_prefix"),
    ("number for text", {"input_prefix": 1, "input_suffix": ""}, 400, "input_prefix"),
    ("negative budget", HOLE | {"n_predict": -5}, 400, "n_predict"),
    ("budget over the context", HOLE | {"n_predict": 10_000_000}, 200, ""),
    ("zero: warm up only", HOLE | {"n_predict": 0}, 200, ""),
    ("lone surrogate", {"input_prefix": "\ud83d", "input_suffix": ""}, 400, "input_prefix"),
    ("NUL", {"input_prefix": "a\0b", "input_suffix": ""}, 200, ""),
    ("stop is empty", END | {"stop": [""]}, 200, ""),
    ("stop is a string", END | {"stop": "\n"}, 200, ""),
    ("extra without text", END | {"input_extra": [{"filename": "x"}]}, 400, "input_extra[0].text"),
    ("unknown healing", END | {"healing": "magic"}, 400, "healing"),
    ("sentinels in the user's text", SENTINELS, 200, ""),
    ("temperature out of range", END | {"temperature": -1}, 400, "temperature"),
    ("array for an object", [1, 2, 3], 400, "JSON object"),
]


@pytest.mark.parametrize(("body", "status", "named"), [row[1:] for row in ROWS], ids=lambda _: "")
def test_a_body_gets_an_answer_or_a_clear_error(body: Any, status: int, named: str) -> None:
    completer = FakeCompleter()
    client = TestClient(create_app(completer, settings()), base_url="http://127.0.0.1")
    response = client.post("/infill", content=json.dumps(body))
    assert response.status_code == status, response.text
    if status == 200:
        assert response.json()["content"] == "ab"
        return
    error = response.json()["error"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert named in error["message"] and "\n" not in error["message"]


def test_what_the_rows_ask_for_reaches_the_completer() -> None:
    completer = FakeCompleter()
    client = TestClient(create_app(completer, settings()), base_url="http://127.0.0.1")
    for extra in ({"n_predict": 10_000_000}, {"n_predict": 0}, {"stop": [""]}, {"stop": "\n"}):
        assert client.post("/infill", json=HOLE | extra).status_code == 200
    capped, warm_up, no_stop, one_stop = completer.requests
    assert capped.max_tokens == completer.model.n_ctx
    assert warm_up.max_tokens == 0
    assert (no_stop.stop, one_stop.stop) == ((), ("\n",))
