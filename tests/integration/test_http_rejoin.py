"""Answers that rejoin the text after the cursor, over HTTP: whole, streamed, and typed through."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from support.answering import answering_model
from support.http_server import Json, client, events, serving, settings
from support.scripted_completer import scripted
from suture.server.request import CompletionRequest, Layout

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
    # All came to one text, and so are one.
    assert [(answer["index"], answer["content"]) for answer in answers] == [(0, TEXT)]


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


@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
@pytest.mark.parametrize(
    ("says", "text"), [("\n    y = 2\n    z = 3", "\n    y = 2\r\n    z = 3\r"), (" + 2", "")]
)
def test_an_answer_between_cr_and_lf_breaks_no_line_end(
    layout: Layout, says: str, text: str
) -> None:
    prefix, suffix = "def f(w, h):\r\n    x = 1\r", "\n    return x\r\n"
    hole = CompletionRequest(prefix, suffix, infill=True, max_tokens=60, layout=layout)
    body = {"input_prefix": prefix, "input_suffix": suffix, "temperature": 0, "layout": layout}
    with (
        scripted(answering_model(hole, says), settings()) as completer,
        serving(completer) as url,
        client(url) as http,
    ):
        answer = http.post("/infill", json=body).json()
        streamed = events(http.post("/infill", json=body | {"stream": True}))
    assert answer["content"] == "".join(json.loads(event)["content"] for event in streamed) == text
    assert answer["suture"]["reason"] == (None if text else "EMPTY")
    assert "\r" not in (prefix + text + suffix).replace("\r\n", "")
