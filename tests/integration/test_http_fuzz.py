"""Whatever a body holds, the answer is 200 or a 4xx in the dialect's shape, never a 5xx."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.explaining import EXPLANATION
from support.fake_completer import MODEL, FakeCompleter
from support.http_server import settings as settings_of
from support.json_values import JSON
from support.toy import special, toy_vocabulary
from suture.server.app import create_app
from suture.server.routes.deepseek import DeepSeekBody
from suture.server.routes.fields import RequestBody
from suture.server.routes.llama_cpp import InfillBody
from suture.server.routes.llama_cpp_completion import CompletionBody
from suture.server.routes.llama_cpp_tokens import DetokenizeBody, TokenizeBody
from suture.server.routes.mistral import FimBody
from suture.server.routes.ollama import GenerateBody, Options
from suture.server.routes.openai import CompletionsBody
from suture.server.token_texts import TokenTexts

BODIES: dict[str, dict[str, Any]] = {
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/v1/completions": {"prompt": "a", "suffix": "b"},
    "/completion": {"prompt": [97, "b"]},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [97]},
    "/v1/fim/completions": {"prompt": "a", "suffix": "b"},
    "/beta/completions": {"prompt": "a", "suffix": "b"},
    "/v1/explain": {"input_prefix": "a", "input_suffix": "b"},
    "/api/generate": {"model": "toy", "prompt": "a", "suffix": "b"},
}
MODELS: dict[str, type[RequestBody]] = {
    "/infill": InfillBody,
    "/v1/completions": CompletionsBody,
    "/completion": CompletionBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
    "/v1/fim/completions": FimBody,
    "/beta/completions": DeepSeekBody,
    "/v1/explain": InfillBody,
    "/api/generate": GenerateBody,
}
# What is in an answer, if not the `suture` object.
ANSWERED = {
    "/v1/explain": b'"methods":',
    "/tokenize": b'"tokens":',
    "/detokenize": b'"content":',
}
LLAMA_CPP = {"code", "message", "type"}
KEYS = {
    "/infill": LLAMA_CPP,
    "/completion": LLAMA_CPP,
    "/tokenize": LLAMA_CPP,
    "/detokenize": LLAMA_CPP,
    "/v1/fim/completions": {"object", "message", "type", "param", "code"},
}
FIELDS = {
    path: sorted({*model.model_fields, *model.NOT_YET, "unknown"}) for path, model in MODELS.items()
}

# Every kind of value that has broken a server: wrong types, huge ones, surrogates, deep ones.
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    10**30,
    -(10**400),
    "",
    "1",
    "\ud800",
    "\0",
    "x" * 20_000,
    [],
    [None],
    [[]],
    ["\udfff"],
    [[0, "\ud800"]],
    [[10**30, 1e308]],
    [[], "a"],
    [[1, [2]]],
    ["a", 10**30],
    ["a", -1, True],
    ["a", "b"],
    [["a"], [97], {"prompt_string": "<|fim_prefix|>"}],
    [special("<|fim_prefix|>")],
    "<|fim_prefix|>a<|fim_suffix|><|file_sep|>",
    "<|repo_name|><|file_sep|>",
    {"prompt_string": 1, "multimodal_data": 2},
    {},
    {"\ud800": 1},
    {"1": "\udc00"},
    {"text": "\ud800"},
    [{"text": 1}],
    [{"text": "x", "filename": "\ud800"}],
]


@functools.cache
def client() -> TestClient:
    vocabulary = toy_vocabulary()
    tokens = TokenTexts(vocabulary, frozenset(vocabulary.silent_ids))
    model = replace(MODEL, tokens=tokens, family="qwen2.5-coder")
    completer = FakeCompleter(explanation=EXPLANATION, model=model)
    app = create_app(completer, settings_of())
    return TestClient(app, base_url="http://127.0.0.1")


def post(path: str, body: Any) -> None:
    """Ask, and check that the answer is one that a client of this path understands."""
    with client().stream("POST", path, content=json.dumps(body)) as response:
        raw = response.read()
    if response.status_code == 200:
        assert ANSWERED.get(path, b'"suture":') in raw
        return
    assert 400 <= response.status_code < 500, raw
    answer = json.loads(raw)
    error = answer if path == "/v1/fim/completions" else answer["error"]
    if path == "/api/generate":
        assert isinstance(error, str) and error and "\n" not in error and len(error) < 400
        return
    assert error["type"] == "invalid_request_error"
    assert error["message"] and "\n" not in error["message"] and len(error["message"]) < 400
    assert error.keys() == KEYS.get(path, {"message", "type", "param", "code"})


@pytest.mark.parametrize("path", BODIES)
def test_every_field_may_be_missing_or_odd(path: str) -> None:
    for field in FIELDS[path]:
        post(path, {key: value for key, value in BODIES[path].items() if key != field})
        for odd in ODD:
            post(path, BODIES[path] | {field: odd})


def test_every_option_of_ollamas_may_be_odd() -> None:
    for option in sorted({*Options.model_fields, "unknown"}):
        for odd in ODD:
            post("/api/generate", BODIES["/api/generate"] | {"options": {option: odd}})


@pytest.mark.parametrize("path", BODIES)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_json_in_any_fields_is_answered(path: str, data: st.DataObject) -> None:
    odd = data.draw(st.dictionaries(st.sampled_from(FIELDS[path]), JSON, max_size=4))
    post(path, BODIES[path] | odd)


@pytest.mark.parametrize("path", BODIES)
@settings(max_examples=50, deadline=None)
@given(body=JSON)
def test_any_json_is_answered(path: str, body: Any) -> None:
    post(path, body)
