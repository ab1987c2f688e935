"""`/openapi.json` describes every route, and what every route takes and answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from support.fake_completer import FakeCompleter
from support.http_server import client, serving, settings
from support.openapi import Described, Document, streamed
from support.scripted_completer import VOCABULARY, scripted
from suture.server.app import create_app
from suture.server.engine.scripted import random_model
from suture.server.openapi import document as making
from suture.server.openapi.operation import operation_of

Json = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@pytest.fixture(scope="module")
def http() -> Iterator[httpx2.Client]:
    model = random_model(VOCABULARY.n_vocab, seed=3)
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        yield http


@pytest.fixture(scope="module")
def document(http: httpx2.Client) -> Document:
    return Document(http.get("/openapi.json").raise_for_status().json())


def app() -> Starlette:
    return create_app(FakeCompleter(), settings())


# What a page loads is no question to ask, and a ping is no answer.
ROUTES = [route for route in app().routes if isinstance(route, Route) and route.include_in_schema]

# Here a name that is not served is a 404, or no model is asked at all.
NAMED = {"/api/generate", "/api/show", "/models/load", "/models/unload"}
NAMED |= {"/v1/events", "/v1/health"}


def ask(http: httpx2.Client, asked: Described, body: Json | None) -> httpx2.Response:
    return http.request(asked.method.upper(), asked.asked_of("toy"), json=body)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_is_described_on_its_endpoint(route: Route) -> None:
    assert operation_of(route.endpoint) is not None, f"{route.path}: its endpoint has no operation"


def test_the_document_has_the_routes_and_no_others(document: Document) -> None:
    told = {(one.path, one.method.upper()) for one in document.operations()}
    served = {(route.path_format, method) for route in ROUTES for method in route.methods or ()}
    assert told == {(path, method) for path, method in served if method != "HEAD"}


def test_every_schema_is_one(document: Document) -> None:
    for schema in document.json["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": DIALECT, **schema})


def test_operation_ids_are_unique(document: Document) -> None:
    ids = [one.operation["operationId"] for one in document.operations()]
    assert len(set(ids)) == len(ids)


def test_examples_are_answered_as_described(http: httpx2.Client, document: Document) -> None:
    for asked in document.operations():
        body = asked.example
        if asked.path in ("/api/show", "/models/load", "/models/unload"):
            body = {"model": "toy"}
        for more in ({}, {"stream": True}, {"stream": False}) if asked.is_streamed else ({},):
            sent = None if body is None else body | more
            response = ask(http, asked, sent)
            # The one model of this server is always there.
            expected = 400 if asked.path == "/models/unload" else 200
            assert response.status_code == expected, (asked.path, response.text)
            document.check(asked, response)


def test_answers_of_llama_cpps_have_all_their_fields(
    http: httpx2.Client, document: Document
) -> None:
    whole = {"$ref": "#/components/schemas/LlamaCppCompletion"}
    for asked in document.operations():
        if asked.path in ("/infill", "/completion", "/completions"):
            body = (asked.example or {}) | {"n_probs": 1, "shape": "raw", "ignore_eos": True}
            document.validate(whole, ask(http, asked, body).json())
            *pieces, last = streamed(ask(http, asked, body | {"stream": True}).content)
            document.validate(whole, last)
            assert pieces and not any(piece["stop"] for piece in pieces)


# What makes an answer have more in it, by path.
RICH: list[tuple[str, Json]] = [
    ("/infill", {"n_probs": 2, "return_tokens": True, "n_cmpl": 2, "temperature": 1}),
    ("/infill", {"response_fields": ["content", "timings/prompt_n"]}),
    ("/infill", {"n_predict": 0}),
    ("/completion", {"n_probs": 2, "return_tokens": True, "n_cmpl": 3, "temperature": 1}),
    ("/completion", {"prompt": [97, "b"], "detokenize": False}),
    ("/v1/completions", {"logprobs": 2, "return_tokens": True, "n": 2, "temperature": 1}),
    ("/v1/completions", {"logprobs": 0, "stream_options": {"include_usage": True}}),
    ("/beta/completions", {"logprobs": 2, "return_tokens": True, "n": 2, "temperature": 1}),
    ("/beta/completions", {"stream_options": {"include_usage": True}}),
    ("/v1/fim/completions", {"return_tokens": True, "max_tokens": 3}),
    ("/v1/code-completion", {"parameters": {"n": 2, "temperature": 1}, "return_tokens": True}),
    ("/api/generate", {"logprobs": True, "top_logprobs": 2, "return_tokens": True}),
    ("/api/generate", {"prompt": "", "suffix": ""}),
    ("/v1/completions", {"segments": {"prefix": "a", "suffix": "b"}}),
    ("/v1/completions", {"segments": {"prefix": "a"}, "debug_options": {}, "return_tokens": True}),
    ("/tokenize", {"with_pieces": False}),
]


@pytest.mark.parametrize(("path", "more"), RICH)
def test_answers_with_all_that_may_be_in_them_are_as_described(
    http: httpx2.Client, document: Document, path: str, more: Json
) -> None:
    [asked] = (one for one in document.operations() if one.path == path)
    for stream in (False, True) if asked.is_streamed else (None,):
        body = (asked.example or {}) | more | ({} if stream is None else {"stream": stream})
        response = ask(http, asked, body)
        assert response.status_code == 200, response.text
        document.check(asked, response)


def test_errors_have_the_shape_of_their_dialect(http: httpx2.Client, document: Document) -> None:
    for asked in document.operations():
        refused = http.request(asked.method.upper(), asked.path, headers={"Host": "elsewhere.org"})
        assert refused.status_code == 403
        document.check(asked, refused)
        if asked.example is not None:
            broken = http.request(asked.method.upper(), asked.path, content=b"{")
            assert broken.status_code == 400
            document.check(asked, broken)


def test_keys_are_asked_for_where_the_document_says_so(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with serving(FakeCompleter(), api_key_file=keys) as url, client(url) as http:
        document = Document(http.get("/openapi.json").raise_for_status().json())
        for asked in document.operations():
            response = ask(http, asked, asked.example)
            assert (response.status_code == 401) == bool(asked.operation["security"]), asked.path
            document.check(asked, response)


def test_a_body_of_openai_and_one_of_tabby_are_told_apart(document: Document) -> None:
    body = document.json["paths"]["/v1/completions"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    root = {**schema, "components": document.json["components"]}
    validator = jsonschema_rs.Draft202012Validator(root)
    assert validator.is_valid({"prompt": "a"})
    assert validator.is_valid({"segments": {"prefix": "a"}})
    assert validator.is_valid({"prompt": "a", "segments": None})
    assert validator.is_valid({"prompt": 1, "segments": {"prefix": "a"}})
    assert not validator.is_valid({"prompt": "a", "segments": {}})
    assert not validator.is_valid({})


def test_fields_say_their_defaults_and_what_they_are_for(document: Document) -> None:
    schemas = document.json["components"]["schemas"]
    assert schemas["InfillBody"]["properties"]["top_k"]["default"] == 40
    assert schemas["Options"]["properties"]["top_p"]["default"] == 0.9
    assert schemas["FimBody"]["properties"]["temperature"]["default"] == 0.3
    deepseek = schemas["DeepSeekBody"]["properties"]
    assert deepseek["temperature"]["maximum"] == 2 and deepseek["temperature"]["description"]
    assert deepseek["echo"]["enum"] == [False, None]


def test_the_document_says_where_a_model_is_chosen(document: Document) -> None:
    schemas, paths = document.json["components"]["schemas"], document.json["paths"]
    bodies = {name: schema for name, schema in schemas.items() if name.endswith("Body")}
    assert len(bodies) > 10
    for name, schema in bodies.items():
        assert "string" in schema["properties"]["model"]["type"], name
    for path in ("/props", "/slots"):
        assert "model" in [query["name"] for query in paths[path]["get"]["parameters"]]
    [in_path] = paths["/v1/models/{id}"]["get"]["parameters"]
    assert (in_path["name"], in_path["in"], in_path["required"]) == ("id", "path", True)


SEGMENTS = {"segments": {"prefix": "a"}}


@pytest.mark.parametrize(
    "path", [one.path for one in ROUTES if "POST" in (one.methods or ()) and one.path not in NAMED]
)
def test_no_name_and_one_that_is_not_served_ask_the_default_model(
    http: httpx2.Client, document: Document, path: str
) -> None:
    example = document.json["paths"][path]["post"]["requestBody"]["content"]
    bodies = [example["application/json"]["example"]]
    for body in [*bodies, SEGMENTS] if path == "/v1/completions" else bodies:
        for name in (None, "", "made-up"):
            answer = http.post(path, json=body | {"model": name})
            assert answer.status_code == 200, (name, answer.text)
        assert http.post(path, json=body | {"model": 5}).status_code == 400


def test_the_page_loads_nothing_from_elsewhere(http: httpx2.Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "://" not in page.text.replace("http://www.w3.org/", "")


def test_the_document_is_made_once_for_all_who_ask_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_made = 0

    def slowly(*_: object) -> Json:
        nonlocal n_made
        n_made += 1
        time.sleep(0.3)
        return {}

    monkeypatch.setattr(making, "openapi_document", slowly)
    with serving(FakeCompleter()) as url, client(url) as http, ThreadPoolExecutor() as pool:
        # Who leaves takes it from nobody.
        with pytest.raises(httpx2.ReadTimeout):
            http.get("/openapi.json", timeout=0.1)
        answers = [pool.submit(http.get, "/openapi.json") for _ in range(4)]
        assert [one.result().status_code for one in answers] == [200] * 4
    assert n_made == 1


def test_nothing_of_the_document_is_made_before_it_is_asked_for() -> None:
    code = (
        "import sys, json, suture.server.app; "
        "print(json.dumps('suture.server.openapi.document' in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) is False
