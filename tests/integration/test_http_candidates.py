"""Several candidates of one request, and what a deadline leaves, in both dialects."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx2
import pytest

from support.client_requests import recorded_body
from support.fake_completer import FakeCompleter
from support.http_server import Json, client, events, serving, settings
from support.scripted_completer import VOCABULARY, scripted
from suture.server.engine.scripted import random_model
from suture.server.request import CompletionChunk, CompletionResult, Edit, PromptReport

RESULT = CompletionResult("eos", completion_tokens=2, prompt=PromptReport(9, 4, 5, "psm"))
# They come in turns, and the first does not end first.
SCRIPT = [
    CompletionChunk("a", (1,)),
    CompletionChunk("b", (2,), index=1),
    CompletionChunk("a", (3,)),
    CompletionChunk("B", (4,), replace(RESULT, finish="length"), index=1),
    CompletionChunk("A", (5,), RESULT),
]
INFILL: Json = {"input_prefix": "x", "input_suffix": "y", "n_cmpl": 2, "return_tokens": True}
COMPLETION: Json = {"prompt": "x", "n": 2, "return_tokens": True}


def read(response: httpx2.Response) -> list[Json]:
    return [json.loads(event) for event in events(response) if event != "[DONE]"]


def test_infill_answers_with_an_array() -> None:
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        answers = http.post("/infill", json=INFILL).json()

    assert [(a["index"], a["content"], a["tokens"]) for a in answers] == [
        (0, "aaA", [1, 3, 5]),
        (1, "bB", [2, 4]),
    ]
    assert [a["suture"]["finish"] for a in answers] == ["eos", "length"]


def test_infill_streams_each_under_its_index() -> None:
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        told = read(http.post("/infill", json=INFILL | {"stream": True}))

    assert [(e["index"], e["content"], e["stop"]) for e in told] == [
        (0, "a", False),
        (1, "b", False),
        (0, "a", False),
        (1, "B", True),
        (0, "A", True),
    ]


def test_llama_vscodes_three_candidates_are_other_texts() -> None:
    body = recorded_body("llama_vscode", "a key, three candidates")
    # The clock of a busy machine has no part in it.
    asked = body | {"seed": 1, "n_predict": 12, "t_max_predict_ms": 0}
    model = random_model(VOCABULARY.n_vocab, seed=3)
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        several = [answer["content"] for answer in http.post("/infill", json=asked).json()]
        alone = http.post("/infill", json=asked | {"n_cmpl": 1}).json()["content"]
    assert alone in several and len(set(several)) > 1


def test_raw_candidates_are_samples_of_which_none_is_left_out() -> None:
    script = [
        CompletionChunk("b", (2,), replace(RESULT, confidence=0.1), index=1),
        CompletionChunk("a", (1,), replace(RESULT, confidence=0.5)),
        CompletionChunk("b", (3,), replace(RESULT, confidence=0.9), index=2),
    ]
    with serving(FakeCompleter(script)) as url, client(url) as http:
        raw = http.post("/v1/completions", json={"prompt": "x", "n": 3}).json()
        shaped = http.post("/v1/completions", json={"prompt": "x", "n": 3, "suffix": "y"}).json()

    assert [choice["text"] for choice in raw["choices"]] == ["a", "b", "b"]
    assert [choice["text"] for choice in shaped["choices"]] == ["a", "b"]


def test_openai_has_a_choice_each() -> None:
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        answer = http.post("/v1/completions", json=COMPLETION).json()

    assert [(c["index"], c["text"], c["finish_reason"]) for c in answer["choices"]] == [
        (0, "aaA", "stop"),
        (1, "bB", "length"),
    ]
    assert [c["suture"]["finish"] for c in answer["choices"]] == ["eos", "length"]
    assert "suture" not in answer
    assert answer["usage"]["prompt_tokens"] == 9 and answer["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("usage", [True, False])
def test_openai_streams_choices_and_ends_once(usage: bool) -> None:
    body = COMPLETION | {"stream": True, "stream_options": {"include_usage": usage}}
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        response = http.post("/v1/completions", json=body)
        told = read(response)

    assert response.text.count("[DONE]") == 1 and response.text.endswith("[DONE]\n\n")
    choices = [event["choices"][0] for event in told if event["choices"]]
    assert [(c["index"], c["text"], c["finish_reason"]) for c in choices] == [
        (0, "a", None),
        (1, "b", None),
        (0, "a", None),
        (1, "B", "length"),
        (0, "A", "stop"),
    ]
    assert all("suture" in choice for choice in choices[3:])
    assert len(told) == 5 + usage
    if usage:
        assert told[-1]["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(
    ("text", "given"),
    [("one\ntw", "one\n"), ("one\r\ntw", "one\r\n"), ("on", "on"), ("one\n", "one\n")],
)
def test_a_deadline_leaves_whole_lines_if_there_is_one(text: str, given: str) -> None:
    edit = Edit(1, text + ")")
    late = CompletionResult("deadline", "DEADLINE", completion_tokens=3, edit=edit)
    script = [CompletionChunk(text[:2], (1,)), CompletionChunk(text[2:], (2,), late)]
    body = {"input_prefix": "x", "input_suffix": "y"}
    with serving(FakeCompleter(script)) as url, client(url) as http:
        answer = http.post("/infill", json=body).json()
        raw = http.post("/infill", json=body | {"shape": "raw"}).json()

    assert (answer["content"], answer["suture"]["edit"]["text"]) == (given, given)
    assert raw["content"] == text
