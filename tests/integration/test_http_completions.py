"""Completions over a real socket, in both dialects."""

from __future__ import annotations

import json
import math
from typing import get_args

import httpx2
import pytest

from support.fake_completer import MODEL, FakeCompleter, says
from support.http_server import Json, client, events, serving
from suture.server.errors import (
    EngineError,
    InfillUnsupported,
    Loading,
    QueueFull,
    SutureError,
    Unavailable,
)
from suture.server.request import (
    CompletionChunk,
    CompletionResult,
    Edit,
    ExtraText,
    FinishReason,
    Healing,
    HealingReport,
    PromptReport,
    SamplingParams,
    StreamReport,
    Timings,
)

INFILL: Json = {"input_prefix": "for i in ", "input_suffix": ":\n", "prompt": "ra"}
COMPLETION: Json = {"model": "toy", "prompt": "for i in ra", "suffix": ":\n"}

RESULT = CompletionResult(
    "stop",
    stop_match="\n",
    completion_tokens=3,
    healing=HealingReport("recursive", 1, b"ra\xf0", 4, 0.25, -1.5),
    prompt=PromptReport(20, 15, 5, "psm", True, 2),
    stream=StreamReport(2, 3),
    timings=Timings(10.0, 30.0),
)
SUTURE: Json = {
    "finish": "stop",
    "reason": None,
    "healing": {
        "level": "recursive",
        "dropped_tokens": 1,
        "pending": "ra\ufffd",
        "pending_bytes": [0x72, 0x61, 0xF0],
        "nodes": 4,
        "tv_bound": 0.25,
        "logprob": -1.5,
    },
    "prompt": {
        "tokens": 20,
        "reused": 15,
        "evaluated": 5,
        "layout": "psm",
        "truncated": True,
        "excluded": 2,
    },
    "draft": {"proposed": 0, "accepted": 0},
    "stream": {"held_steps": 2, "held_max_bytes": 3},
    "edit": {"delete_after": 0, "text": "nge(10\u2028é🎉)"},
    "rules": [],
    "confidence": None,
}
TEXT = "nge(10\u2028é🎉)"


def script() -> list[CompletionChunk]:
    return [
        CompletionChunk("nge(", (5, 6)),
        CompletionChunk("", (7,)),
        CompletionChunk("10\u2028é🎉", (8,)),
        CompletionChunk(")", (9,), RESULT),
    ]


def test_infill_puts_prompt_after_input_prefix_and_answers_in_llama_cpps_words() -> None:
    completer = FakeCompleter(script())
    body = INFILL | {"input_extra": [{"filename": "a.py", "text": "x = 1", "time": 3}]}
    with serving(completer) as url, client(url) as http:
        response = http.post("/infill", json=body)
    assert response.status_code == 200
    answer = response.json()
    request = completer.requests[0]
    assert (request.prefix, request.suffix) == ("for i in ra", ":\n")
    assert request.infill
    assert request.extra == (ExtraText("x = 1", "a.py"),)
    assert answer["content"] == TEXT
    assert answer["stop"] is True and answer["model"] == "toy" and answer["truncated"] is True
    assert (answer["stop_type"], answer["stopping_word"]) == ("word", "\n")
    assert (answer["tokens_predicted"], answer["tokens_evaluated"]) == (3, 20)
    assert answer["tokens"] == []
    assert answer["timings"] == {
        "cache_n": 15,
        "prompt_n": 5,
        "prompt_ms": 10.0,
        "prompt_per_token_ms": 2.0,
        "prompt_per_second": 500.0,
        "predicted_n": 3,
        "predicted_ms": 30.0,
        "predicted_per_token_ms": 10.0,
        "predicted_per_second": 100.0,
    }
    assert answer["suture"] == SUTURE


@pytest.mark.parametrize("streamed", [False, True])
def test_an_edit_over_closers_is_told_in_the_last_event(streamed: bool) -> None:
    result = CompletionResult("eos", edit=Edit(2, "a) :\n    pass"))
    completer = FakeCompleter([CompletionChunk("a", result=result)])
    with serving(completer) as url, client(url) as http:
        response = http.post("/infill", json=INFILL | {"stream": streamed})
    answer = json.loads(events(response)[-1]) if streamed else response.json()
    assert answer["content"] == "a"
    assert answer["suture"]["edit"] == {"delete_after": 2, "text": "a) :\n    pass"}


def test_openai_suffix_makes_an_infill() -> None:
    completer = FakeCompleter(script())
    with serving(completer) as url, client(url) as http:
        answer = http.post("/v1/completions", json=COMPLETION).json()
    request = completer.requests[0]
    assert request.infill and (request.prefix, request.suffix) == ("for i in ra", ":\n")
    assert request.shape == "auto" and request.max_tokens == 16
    assert answer["object"] == "text_completion" and answer["id"].startswith("cmpl-")
    choice = {"text": TEXT, "index": 0, "logprobs": None, "finish_reason": "stop"}
    assert answer["choices"] == [choice]
    assert answer["usage"]["total_tokens"] == 23
    assert answer["suture"] == SUTURE


@pytest.mark.parametrize("extra", [{}, {"suffix": ""}, {"suffix": None}])
def test_openai_without_suffix_goes_left_to_right(extra: Json) -> None:
    completer = FakeCompleter()
    body = {"prompt": "x", "stop": None, "max_tokens": None, "logprobs": None, "user": None}
    with serving(completer) as url, client(url) as http:
        assert http.post("/v1/completions", json=body | extra).status_code == 200
    request = completer.requests[0]
    assert not request.infill and request.suffix == "" and request.shape == "raw"
    assert request.sampling == SamplingParams(temperature=1.0)


def test_openais_prompt_may_be_a_list_of_one_text() -> None:
    completer = FakeCompleter()
    with serving(completer) as url, client(url) as http:
        assert http.post("/v1/completions", json={"prompt": ["x"]}).status_code == 200
        wrong: list[object] = [[[[1]]], ["a", None], [True], [], 3, None, {}]
        for prompt in wrong:
            response = http.post("/v1/completions", json={"prompt": prompt})
            assert response.status_code == 400, prompt
            assert response.json()["error"]["param"] == "prompt"
    assert [request.prefix for request in completer.requests] == ["x"]


@pytest.mark.parametrize("healing", get_args(Healing))
def test_an_unmodified_infill_body_gets_the_servers_healing_default(healing: Healing) -> None:
    completer = FakeCompleter()
    flags = {"healing": healing, "give_back": "3", "layout": "spm", "stream_interval": "4"}
    with serving(completer, **flags) as url, client(url) as http:
        assert http.post("/infill", json=INFILL).status_code == 200
        own = {"healing": "exact", "give_back": "stable", "layout": "psm", "stream_interval": 1}
        assert http.post("/infill", json=INFILL | own).status_code == 200
    first, second = completer.requests
    assert (first.healing, first.give_back) == (healing, 3)
    assert (first.layout, first.stream_interval) == ("spm", 4)
    assert (second.healing, second.give_back) == ("exact", None)
    assert (second.layout, second.stream_interval) == ("psm", 1)


def test_infill_stream_joins_to_the_text_of_the_whole_answer() -> None:
    with serving(FakeCompleter(script())) as url, client(url) as http:
        whole = http.post("/infill", json=INFILL).json()
        response = http.post("/infill", json=INFILL | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "é🎉".encode() in response.content
    parts = [json.loads(data) for data in events(response)]
    assert "".join(part["content"] for part in parts) == whole["content"] == TEXT
    assert [part["stop"] for part in parts] == [False, False, True]
    assert all(part["content"] for part in parts[:-1])
    ignored = {"content", "generation_settings"}
    last = {key: value for key, value in parts[-1].items() if key not in ignored}
    assert last == {key: value for key, value in whole.items() if key not in ignored}


def test_openai_stream_joins_to_the_text_of_the_whole_answer_and_ends_with_done() -> None:
    with serving(FakeCompleter(script())) as url, client(url) as http:
        response = http.post("/v1/completions", json=COMPLETION | {"stream": True})
    *parts, done = events(response)
    assert done == "[DONE]"
    answers = [json.loads(part) for part in parts]
    assert "".join(answer["choices"][0]["text"] for answer in answers) == TEXT
    reasons = [answer["choices"][0]["finish_reason"] for answer in answers]
    assert reasons == [None, None, "stop"]
    assert answers[-1]["suture"] == SUTURE
    assert len({answer["id"] for answer in answers}) == 1
    assert all("usage" not in answer for answer in answers)


def test_openai_stream_includes_usage_when_asked() -> None:
    body = COMPLETION | {"stream": True, "stream_options": {"include_usage": True}}
    with serving(FakeCompleter(script())) as url, client(url) as http:
        *parts, done = events(http.post("/v1/completions", json=body))
    answers = [json.loads(part) for part in parts]
    assert done == "[DONE]"
    assert [answer["usage"] for answer in answers[:-1]] == [None, None, None]
    assert answers[-1]["choices"] == []
    assert answers[-1]["usage"]["completion_tokens"] == 3
    assert answers[-1]["suture"] == SUTURE


@pytest.mark.parametrize("stream", [False, True])
def test_return_tokens_gives_every_id_once(stream: bool) -> None:
    asks = {"return_tokens": True, "stream": stream}
    with serving(FakeCompleter(script())) as url, client(url) as http:
        infill = http.post("/infill", json=INFILL | asks)
        completion = http.post("/v1/completions", json=COMPLETION | asks)
    if not stream:
        assert infill.json()["tokens"] == [5, 6, 7, 8, 9]
        assert infill.json()["suture"]["tokens"] == {"ids": [5, 6, 7, 8, 9]}
        assert completion.json()["choices"][0]["token_ids"] == [5, 6, 7, 8, 9]
        return
    parts = [json.loads(part) for part in events(infill)]
    assert [part["tokens"] for part in parts] == [[5, 6], [7], [8], [9]]
    assert parts[-1]["suture"]["tokens"] == {"ids": [5, 6, 7, 8, 9]}
    choices = [json.loads(part)["choices"][0] for part in events(completion)[:-1]]
    assert [choice["token_ids"] for choice in choices] == [[5, 6], [7], [8], [9]]


def test_without_detokenizing_the_ids_are_streamed() -> None:
    ids_only = [CompletionChunk("", (1,)), CompletionChunk("", (2,), CompletionResult("eos"))]
    body = INFILL | {"detokenize": False, "stream": True}
    with serving(FakeCompleter(ids_only)) as url, client(url) as http:
        parts = [json.loads(part) for part in events(http.post("/infill", json=body))]
    assert [part["tokens"] for part in parts] == [[1], [2]]


def test_response_fields_are_picked_under_their_whole_path() -> None:
    fields = ["content", "timings/prompt_n", "timings/nothing", "truncated", ""]
    with serving(FakeCompleter(script())) as url, client(url) as http:
        answer = http.post("/infill", json=INFILL | {"response_fields": fields}).json()
    assert answer.pop("suture") == SUTURE
    assert answer == {"content": TEXT, "timings/prompt_n": 5, "truncated": True}


def test_infinite_logprobs_are_null() -> None:
    result = CompletionResult("eos", healing=HealingReport(logprob=-math.inf, tv_bound=math.nan))
    with serving(FakeCompleter([CompletionChunk("", result=result)])) as url, client(url) as http:
        healing = http.post("/infill", json=INFILL).json()["suture"]["healing"]
    assert healing["logprob"] is None and healing["tv_bound"] is None


def test_every_finish_is_200_with_the_text_so_far() -> None:
    completer = FakeCompleter()
    with serving(completer) as url, client(url) as http:
        for finish in get_args(FinishReason):
            check_finish(finish, completer, http)


def check_finish(finish: FinishReason, completer: FakeCompleter, http: httpx2.Client) -> None:
    last = CompletionChunk("", result=CompletionResult(finish, reason="DEADLINE"))
    completer.script = says("so far", finish=last)
    infill = http.post("/infill", json=INFILL)
    completion = http.post("/v1/completions", json=COMPLETION)
    assert infill.status_code == completion.status_code == 200
    assert infill.json()["content"] == "so far"
    assert infill.json()["suture"]["finish"] == finish
    assert infill.json()["suture"]["reason"] == "DEADLINE"
    natural = finish in ("stop", "eos", "suffix")
    assert completion.json()["choices"][0]["finish_reason"] == ("stop" if natural else "length")
    assert infill.json()["stop_type"] in (("word", "eos") if natural else ("limit",))


ERRORS: list[tuple[SutureError, int, str]] = [
    (Loading("Loading model"), 503, "unavailable_error"),
    (QueueFull("too many requests wait", 7), 503, "unavailable_error"),
    (InfillUnsupported("Infill is not supported by this model: x"), 501, "not_supported_error"),
    (EngineError("decode failed"), 500, "server_error"),
]


@pytest.mark.parametrize("stream", [False, True])
def test_d2_an_error_before_the_first_chunk_has_its_status_in_the_dialects_shape(
    stream: bool,
) -> None:
    completer = FakeCompleter()
    with serving(completer) as url, client(url) as http:
        for error, status, kind in ERRORS:
            completer.script = [error]
            infill = http.post("/infill", json=INFILL | {"stream": stream})
            completion = http.post("/v1/completions", json=COMPLETION | {"stream": stream})
            assert infill.status_code == completion.status_code == status
            said = {"code": status, "message": str(error), "type": kind}
            ours = {"suture": {"reason": error.reason}}
            assert infill.json() == {"error": said} | ours
            assert completion.json()["suture"] == ours["suture"]
            assert completion.json()["error"]["message"] == str(error)
            assert completion.json()["error"].keys() == {"message", "type", "param", "code"}
            retry_after = str(error.retry_after) if isinstance(error, Unavailable) else None
            assert infill.headers.get("retry-after") == retry_after
            assert completion.headers.get("retry-after") == retry_after


def test_d2_an_error_after_the_first_chunk_is_the_streams_last_event() -> None:
    broken: list[CompletionChunk | Exception] = [
        CompletionChunk("ab", (1,)),
        EngineError("decode failed"),
    ]
    with serving(FakeCompleter(broken)) as url, client(url) as http:
        infill = events(http.post("/infill", json=INFILL | {"stream": True}))
        completion = events(http.post("/v1/completions", json=COMPLETION | {"stream": True}))
        whole = http.post("/infill", json=INFILL)
    assert json.loads(infill[0])["content"] == "ab"
    assert json.loads(infill[1])["error"]["code"] == 500
    assert json.loads(completion[1])["error"]["message"] == "decode failed"
    assert len(infill) == len(completion) == 2, "an honest end has no [DONE]"
    assert whole.status_code == 500


def test_d3_an_unforeseen_exception_is_a_500_whose_log_has_no_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(FakeCompleter([KeyError("secret source code")])) as url, client(url) as http:
        infill = http.post("/infill", json=INFILL)
        completion = http.post("/v1/completions", json=COMPLETION)
    assert infill.status_code == completion.status_code == 500
    assert infill.json()["error"]["message"] == "internal error"
    assert "KeyError" in caplog.text and "fake_completer.py" in caplog.text
    assert "secret" not in caplog.text + infill.text + completion.text


def test_a_file_of_ten_megabytes_works_and_a_body_beyond_the_limit_is_413() -> None:
    completer = FakeCompleter()
    prefix = "x = 'é'\n" * 1_200_000
    with serving(completer) as url, client(url) as http:
        assert http.post("/infill", json=INFILL | {"input_prefix": prefix}).status_code == 200
        huge = http.post("/infill", content=b'{"input_prefix": "' + b"x" * (33 * 2**20) + b'"}')
    assert completer.requests[0].prefix == prefix + "ra"
    assert huge.status_code == 413
    assert huge.json()["error"]["type"] == "invalid_request_error"


def test_a_body_that_is_no_json_object_is_a_400_in_the_dialects_shape() -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        for raw in (b"", b"{", b"nul", b"\xff", b'{"a": NaN}', b"[" * 100_000):
            infill = http.post("/infill", content=raw)
            completion = http.post("/v1/completions", content=raw)
            assert infill.status_code == completion.status_code == 400
            assert infill.json()["error"]["code"] == 400
            assert "param" in completion.json()["error"]
            assert "\n" not in infill.json()["error"]["message"]


def test_wrong_routes_and_methods_answer_in_the_dialect_of_their_path() -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        assert http.get("/infill").status_code == 405
        assert http.get("/infill").headers["allow"] == "POST"
        assert http.get("/infill").json()["error"]["code"] == 405
        assert http.put("/v1/completions").json()["error"]["param"] is None
        assert http.get("/v1/nothing").status_code == 404
        assert "param" in http.get("/v1/nothing").json()["error"]
        assert http.post("/nothing").json()["error"]["type"] == "not_found_error"
        assert http.post("/health").status_code == 405


def test_health_models_and_status_say_what_is_served() -> None:
    completer = FakeCompleter(loading="loading")
    with serving(completer) as url, client(url) as http:
        loading = http.get("/health")
        assert loading.status_code == 503 and "retry-after" in loading.headers
        error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        assert loading.json() == {"error": error, "suture": {"reason": "LOADING"}}
        assert http.get("/v1/status").json()["state"] == "loading"
        completer.loading = "ready"
        assert http.get("/health").json() == {"status": "ok"}
        models = http.get("/v1/models").json()
        status = http.get("/v1/status").json()
    (entry,) = models["data"]
    assert entry["id"] == "toy" and entry["fim"] == {"supported": True, "family": "qwen"}
    assert entry["meta"]["n_vocab"] == MODEL.n_vocab
    assert status["suture"] and status["state"] == "ready" and status["requests"] == 0
    assert status["model"]["name"] == "toy" and status["pid"] > 0 and status["uptime_s"] >= 0
    defaults = {
        "healing": "exact",
        "give_back": "stable",
        "layout": "auto",
        "min_confidence": 0.0,
        "stream_interval": 1,
    }
    assert status["settings"] == defaults


@pytest.mark.parametrize("path", ["/infill", "/v1/completions"])
@pytest.mark.parametrize("stop", [["x" * i for i in range(1, 66)], ["x" * 5000], ["é" * 2049]])
def test_too_many_stops_are_refused_by_name(path: str, stop: list[str]) -> None:
    body = {"input_prefix": "a", "input_suffix": "", "prompt": "a", "stop": stop}
    with serving(FakeCompleter()) as url, client(url) as http:
        response = http.post(path, json=body)
    assert response.status_code == 400
    assert "stop" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://10.0.0.7", 403),
        ("http://127.0.0.1:5173", 200),
        ("http://localhost", 200),
        ("https://editor.example:8443", 200),
    ],
)
def test_pages_of_other_sites_cannot_keep_the_engine_busy(origin: str, status: int) -> None:
    """A page may post text/plain anywhere without asking; it need not read the answer."""
    completer = FakeCompleter()
    headers = {"Origin": origin, "Content-Type": "text/plain"}
    with serving(completer, allow_host=("editor.example",)) as url, client(url) as http:
        body = json.dumps({"input_prefix": "a", "input_suffix": ""})
        assert http.post("/infill", content=body, headers=headers).status_code == status
    assert len(completer.requests) == (status == 200)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("input_extra", [1], '"input_extra[0]" must be an object'),
        ("stop", 5, '"stop" must be a string or an array of strings'),
        ("stop", ["a"] * 65, '"stop" must be at most 64 strings'),
        ("healing", "\ud800", '"healing" must be Unicode text, without lone surrogates'),
        ("healing", "magic", "'exact', 'recursive' or 'off'"),
        ("n_predict", "many", '"n_predict" must be a whole number'),
        ("temperature", -1, '"temperature" must be at least 0'),
        ("stream", 1, '"stream" must be true or false'),
    ],
)
def test_an_error_says_which_field_and_what_was_expected(
    field: str, value: object, told: str
) -> None:
    body = json.dumps({"input_prefix": "a", "input_suffix": "", field: value})
    with serving(FakeCompleter()) as url, client(url) as http:
        response = http.post("/infill", content=body.encode())
    assert response.status_code == 400
    assert told in response.json()["error"]["message"]
