"""Log probabilities, candidates in their order and the least confidence, over HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from support.answering import VOCABULARY, answering_model, hesitating_model
from support.fake_completer import FakeCompleter
from support.http_server import Json, client, events, serving, settings
from support.scripted_completer import scripted
from suture.server.engine.scripted import Model, random_model
from suture.server.request import (
    Alternative,
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    ScoredToken,
)

PREFIX, SUFFIX = "def f(w, h):\n    x = ", "\n    return x\n"
HOLE = CompletionRequest(PREFIX, SUFFIX, infill=True, max_tokens=60)
INFILL: Json = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "temperature": 0, "n_predict": 60}
OPENAI: Json = {"prompt": PREFIX, "suffix": SUFFIX, "temperature": 0, "max_tokens": 60}

HALVES = [
    ScoredToken(7, b" a", -0.5, 0, (Alternative(7, b" a", -0.5), Alternative(8, b" b", -1.5))),
    ScoredToken(9, b"\xc3", -0.25, 2, (Alternative(9, b"\xc3", -0.25),)),
    ScoredToken(10, b"\xa9", -math.inf, 2, (Alternative(11, b"\xa9x", -0.1),)),
]
SCRIPT = [
    CompletionChunk(" a", (7,), scores=tuple(HALVES[:1])),
    CompletionChunk("é", (9, 10), scores=tuple(HALVES[1:])),
    CompletionChunk("", (), CompletionResult("eos", confidence=0.75)),
]
ITEMS: list[Json] = [
    {
        "id": 7,
        "token": " a",
        "bytes": [32, 97],
        "logprob": -0.5,
        "top_logprobs": [
            {"id": 7, "token": " a", "bytes": [32, 97], "logprob": -0.5},
            {"id": 8, "token": " b", "bytes": [32, 98], "logprob": -1.5},
        ],
    },
    {
        "id": 9,
        "token": "",
        "bytes": [0xC3],
        "logprob": -0.25,
        "top_logprobs": [{"id": 9, "token": "", "bytes": [0xC3], "logprob": -0.25}],
    },
    {
        "id": 10,
        "token": "",
        "bytes": [0xA9],
        "logprob": None,
        "top_logprobs": [{"id": 11, "token": "x", "bytes": [0xA9, 0x78], "logprob": -0.1}],
    },
]


@contextmanager
def served(model: Model, **flags: object) -> Iterator[httpx2.Client]:
    with (
        scripted(model, settings(**flags)) as completer,
        serving(completer, **flags) as url,
        client(url) as http,
    ):
        yield http


def read(response: httpx2.Response) -> list[Json]:
    assert response.status_code == 200, response.text
    return [json.loads(event) for event in events(response) if event != "[DONE]"]


def test_llama_cpps_list_has_text_and_bytes_of_each_token() -> None:
    body = INFILL | {"n_probs": 2}
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        answer = http.post("/infill", json=body).json()
        told = read(http.post("/infill", json=body | {"stream": True}))
        without = http.post("/infill", json=INFILL | {"n_probs": 0}).json()
    assert answer["completion_probabilities"] == ITEMS
    assert [part["completion_probabilities"] for part in told] == [ITEMS[:1], ITEMS[1:], []]
    assert "completion_probabilities" not in without
    assert answer["suture"]["confidence"] == 0.75
    assert answer["generation_settings"]["n_probs"] == 2


def test_openais_lists_are_the_legacy_ones() -> None:
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        answer = http.post("/v1/completions", json=OPENAI | {"logprobs": 2}).json()
        told = read(http.post("/v1/completions", json=OPENAI | {"logprobs": 2, "stream": True}))
        bare = http.post("/v1/completions", json=OPENAI | {"logprobs": 0}).json()
        without = http.post("/v1/completions", json=OPENAI | {"logprobs": False}).json()
    lists = answer["choices"][0]["logprobs"]
    assert lists == {
        "tokens": [" a", "bytes:\\xc3", "bytes:\\xa9"],
        "token_logprobs": [-0.5, -0.25, None],
        "top_logprobs": [
            {" a": -0.5, " b": -1.5},
            {"bytes:\\xc3": -0.25},
            {"bytes:\\xa9\\x78": -0.1, "bytes:\\xa9": None},
        ],
        "text_offset": [0, 2, 2],
        "bytes": [[32, 97], [0xC3], [0xA9]],
    }
    streamed = [event["choices"][0]["logprobs"] for event in told]
    assert streamed[-1] is None
    for key, values in lists.items():
        assert [value for part in streamed[:-1] for value in part[key]] == values
    assert bare["choices"][0]["logprobs"] == lists | {"top_logprobs": None}
    assert without["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/infill", INFILL, "n_probs"),
        ("/v1/completions", OPENAI, "logprobs"),
    ],
)
@pytest.mark.parametrize("value", [-1, 101, 1.5, "3", True, [], 1e300])
def test_a_number_of_alternatives_out_of_range_names_the_range(
    path: str, body: Json, field: str, value: object
) -> None:
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        response = http.post(path, json=body | {field: value})
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert field in message and "from 0 to 100" in message


@pytest.mark.parametrize(("path", "body"), [("/infill", INFILL), ("/v1/completions", OPENAI)])
@pytest.mark.parametrize("value", [-0.1, 1.1, "0.5", True])
def test_a_least_confidence_out_of_range_is_refused(path: str, body: Json, value: object) -> None:
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        response = http.post(path, json=body | {"min_confidence": value})
    assert response.status_code == 400
    assert "min_confidence" in response.json()["error"]["message"]


def test_probabilities_after_sampling_are_refused_where_there_would_be_any() -> None:
    body = INFILL | {"post_sampling_probs": True}
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        assert http.post("/infill", json=body).status_code == 200
        response = http.post("/infill", json=body | {"n_probs": 1})
    assert response.status_code == 400 and "post_sampling_probs" in response.text


def test_the_lists_match_the_text_and_each_other() -> None:
    model = answering_model(HOLE, "w * h\n    return x\n")
    with served(model) as http:
        answer = http.post("/infill", json=INFILL | {"n_probs": 3}).json()
        told = read(http.post("/infill", json=INFILL | {"n_probs": 3, "stream": True}))
        lists = http.post("/v1/completions", json=OPENAI | {"logprobs": 3}).json()
    items = answer["completion_probabilities"]
    assert answer["content"] == "w * h"
    assert b"".join(bytes(item["bytes"]) for item in items) == b"w * h"
    assert [item for part in told for item in part["completion_probabilities"]] == items
    logprobs = lists["choices"][0]["logprobs"]
    assert logprobs["tokens"] == [item["token"] for item in items]
    assert logprobs["token_logprobs"] == pytest.approx([item["logprob"] for item in items])
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4][: len(items)]
    assert all(len(item["top_logprobs"]) == 3 for item in items)
    mean = sum(item["logprob"] for item in items) / len(items)
    assert answer["suture"]["confidence"] == pytest.approx(math.exp(mean))


def test_candidates_come_ranked_and_each_once_unless_they_are_streamed() -> None:
    body = INFILL | {"n_cmpl": 6, "temperature": 2, "seed": 1, "n_predict": 2}
    openai = {"prompt": PREFIX, "suffix": SUFFIX, "n": 6, "temperature": 2, "seed": 1}
    # The defaults of the dialects differ.
    openai |= {"max_tokens": 2, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    openai |= {"on_incomplete": "drop"}
    with served(answering_model(HOLE, "w * h")) as http:
        same = http.post("/infill", json=body | {"temperature": 0}).json()
    assert [(one["index"], one["content"]) for one in same] == [(0, "w")]
    with served(hesitating_model(random_model(VOCABULARY.n_vocab), lambda so_far: 0.5)) as http:
        ranked = http.post("/infill", json=body).json()
        streamed = read(http.post("/infill", json=body | {"stream": True}))
        choices = http.post("/v1/completions", json=openai).json()
    texts = [one["content"] for one in ranked]
    assert len(texts) == len(set(texts)) <= 6
    assert [one["index"] for one in ranked] == list(range(len(ranked)))
    sure = [one["suture"]["confidence"] for one in ranked if one["content"]]
    assert sure == sorted(sure, reverse=True) and all(0 < one <= 1 for one in sure)
    by_index = {part["index"]: "" for part in streamed}
    for part in streamed:
        by_index[part["index"]] += part["content"]
    assert set(by_index) == set(range(6)) and set(by_index.values()) == set(texts)
    assert [choice["text"] for choice in choices["choices"]] == texts
    assert [choice["index"] for choice in choices["choices"]] == list(range(len(texts)))
    # What was generated counts, also for those that came to the same text.
    assert choices["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("streamed", [False, True])
def test_low_confidence_is_an_empty_answer_that_says_so(streamed: bool) -> None:
    model = hesitating_model(answering_model(HOLE, "w * h"), lambda so_far: 0.3)
    body = INFILL | {"min_confidence": 0.5, "stream": streamed}
    with served(model) as http:
        response = http.post("/infill", json=body)
    last = read(response)[-1] if streamed else response.json()
    assert last["content"] == "" and last["suture"]["reason"] == "LOW_CONFIDENCE"
    assert last["suture"]["rules"] == ["unsure"]
    assert last["suture"]["confidence"] == pytest.approx(0.3, abs=1e-3)
    if streamed:
        assert all(part["content"] == "" for part in read(response))


def test_the_servers_default_holds_where_a_request_has_none() -> None:
    model = hesitating_model(answering_model(HOLE, "w * h"), lambda so_far: 0.3)
    with served(model, min_confidence="0.5") as http:
        assert http.get("/v1/status").json()["settings"]["min_confidence"] == 0.5
        answer = http.post("/infill", json=INFILL).json()
        assert answer["suture"]["reason"] == "LOW_CONFIDENCE"
        shown = http.post("/infill", json=INFILL | {"min_confidence": 0}).json()
        assert (shown["content"], shown["suture"]["confidence"]) == ("w * h", None)


def test_what_a_deadline_cuts_off_has_no_entry() -> None:
    late = CompletionResult("deadline", "DEADLINE")
    scores = tuple(ScoredToken(i, b"x", -1.0, offset) for i, offset in enumerate((0, 1, 2, 3)))
    script = [CompletionChunk("a\nb c", (1, 2, 3, 4), late, scores=scores)]
    with serving(FakeCompleter(script)) as url, client(url) as http:
        answer = http.post("/infill", json=INFILL | {"n_probs": 1}).json()
    assert answer["content"] == "a\n"
    assert [item["id"] for item in answer["completion_probabilities"]] == [0, 1]
