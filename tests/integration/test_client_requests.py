"""Clients' own requests, field by field: what they become, and how the answers are read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support.client_requests import FOLDER, all_requests, answers, at, is_of, understood
from support.fake_completer import MODEL, FakeCompleter, says
from support.http_server import Json, client, serving
from suture.server.request import CompletionChunk, CompletionResult, PromptReport, Timings

REQUESTS = all_requests()
END = CompletionChunk(
    "",
    result=CompletionResult(
        "eos",
        completion_tokens=2,
        prompt=PromptReport(60, 40, 20, "psm"),
        timings=Timings(prompt_ms=50.0, predicted_ms=160.5),
    ),
)
TEXT = "width * height"


@pytest.mark.parametrize(
    "request_", [one for _, one in REQUESTS], ids=[name for name, _ in REQUESTS]
)
def test_a_clients_request_is_answered_as_the_client_reads_it(request_: Json) -> None:
    said = says("width * ", "height", finish=END)
    n = request_.get("becomes", {}).get("n", 1)
    script = [replace(chunk, index=index) for index in range(n) for chunk in said]
    completer = FakeCompleter(script, model=replace(MODEL, family="qwen2.5-coder"))
    with serving(completer) as url, client(url) as http:
        response = http.request(
            request_.get("method", "POST"),
            request_["path"],
            headers=request_.get("headers", {}),
            content=json.dumps(request_["body"]) if "body" in request_ else None,
        )
    assert response.status_code == request_.get("status", 200), response.text
    if "becomes" in request_:
        [asked] = completer.requests
        assert understood(asked, request_["becomes"]) == request_["becomes"]
    told = answers(response.content, request_.get("framing", "json"))
    if "text" in request_:
        assert "".join(at(one, request_["text"]) or "" for one in told) == TEXT
    for place, kind in request_.get("reads", []):
        assert is_of(kind, at(told[-1], place)), (place, told[-1])


def test_every_recording_says_of_what_it_is() -> None:
    for path in FOLDER.glob("*.json"):
        recording = json.loads(path.read_text("utf-8"))
        assert {"client", "version", "how", "requests"} == recording.keys(), path.name
        names = [one["name"] for one in recording["requests"]]
        assert len(names) == len(set(names)) > 0
