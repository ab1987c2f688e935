"""Tabby's dialect over HTTP, with the requests that tabby-agent sends.

Recorded from tabby-agent 1.5.0, and written field by field from the source of its later versions
(`clients/tabby-agent/src`: `codeCompletion/buildRequest.ts`, `http/tabbyApiClient.ts`).
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.answering import answering_model
from support.fake_completer import FakeCompleter, says
from support.http_server import Json, client, serving, settings
from support.json_values import JSON
from support.scripted_completer import scripted
from suture.server.app import create_app
from suture.server.errors import InfillUnsupported, Loading, QueueFull, SutureError
from suture.server.request import CompletionRequest, ExtraText
from suture.server.routes.completer import State

PREFIX, SUFFIX = "def area(width, height):\n    return ", "\n\n\nprint(area(2, 3))\n"
DECLARATION: Json = {"filepath": "lib/units.py", "body": "def metres(x): ...\n"}
OUTSIDE: Json = {"filepath": "file:///usr/lib/python3/abs.py", "body": "def abs(x): ...\n"}
CHANGED: Json = {"filepath": "old.py", "body": "def volume(w, h, d):\n    return w\n", "score": 0.7}
OPENED: Json = {"filepath": "new.py", "body": "import shapes\n", "score": 1}

# tabby-agent 1.5.0, as it was recorded.
RECORDED: Json = {
    "language": "python",
    "segments": {
        "prefix": PREFIX,
        "suffix": SUFFIX,
        "filepath": "shapes.py",
        "git_url": "https://git.example/ada/shapes.git",
        "declarations": [DECLARATION],
        "relevant_snippets_from_changed_files": [CHANGED],
        "clipboard": "some clipboard",
    },
}
# Its successors: the rest of the cursor's line, where it is only closers, is not in the suffix.
AUTOMATIC: Json = {
    "language": "python",
    "segments": {
        "prefix": PREFIX,
        "suffix": SUFFIX,
        "filepath": "shapes.py",
        "git_url": "https://git.example/ada/shapes.git",
        "declarations": [DECLARATION, OUTSIDE],
        "relevant_snippets_from_changed_files": [CHANGED],
        "relevant_snippets_from_recently_opened_files": [OPENED],
    },
}
MANUAL: Json = AUTOMATIC | {"temperature": 0.8}
EVENTS: list[tuple[str, Json]] = [
    ("", {"type": "view"}),
    ("", {"type": "select", "view_id": "v", "elapsed": 120}),
    ("?select_kind=line", {"type": "select", "select_kind": "line", "elapsed": 0}),
    ("", {"type": "dismiss", "view_id": None}),
    ("?select_kind=line", {"type": "view"}),
]


def on(completer: FakeCompleter, **flags: object) -> TestClient:
    return TestClient(create_app(completer, settings(**flags)), base_url="http://127.0.0.1")


def shown_texts(http: TestClient) -> dict[str, float]:
    pattern = r'suture_shown_texts_total{event="(\w+)",part="(\w+)"} (\S+)'
    return {f"{e} {p}": float(n) for e, p, n in re.findall(pattern, http.get("/metrics").text)}


def test_the_recorded_requests_are_answered() -> None:
    completer = FakeCompleter(says("width * ", "height"))
    with serving(completer) as url, client(url) as http:
        answers = [http.post("/v1/completions", json=b) for b in (RECORDED, AUTOMATIC, MANUAL)]
    for response in answers:
        assert response.status_code == 200
        answer = response.json()
        assert answer.keys() == {"id", "choices", "mode", "suture"}
        assert answer["choices"] == [{"index": 0, "text": "width * height"}]
        assert answer["mode"] == "standard" and re.fullmatch(r"cmpl-[0-9a-f-]{36}", answer["id"])
        assert answer["suture"]["edit"] == {"delete_after": 0, "text": "width * height"}
    assert len({response.json()["id"] for response in answers}) == 3
    recorded, automatic, manual = completer.requests
    declared = ExtraText(DECLARATION["body"], "lib/units.py")
    assert recorded.extra == (ExtraText(CHANGED["body"], "old.py"), declared)
    assert [chunk.path for chunk in automatic.extra] == [
        "new.py",
        "old.py",
        "file:///usr/lib/python3/abs.py",
        "lib/units.py",
    ]
    for request in completer.requests:
        assert (request.prefix, request.suffix) == (PREFIX, SUFFIX) and request.infill
        assert (request.path, request.language) == ("shapes.py", "python")
    assert (automatic.sampling.temperature, manual.sampling.temperature) == (0.1, 0.8)


def test_the_text_is_what_the_client_inserts() -> None:
    """Where it has taken `)` out of the suffix, and replaces it, the text writes it."""
    segments: Json = {"prefix": "x = area(2, ", "suffix": "\ny = 3\n"}
    request = CompletionRequest("x = area(2, ", "\ny = 3\n", infill=True)
    model = answering_model(request, "3)\ny = 3\n")
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        answer = http.post("/v1/completions", json={"segments": segments, "temperature": 0}).json()
    assert answer["choices"][0]["text"] == "3)"
    assert answer["suture"]["finish"] == "suffix"


@pytest.mark.parametrize("where", ["declarations", "relevant_snippets_from_changed_files"])
def test_secrets_in_snippets_are_left_out_and_counted(where: str) -> None:
    snippets = [{"filepath": ".env", "body": "KEY=1\n", "score": 1.0}, DECLARATION]
    segments = {"prefix": "x = ", "suffix": "", where: snippets}
    model = answering_model(CompletionRequest("x = ", infill=True), "1")
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        answer = http.post("/v1/completions", json={"segments": segments}).json()
        in_secret = {"segments": segments | {"filepath": "site/.env"}}
        kept = http.post("/v1/completions", json=in_secret).json()
    assert answer["suture"]["prompt"]["excluded"] == 1
    assert (kept["choices"][0]["text"], kept["suture"]["reason"]) == ("", "EXCLUDED")


def test_debug_data_is_there_where_tabby_has_it() -> None:
    http = on(FakeCompleter())
    options = {"debug_options": {"disable_retrieval_augmented_code_completion": True}}
    answer = http.post("/v1/completions", json=RECORDED | options).json()
    assert answer["debug_data"] == {}


def test_token_ids_are_in_our_object() -> None:
    http = on(FakeCompleter(says("a", "b")))
    answer = http.post("/v1/completions", json=RECORDED | {"return_tokens": True}).json()
    assert answer["suture"]["tokens"] == {"ids": [0, 1]}


def test_openais_requests_on_the_same_path_are_answered_as_before() -> None:
    http = on(FakeCompleter(says("a")))
    answer = http.post("/v1/completions", json={"prompt": "x", "segments": None}).json()
    assert answer["object"] == "text_completion" and answer["choices"][0]["finish_reason"]
    missing = http.post("/v1/completions", json={}).json()
    assert missing["error"]["param"] == "prompt"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Loading("Loading model", retry_after=2), 503),
        (QueueFull("full"), 503),
        (InfillUnsupported("no sentinels"), 501),
    ],
)
def test_errors_have_their_status(error: SutureError, status: int) -> None:
    """All that Tabby's clients read of one; 501 is Tabby's for a server without completion."""
    response = on(FakeCompleter([error])).post("/v1/completions", json=RECORDED)
    assert response.status_code == status
    assert response.json()["error"]["message"] == str(error)
    assert ("retry-after" in response.headers) == (status == 503)


def test_without_the_key_all_is_401_and_from_elsewhere_403(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("abc\n")
    http = on(FakeCompleter(), api_key_file=keys)
    event = EVENTS[0][1] | {"completion_id": "c", "choice_index": 0}
    asked: list[tuple[str, str, Json | None]] = [
        ("POST", "/v1/completions", RECORDED),
        ("POST", "/v1/events", event),
        ("GET", "/v1/health", None),
        ("GET", "/v1beta/server_setting", None),
    ]
    for method, path, body in asked:
        for key in (None, "Bearer ", "Bearer abd"):
            headers = {} if key is None else {"Authorization": key}
            refused = http.request(method, path, json=body, headers=headers)
            assert refused.status_code == 401
            assert refused.json()["error"]["type"] == "invalid_request_error"
            assert refused.headers["www-authenticate"].startswith("Bearer")
        known = http.request(method, path, json=body, headers={"Authorization": "Bearer abc"})
        assert known.status_code == 200
        strange = on(FakeCompleter()).request(method, path, json=body, headers={"Host": "evil.io"})
        assert strange.status_code == 403 and "error" in strange.json()


def test_health_says_what_clients_read() -> None:
    http = on(FakeCompleter())
    for health in (http.get("/v1/health"), http.post("/v1/health")):  # older agents ask with POST
        assert health.status_code == 200
        answer = health.json()
        assert answer["model"] == "toy" and answer["device"] == "cpu"
        assert answer["webserver"] is False and answer["cpu_count"] >= 1
        assert all(isinstance(answer[key], str) for key in ("arch", "cpu_info", "suture"))
        assert isinstance(answer["cuda_devices"], list)
        version = answer["version"]
        assert version.keys() == {"build_date", "build_timestamp", "git_sha", "git_describe"}
        # A number would be compared with Tabby's: below 0.9.0 the agent asks for no setting.
        assert not re.search(r"\d", version["git_describe"])
    setting = http.get("/v1beta/server_setting").json()
    assert setting == {"disable_client_side_telemetry": True}


@pytest.mark.parametrize("state", ["loading", "stalled"])
def test_health_is_503_where_nothing_can_be_answered(state: State) -> None:
    response = on(FakeCompleter(loading=state)).get("/v1/health")
    assert response.status_code == 503 and "retry-after" in response.headers
    assert "error" in response.json()


def test_events_are_counted_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    http = on(FakeCompleter())
    assert shown_texts(http) == {}
    for query, fields in [*EVENTS, EVENTS[0]]:
        event = {"completion_id": "secret-id", "choice_index": 0} | fields
        response = http.post(f"/v1/events{query}", json=event)
        assert (response.status_code, response.content) == (200, b"")
    page = http.get("/metrics").text
    assert shown_texts(http) == {
        "view all": 3,
        "select all": 1,
        "select line": 1,
        "dismiss all": 1,
    }
    assert "secret-id" not in page and "secret-id" not in caplog.text


BAD_EVENTS: list[Any] = [
    {},
    [],
    None,
    {"type": "view"},
    {"type": "view", "completion_id": "c"},
    {"type": "look", "completion_id": "c", "choice_index": 0},
    {"type": None, "completion_id": "c", "choice_index": 0},
    {"type": "view", "completion_id": 1, "choice_index": 0},
    {"type": "view", "completion_id": "\ud800", "choice_index": 0},
    {"type": "view", "completion_id": "c", "choice_index": -1},
    {"type": "view", "completion_id": "c", "choice_index": "0"},
    {"type": "view", "completion_id": "c", "choice_index": 0, "elapsed": -1},
    {"type": "view", "completion_id": "c", "choice_index": 0, "view_id": []},
]


@pytest.mark.parametrize("event", BAD_EVENTS)
def test_an_event_that_is_none_is_refused_and_not_counted(event: Any) -> None:
    http = on(FakeCompleter())
    response = http.post("/v1/events", content=json.dumps(event))
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert shown_texts(http) == {}


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000, b'{"segments": NaN}', b'"x"'])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/events"])
def test_a_body_that_is_no_json_object_is_refused(path: str, raw: bytes) -> None:
    response = on(FakeCompleter()).post(path, content=raw)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/v1/events", "/v1/completions"])
def test_a_body_that_is_too_large_is_refused(path: str) -> None:
    raw = b'{"segments": {"prefix": "' + b"x" * (33 * 2**20) + b'"}}'
    response = on(FakeCompleter()).post(path, content=raw)
    assert response.status_code == 413 and "error" in response.json()


def test_a_wrong_method_is_405() -> None:
    http = on(FakeCompleter())
    for method, path in (
        ("GET", "/v1/events"),
        ("GET", "/v1/completions"),
        ("PUT", "/v1/health"),
        ("POST", "/v1beta/server_setting"),
    ):
        response = http.request(method, path)
        assert response.status_code == 405 and "error" in response.json()


FIELDS = ["language", "user", "temperature", "seed", "mode", "debug_options", "shape", "unknown"]
SEGMENTS = [*AUTOMATIC["segments"], "clipboard", "edit_history", "unknown"]
HTTP = on(FakeCompleter())


@hypothesis_settings(max_examples=150, deadline=None)
@given(
    odd=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
    segments=JSON | st.dictionaries(st.sampled_from(SEGMENTS), JSON, max_size=3),
)
def test_any_json_in_any_fields_is_answered(odd: Json, segments: Any) -> None:
    if isinstance(segments, dict):
        segments = AUTOMATIC["segments"] | segments
    body = AUTOMATIC | odd | {"segments": segments}
    response = HTTP.post("/v1/completions", content=json.dumps(body))
    if response.status_code == 200:
        assert response.json()["choices"][0].keys() == {"index", "text"}
    else:
        assert 400 <= response.status_code < 500
        assert len(response.json()["error"]["message"]) < 400
