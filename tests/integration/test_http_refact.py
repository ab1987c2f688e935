"""Refact's dialect over HTTP, with the requests that its VS Code client sends, field by field
(refact-vscode, `src/fetchAPI.ts` and `src/completionProvider.ts`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.answering import answering_model
from support.fake_completer import FakeCompleter, says
from support.http_server import Json, client, events, serving, settings
from support.json_values import JSON
from support.scripted_completer import scripted
from suture.server.app import create_app
from suture.server.errors import EngineError, InfillUnsupported, Loading, SutureError
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult, Edit

FILE = "/home/user/site/shapes.py"
TEXT = "def area(width, height):\n    return (\n\n\nprint(area(2, 3))\n"
BODY: Json = {
    "model": "",
    "inputs": {
        "sources": {FILE: TEXT},
        "cursor": {"file": FILE, "line": 1, "character": 12},
        "multiline": False,
    },
    "parameters": {"temperature": 0.2, "max_new_tokens": 50},
    "no_cache": False,
    "use_ast": True,
    "client": "vscode-6.5.0",
}


def on(completer: FakeCompleter, **flags: object) -> TestClient:
    return TestClient(create_app(completer, settings(**flags)), base_url="http://127.0.0.1")


def with_inputs(**inputs: object) -> Json:
    return BODY | {"inputs": BODY["inputs"] | inputs}


def test_the_clients_request_is_answered() -> None:
    completer = FakeCompleter(says("width * ", "height)"))
    with serving(completer) as url, client(url) as http:
        first = http.post("/v1/code-completion", json=BODY)
        second = http.post("/v1/code-completion", json=BODY).json()
    assert first.status_code == 200
    answer = first.json()
    choice = {"index": 0, "code_completion": "width * height)", "finish_reason": "stop"}
    assert answer["choices"] == [choice]
    assert (answer["model"], answer["cached"], answer["context"]) == ("toy", False, {})
    assert isinstance(answer["created"], float) and answer["suture"]["finish"] == "eos"
    # By its number the client says later that it was taken.
    assert second["snippet_telemetry_id"] == answer["snippet_telemetry_id"] + 1 == 2
    request = completer.requests[0]
    assert request.prefix == "def area(width, height):\n    return ("
    assert request.suffix == "\n\n\nprint(area(2, 3))\n"
    assert (request.shape, request.max_tokens, request.path) == ("line", 50, FILE)


def test_a_stream_has_the_text_in_parts_and_ends_with_done() -> None:
    completer = FakeCompleter(says("width * ", "height)"))
    with serving(completer) as url, client(url) as http:
        response = http.post("/v1/code-completion", json=BODY | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *told, done = events(response)
    assert done == "[DONE]"
    parts = [json.loads(part) for part in told]
    choices = [part["choices"][0] for part in parts]
    assert [choice["code_completion"] for choice in choices] == ["width * ", "height)", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]
    assert {part["snippet_telemetry_id"] for part in parts} == {1}
    assert ["suture" in part for part in parts] == [False, False, True]


def test_several_candidates_are_several_choices() -> None:
    script = [
        CompletionChunk(text, (1,), CompletionResult("length"), index=index)
        for index, text in enumerate(("a", "b"))
    ]
    body = BODY | {"parameters": {"n": 2}, "shape": "raw"}
    answer = on(FakeCompleter(script)).post("/v1/code-completion", json=body).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length"]
    assert all("suture" in choice for choice in answer["choices"]) and "suture" not in answer


def test_the_text_takes_the_place_of_the_rest_of_the_line() -> None:
    """The client puts it there, so the closers that an editor wrote are the text's to write."""
    text = "x = area(2, )\ny = 3\n"
    place = {"file": "a.py", "line": 0, "character": 12}
    request = CompletionRequest("x = area(2, ", "\ny = 3\n", infill=True, path="a.py")
    model = answering_model(request, "3)\ny = 3\n")
    body = with_inputs(sources={"a.py": text}, cursor=place) | {"parameters": {"temperature": 0}}
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        whole = http.post("/v1/code-completion", json=body).json()
        *_, last, _ = events(http.post("/v1/code-completion", json=body | {"stream": True}))
    assert whole["choices"][0]["code_completion"] == "3)"
    edit = {"delete_after": 1, "text": "3)"}
    assert whole["suture"]["edit"] == json.loads(last)["suture"]["edit"] == edit


def test_an_edit_counts_from_the_cursor_of_the_document() -> None:
    result = CompletionResult("stop", edit=Edit(3, "x"))
    place = {"file": "a.py", "line": 0, "character": 2}
    body = with_inputs(sources={"a.py": "f() \nabc"}, cursor=place)
    http = on(FakeCompleter([CompletionChunk("", (), result)]))
    answer = http.post("/v1/code-completion", json=body).json()
    assert answer["suture"]["edit"] == {"delete_after": 5, "text": "x"}


def test_secrets_are_left_out_and_counted() -> None:
    sources = {"site/.env": "KEY=1\n", "a.py": "x = "}
    place = {"file": "a.py", "line": 0, "character": 4}
    model = answering_model(CompletionRequest("x = ", infill=True, path="a.py"), "1")
    body = with_inputs(sources=sources, cursor=place)
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        answer = http.post("/v1/code-completion", json=body).json()
        in_secret = {"file": "site/.env", "line": 0, "character": 4}
        hidden = with_inputs(sources=sources, cursor=in_secret)
        kept = http.post("/v1/code-completion", json=hidden).json()
    assert answer["suture"]["prompt"]["excluded"] == 1
    assert kept["choices"][0]["code_completion"] == ""
    assert kept["suture"]["reason"] == "EXCLUDED"


@pytest.mark.parametrize(
    ("error", "status"),
    [(Loading("Loading model", retry_after=2), 503), (InfillUnsupported("no sentinels"), 501)],
)
def test_errors_have_refacts_shape(error: SutureError, status: int) -> None:
    response = on(FakeCompleter([error])).post("/v1/code-completion", json=BODY)
    assert response.status_code == status and response.json()["detail"] == str(error)


def test_an_error_in_a_stream_is_its_last_event() -> None:
    script: list[CompletionChunk | Exception] = [
        CompletionChunk("a", (1,)),
        EngineError("it failed"),
    ]
    with serving(FakeCompleter(script)) as url, client(url) as http:
        response = http.post("/v1/code-completion", json=BODY | {"stream": True})
    assert json.loads(events(response)[-1])["detail"] == "it failed"


def test_without_the_key_it_is_401_and_from_elsewhere_403(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("abc\n")
    http = on(FakeCompleter(), api_key_file=keys)
    refused = http.post("/v1/code-completion", json=BODY)
    assert refused.status_code == 401 and "key" in refused.json()["detail"]
    known = http.post("/v1/code-completion", json=BODY, headers={"Authorization": "Bearer abc"})
    assert known.status_code == 200
    headers = {"Host": "evil.io"}
    strange = on(FakeCompleter()).post("/v1/code-completion", json=BODY, headers=headers)
    assert strange.status_code == 403 and "detail" in strange.json()
    assert http.get(
        "/v1/code-completion", headers={"Authorization": "Bearer abc"}
    ).json().keys() == {"detail"}


BAD: list[Any] = [
    {},
    [],
    None,
    {"inputs": 1},
    with_inputs(sources={}),
    with_inputs(sources=[TEXT]),
    with_inputs(cursor={"file": FILE, "line": 99, "character": 0}),
    with_inputs(cursor={"file": FILE, "line": 0, "character": 99}),
    with_inputs(cursor={"file": FILE, "line": -1, "character": 0}),
    with_inputs(cursor={"file": FILE, "line": 10**30, "character": 0}),
    with_inputs(cursor=None),
    with_inputs(multiline="yes"),
    with_inputs(sources={FILE: "\ud800"}),
    BODY | {"parameters": {"temperature": "hot"}},
    BODY | {"parameters": {"stop": [None]}},
    BODY | {"stream": "yes"},
]


@pytest.mark.parametrize("body", BAD)
@pytest.mark.parametrize("streamed", [False, True])
def test_bad_input_is_a_400_that_quotes_nothing(body: Any, streamed: bool) -> None:
    if streamed and isinstance(body, dict):
        body = {"stream": True} | body
    response = on(FakeCompleter()).post("/v1/code-completion", content=json.dumps(body))
    assert response.status_code == 400
    assert response.json().keys() == {"detail"}
    assert FILE not in response.text and "area" not in response.text


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000, b'{"inputs": NaN}'])
def test_a_body_that_is_no_json_is_refused(raw: bytes) -> None:
    response = on(FakeCompleter()).post("/v1/code-completion", content=raw)
    assert response.status_code == 400 and response.json().keys() == {"detail"}


HTTP = on(FakeCompleter())


@hypothesis_settings(max_examples=150, deadline=None)
@given(
    odd=st.dictionaries(st.sampled_from([*BODY, "shape", "unknown"]), JSON, max_size=2),
    inputs=st.dictionaries(st.sampled_from([*BODY["inputs"], "unknown"]), JSON, max_size=2),
    cursor=st.dictionaries(st.sampled_from(["file", "line", "character"]), JSON, max_size=2),
)
def test_any_json_in_any_fields_is_answered(odd: Json, inputs: Json, cursor: Json) -> None:
    place = BODY["inputs"]["cursor"] | cursor
    body = BODY | {"inputs": BODY["inputs"] | {"cursor": place} | inputs} | odd
    response = HTTP.post("/v1/code-completion", content=json.dumps(body))
    if response.status_code == 200:
        assert '"suture":' in response.text
    else:
        assert 400 <= response.status_code < 500
        assert len(response.json()["detail"]) < 400


def test_plugins_find_the_engine_and_its_model() -> None:
    """What refact-vscode's `ping` and `read_caps`, and the panel's `isCapsResponse`, look at."""
    with serving(FakeCompleter()) as url, client(url) as http:
        pong = http.get("/v1/ping")
        caps = http.get("/v1/caps").json()
    assert (pong.status_code, pong.text) == (200, "pong\n")
    assert caps["completion_default_model"] in caps["completion_models"]
    [model] = caps["completion_models"].values()
    assert (model["name"], model["n_ctx"], model["enabled"]) == ("toy", 4096, True)
    assert (caps["chat_default_model"], caps["chat_models"]) == ("", {})
    assert caps["metadata"]["pricing"] is None
    # Nobody is told what a user does.
    assert (caps["telemetry_basic_dest"], caps["telemetry_basic_retrieve_my_own"]) == ("", "")


def test_there_are_no_caps_before_the_model_is_there() -> None:
    http = on(FakeCompleter(loading="loading"))
    assert http.get("/v1/ping").status_code == 200
    response = http.get("/v1/caps")
    assert (response.status_code, response.json()["detail"]) == (503, "Loading model")
