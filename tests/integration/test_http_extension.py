"""The fields that decide on healing, over HTTP: what they do, and what a wrong one is answered."""

from __future__ import annotations

import json

import pytest

from support.fake_completer import FakeCompleter
from support.http_server import Json, client, events, serving, settings
from support.scripted_completer import VOCABULARY, scripted
from suture.server.engine.scripted import speaking_model

BODIES: dict[str, Json] = {
    "/infill": {"input_prefix": "const userNa", "input_suffix": ";\n", "temperature": 0},
    "/v1/completions": {"prompt": "const userNa", "suffix": ";\n", "temperature": 0},
}
# What it goes on with behind a prefix that ends with `const`, and the suffix.
MOVED = speaking_model(VOCABULARY, b"const;\n userName = ()")

# Wrong values, and what has to be named.
WRONG: dict[str, tuple[list[object], str]] = {
    "healing": (["magic", "", "EXACT", 1], "'exact', 'recursive' or 'off'"),
    "layout": (["plain", ["psm"], {}], "'auto', 'psm', 'spm' or 'anchor'"),
    "fim_boundary": (["mix", "cut", True], "'auto', 'keep' or 'move'"),
    "give_back": (
        [0, 9, -1, 1.5, "1", "all", False, [1]],
        '"stable" or a number of tokens from 1 to 8',
    ),
    "grammar_scope": (["all", 0], "'output' or 'prefill'"),
}


def content(path: str, answer: Json) -> str:
    text = answer["content"] if path == "/infill" else answer["choices"][0]["text"]
    assert isinstance(text, str)
    return text


def refusal(path: str, answer: Json, field: str) -> str:
    """The message of a 400, which has its dialect's shape."""
    error = answer["error"]
    assert error["type"] == "invalid_request_error"
    if path == "/infill":
        assert error["code"] == 400
    else:
        assert error["param"] == field and error["code"] is None
    message = error["message"]
    assert isinstance(message, str) and message.startswith(f'"{field}" ')
    return message


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_value_that_does_not_exist_is_answered_with_those_that_do(
    path: str, streamed: bool
) -> None:
    completer = FakeCompleter()
    with serving(completer) as url, client(url) as http:
        for field, (values, allowed) in WRONG.items():
            for value in values:
                response = http.post(path, json=BODIES[path] | {field: value, "stream": streamed})
                assert response.status_code == 400, (field, value)
                assert allowed in refusal(path, response.json(), field)
    assert completer.requests == []


def test_given_back_line_ends_are_said_as_the_model_is_shown_them() -> None:
    body = {"input_prefix": "def x = ()\r\n    ret", "input_suffix": "", "give_back": 8}
    body["fim_boundary"] = "move"
    with scripted(MOVED, settings()) as completer, serving(completer) as url, client(url) as http:
        healing = http.post("/infill", json=body).json()["suture"]["healing"]
    assert "\n" in healing["pending"] and "\r" not in healing["pending"]
    assert bytes(healing["pending_bytes"]) == healing["pending"].encode()


@pytest.mark.parametrize("path", BODIES)
def test_null_is_the_default(path: str) -> None:
    completer = FakeCompleter()
    nulls = dict.fromkeys(WRONG)
    with serving(completer) as url, client(url) as http:
        assert http.post(path, json=BODIES[path]).status_code == 200
        assert http.post(path, json=BODIES[path] | nulls).status_code == 200
    plain, with_nulls = completer.requests
    assert plain == with_nulls
    assert (plain.healing, plain.layout, plain.fim_boundary) == ("exact", "auto", "auto")
    assert (plain.give_back, plain.grammar_scope) == (None, "output")


@pytest.mark.parametrize("path", BODIES)
def test_a_scope_without_a_grammar_and_a_boundary_without_a_hole_change_nothing(path: str) -> None:
    completer = FakeCompleter()
    fields = {"grammar_scope": "prefill", "fim_boundary": "move"}
    with serving(completer) as url, client(url) as http:
        assert http.post(path, json=BODIES[path] | fields).status_code == 200
        open_end = {"suffix": ""} if path != "/infill" else {"input_suffix": ""}
        assert http.post(path, json=BODIES[path] | fields | open_end).status_code == 200
    assert {request.fim_boundary for request in completer.requests} == {"move"}
    assert {request.grammar_scope for request in completer.requests} == {"prefill"}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_moved_tail_is_said_first_and_is_no_output(path: str, streamed: bool) -> None:
    body = BODIES[path] | {"fim_boundary": "move", "stream": streamed, "max_tokens": 9}
    at = settings(healing="recursive")
    with scripted(MOVED, at) as completer, serving(completer) as url, client(url) as http:
        response = http.post(path, json=body)
        assert response.status_code == 200
        if streamed:
            told = [json.loads(event) for event in events(response) if event != "[DONE]"]
            text, answer = "".join(content(path, event) for event in told), told[-1]
        else:
            answer = response.json()
            text = content(path, answer)
    assert text == "me = ()"
    assert answer["suture"]["healing"]["pending"] == " userNa"
    assert answer["suture"]["healing"]["dropped_tokens"] == 2
    assert answer["suture"]["prompt"]["layout"] == "psm"


@pytest.mark.parametrize("path", BODIES)
def test_a_kept_tail_is_not_healed(path: str) -> None:
    said = speaking_model(VOCABULARY, b"const userNa;\nme = ()")
    with scripted(said, settings()) as completer, serving(completer) as url, client(url) as http:
        for boundary in ("keep", "auto"):
            of_psm = {"fim_boundary": boundary, "layout": "psm"}
            body = BODIES[path] | of_psm | {"max_tokens": 9}
            answer = http.post(path, json=body).json()
            assert content(path, answer) == "me = ()"
            assert answer["suture"]["healing"]["level"] == "none"
            assert answer["suture"]["healing"]["pending_bytes"] == []


HALF_OF_E = 0xC3
ARRAYS: list[object] = [
    [99, 111, HALF_OF_E],
    [HALF_OF_E],
    [[99, HALF_OF_E]],
    ["const", HALF_OF_E],
    [HALF_OF_E, "const"],
    [-1],
    [10**30],
    [],
]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("ids", ARRAYS)
def test_ids_that_are_no_text_are_refused_and_the_next_request_served(
    path: str, ids: object
) -> None:
    """Such as end in half a character, as llama.cpp#8691 had it: prompts are text."""
    with scripted(MOVED, settings()) as completer, serving(completer) as url, client(url) as http:
        response = http.post(path, json=BODIES[path] | {"prompt": ids})
        assert response.status_code == 400
        message = refusal(path, response.json(), "prompt")
        assert ("must be a string" if path == "/infill" else "must ") in message
        if path == "/infill":
            response = http.post(path, json=BODIES[path] | {"input_prefix": ids})
            assert "must be a string" in refusal(path, response.json(), "input_prefix")
        assert http.post(path, json=BODIES[path]).status_code == 200
