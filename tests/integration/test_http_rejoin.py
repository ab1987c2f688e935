"""Answers that rejoin the text after the cursor, over HTTP: whole, streamed, and typed through."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from support.answering import answering_model
from support.http_server import Json, client, events, serving, settings
from support.scripted_completer import scripted
from suture.server.request import CompletionRequest

PREFIX, SUFFIX = "def f(w, h):\n    x = ", "\n    return x\n\nprint(f)\n"
SAYS = "w * h\n    y = x\n    return x\n\nprint(f)\n"
TEXT = "w * h\n    y = x"
BODY: Json = {
    "input_prefix": PREFIX,
    "input_suffix": SUFFIX,
    "temperature": 0,
    "n_predict": 60,
    "return_tokens": True,
}


def ask(says: str, path: str, body: Json, suffix: str = SUFFIX) -> httpx2.Response:
    hole = CompletionRequest(PREFIX, suffix, infill=True, max_tokens=60)
    with (
        scripted(answering_model(hole, says), settings()) as completer,
        serving(completer) as url,
        client(url) as http,
    ):
        return http.post(path, json=body)


def test_infill_ends_before_the_suffix() -> None:
    answer = ask(SAYS, "/infill", BODY).json()
    assert (answer["content"], answer["suture"]["finish"]) == (TEXT, "suffix")
    assert (answer["stop_type"], answer["stopping_word"]) == ("eos", "")
    assert answer["suture"]["reason"] is None
    assert answer["suture"]["edit"] == {"delete_after": 0, "text": TEXT}


def test_a_stream_shows_nothing_that_is_taken_back() -> None:
    response = ask(SAYS, "/infill", BODY | {"stream": True})
    told: list[Any] = [json.loads(event) for event in events(response)]
    assert "".join(event["content"] for event in told) == TEXT
    assert len(told) > 3 and told[-1]["suture"]["finish"] == "suffix"


def test_openai_calls_it_a_stop() -> None:
    body = {"prompt": PREFIX, "suffix": SUFFIX, "temperature": 0, "max_tokens": 60}
    answer = ask(SAYS, "/v1/completions", body).json()
    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == (TEXT, "stop")
    assert answer["suture"]["finish"] == "suffix"


@pytest.mark.parametrize("says", [SUFFIX, "\n    return x\n\nprint"])
def test_an_answer_that_is_the_suffix_says_so(says: str) -> None:
    answer = ask(says, "/infill", BODY).json()
    assert (answer["content"], answer["suture"]["reason"]) == ("", "DUPLICATE_SUFFIX")


def test_raw_text_is_the_models() -> None:
    answer = ask(SAYS, "/infill", BODY | {"shape": "raw"}).json()
    assert (answer["content"], answer["suture"]["finish"]) == (SAYS, "eos")


def test_several_candidates_end_there_each() -> None:
    answers = ask(SAYS, "/infill", BODY | {"n_cmpl": 3, "temperature": 0.01}).json()
    assert [answer["content"] for answer in answers] == [TEXT] * 3


def test_what_was_typed_of_it_leaves_the_rest() -> None:
    hole = CompletionRequest(PREFIX, SUFFIX, infill=True, max_tokens=60)
    body = {key: BODY[key] for key in BODY if key != "return_tokens"} | {"session": "s"}
    with (
        scripted(answering_model(hole, SAYS), settings()) as completer,
        serving(completer) as url,
        client(url) as http,
    ):
        first = http.post("/infill", json=body | {"seq": 1}).json()
        typed = {"input_prefix": PREFIX + TEXT[:9], "seq": 2}
        rest = http.post("/infill", json=body | typed).json()
    assert first["content"] == TEXT
    assert (rest["content"], rest["suture"]["finish"]) == (TEXT[9:], "suffix")
    assert rest["suture"]["prompt"]["evaluated"] == 0
