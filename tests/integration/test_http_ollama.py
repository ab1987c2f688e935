"""Ollama's own Python client, unmodified, and raw requests in its dialect, over a real socket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import httpx2
import ollama
import pytest

from support.fake_completer import MODEL, FakeCompleter, says
from support.http_server import Json, client, serving, settings
from support.scripted_completer import VOCABULARY, scripted
from suture.server.engine.scripted import speaking_model
from suture.server.errors import EngineError, QueueFull
from suture.server.request import (
    Alternative,
    CompletionChunk,
    CompletionResult,
    PromptReport,
    ScoredToken,
    Timings,
)
from suture.server.routes.completer import Completer

RESULT = CompletionResult(
    "stop",
    stop_match="\n",
    completion_tokens=3,
    prompt=PromptReport(20, 15, 5, "psm"),
    timings=Timings(10.0, 30.0),
)
SCRIPT = [
    CompletionChunk("nge(", (5, 6)),
    CompletionChunk("", (7,)),
    CompletionChunk("10\u2028é🎉", (8,)),
    CompletionChunk(")", (9,), RESULT),
]
TEXT = "nge(10\u2028é🎉)"


@contextmanager
def ollama_client(completer: Completer, **flags: object) -> Iterator[ollama.Client]:
    with serving(completer, **flags) as url:
        with ollama.Client(url, trust_env=False, timeout=20) as api:
            yield api


def lines(response: httpx2.Response) -> list[Json]:
    assert response.headers["content-type"] == "application/x-ndjson"
    *whole, rest = response.content.split(b"\n")
    assert rest == b""
    return [json.loads(line) for line in whole]


def test_the_client_fills_in() -> None:
    completer = FakeCompleter(SCRIPT)
    with ollama_client(completer) as api:
        answer = api.generate(
            "toy", "for i in ra", ":\n", options={"temperature": 0, "num_predict": 16}
        )
    request = completer.requests[0]
    assert (request.prefix, request.suffix, request.infill) == ("for i in ra", ":\n", True)
    assert (request.sampling.temperature, request.max_tokens) == (0, 16)
    assert answer.response == TEXT and answer.model == "toy"
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert (answer.prompt_eval_count, answer.prompt_eval_duration) == (20, 10_000_000)
    assert (answer.eval_count, answer.eval_duration) == (3, 30_000_000)
    assert answer.total_duration is not None and answer.total_duration > 0
    assert answer.load_duration == 0 and answer.context is None
    assert answer.created_at is not None and answer.created_at.endswith("Z")
    assert datetime.fromisoformat(answer.created_at).utcoffset() is not None


def test_the_client_streams_and_the_line_that_is_the_last_has_no_text() -> None:
    with ollama_client(FakeCompleter(SCRIPT)) as api:
        *parts, last = api.generate("toy:latest", "for i in ra", ":\n", stream=True)
    assert [part.response for part in parts] == ["nge(", "10\u2028é🎉", ")"]
    assert not any(part.done or part.done_reason for part in parts)
    assert (last.response, last.done, last.done_reason) == ("", True, "stop")
    assert (last.model, last.eval_count) == ("toy:latest", 3)


def test_the_clients_own_options_and_schema_are_understood() -> None:
    completer = FakeCompleter(SCRIPT)
    options = ollama.Options(
        num_ctx=4096, num_predict=-1, top_k=1, stop=["\n"], seed=3, use_mmap=True, num_thread=4
    )
    with ollama_client(completer) as api:
        api.generate("toy", "a", options=options, format={"type": "object"}, keep_alive="5m")
        api.generate("toy", "a", options=options, raw=True, think=False, format="json")
    schema, raw = completer.requests
    assert (schema.sampling.top_k, schema.sampling.seed, schema.stop) == (1, 3, ("\n",))
    assert schema.max_tokens == MODEL.n_ctx and schema.grammar is not None
    assert raw == schema


def test_the_client_gets_log_probabilities() -> None:
    scores = (
        ScoredToken(1, b"nge(", -0.5, 0, (Alternative(1, b"nge(", -0.5),)),
        ScoredToken(2, b"\xf0\x9f", float("-inf"), 4),
    )
    script = [CompletionChunk("nge(", (1, 2), scores=scores), CompletionChunk("", (), RESULT)]
    with ollama_client(FakeCompleter(script)) as api:
        whole = api.generate("toy", "a", logprobs=True, top_logprobs=1)
        first, last = api.generate("toy", "a", logprobs=True, top_logprobs=1, stream=True)
    assert last.logprobs is None
    for answer in (whole, first):
        assert answer.logprobs is not None
        sure, half = answer.logprobs
        assert (sure.token, sure.logprob) == ("nge(", -0.5)
        assert sure.top_logprobs is not None and sure.top_logprobs[0].token == "nge("
        assert half.token == "" and half.logprob < -1e38 and half.top_logprobs is None


def test_the_client_loads_a_model_with_an_empty_prompt() -> None:
    model = speaking_model(VOCABULARY, b"userName = ()")
    with scripted(model, settings()) as completer, ollama_client(completer) as api:
        answer = api.generate("toy", keep_alive=-1)
        [line] = api.generate("toy", stream=True)
    for loaded in (answer, line):
        assert (loaded.response, loaded.done, loaded.done_reason) == ("", True, "load")


@pytest.mark.parametrize(
    ("spoken", "suffix"),
    # Of a hole the model is shown the suffix, and then the line.
    [(b";\nconst userName = ()", ";\n"), (b"const userName = ()", "")],
)
def test_the_client_completes_with_an_engine_behind_it(spoken: bytes, suffix: str) -> None:
    model, greedy = speaking_model(VOCABULARY, spoken), {"temperature": 0}
    with scripted(model, settings()) as completer, ollama_client(completer) as api:
        whole = api.generate("toy", "const userNa", suffix, options=greedy)
        parts = list(api.generate("toy", "const userNa", suffix, options=greedy, stream=True))
    assert whole.response == "".join(part.response or "" for part in parts) == "me = ()"
    assert whole.done_reason == parts[-1].done_reason == "stop"
    assert whole.prompt_eval_count == parts[-1].prompt_eval_count and whole.prompt_eval_count


def test_a_hole_at_the_beginning_of_a_file_is_filled_where_ollama_only_loads() -> None:
    model = speaking_model(VOCABULARY, b";\nconst userName = ()")
    with scripted(model, settings()) as completer, ollama_client(completer) as api:
        answer = api.generate("toy", "", ";\n", options={"temperature": 0})
    assert (answer.response, answer.done_reason) == ("const userName = ()", "stop")


def test_the_client_lists_and_shows_the_model(tmp_path: Path) -> None:
    file = tmp_path / "toy.gguf"
    file.write_bytes(b"GGUF")
    model = replace(
        MODEL, path=str(file), family="qwen2.5-coder", architecture="qwen2", n_params=1_543_714_304
    )
    with ollama_client(FakeCompleter(model=model)) as api:
        [listed] = api.list().models
        shown = api.show(listed.model or "")
        [running] = api.ps().models
    assert listed.model == running.model == "toy:latest"
    assert listed.size == running.size == 2_000_000
    assert listed.digest == running.digest and len(listed.digest or "") == 64
    assert listed.modified_at is not None
    assert listed.modified_at.timestamp() == pytest.approx(file.stat().st_mtime, abs=1e-3)
    assert running.context_length == MODEL.n_ctx and running.expires_at is not None
    assert shown.capabilities == ["completion", "insert"]
    assert shown.details is not None and shown.details == listed.details
    assert (shown.details.format, shown.details.family) == ("gguf", "qwen2")
    assert shown.details.parameter_size == "1.5B"
    assert shown.modelinfo is not None
    assert shown.modelinfo["general.architecture"] == "qwen2"
    assert shown.modelinfo["qwen2.context_length"] == MODEL.n_ctx
    hole = "<|fim_prefix|>{{ .Prompt }}<|fim_suffix|>{{ .Suffix }}<|fim_middle|>"
    assert (
        shown.template == f"{{{{ if .Suffix }}}}{hole}{{{{ else }}}}{{{{ .Prompt }}}}{{{{ end }}}}"
    )


def test_a_model_without_sentinels_says_so_wherever_clients_look() -> None:
    with ollama_client(FakeCompleter(model=replace(MODEL, fim=False, family=None))) as api:
        shown = api.show("toy")
        with pytest.raises(ollama.ResponseError, match="does not support insert") as raised:
            api.generate("toy", "a", "b")
    assert shown.capabilities == ["completion"] and shown.template == "{{ .Prompt }}"
    assert raised.value.status_code == 400


def test_a_model_that_is_not_loaded_yet_is_listed_and_not_running_and_waited_for() -> None:
    completer = FakeCompleter(SCRIPT, loading="loading")
    completer.model = replace(MODEL, n_ctx=0, n_vocab=0, n_params=None, size_bytes=None, fim=False)
    with ollama_client(completer) as api:
        assert [model.model for model in api.list().models] == ["toy:latest"]
        assert api.ps().models == []
        threading.Timer(0.2, lambda: setattr(completer, "loading", "ready")).start()
        assert api.generate("toy", "a", "b", stream=False).response == TEXT


def test_the_asynchronous_client_streams() -> None:
    async def texts(url: str) -> list[str | None]:
        async with ollama.AsyncClient(url, trust_env=False, timeout=20) as api:
            parts = await api.generate("toy", "for i in ra", ":\n", stream=True)
            return [part.response async for part in parts]

    with serving(FakeCompleter(SCRIPT)) as url:
        assert asyncio.run(texts(url)) == ["nge(", "10\u2028é🎉", ")", ""]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_client_is_told_of_errors_before_the_first_text(streamed: bool) -> None:
    with ollama_client(FakeCompleter([QueueFull("too many requests wait")])) as api:
        with pytest.raises(ollama.ResponseError, match="too many requests wait") as raised:
            list(api.generate("toy", "a", stream=streamed))  # type: ignore[call-overload]
        assert raised.value.status_code == 503
        with pytest.raises(ollama.ResponseError, match="model 'other' not found") as raised:
            api.show("other")
        assert raised.value.status_code == 404


def test_the_client_is_told_of_an_error_inside_a_stream() -> None:
    completer = FakeCompleter([CompletionChunk("x", (1,)), EngineError("decode failed")])
    with ollama_client(completer) as api:
        parts = api.generate("toy", "a", stream=True)
        assert next(parts).response == "x"
        with pytest.raises(ollama.ResponseError, match="decode failed"):
            next(parts)
    with serving(completer) as url, client(url) as http:
        _, error = lines(http.post("/api/generate", json={"model": "toy", "prompt": "a"}))
    assert error == {"error": "decode failed", "suture": {"reason": "ERROR"}}


def test_the_api_key_is_the_clients_own(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with serving(FakeCompleter(), api_key_file=keys) as url:
        for key, status in (("secret", None), ("wrong", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            with ollama.Client(url, headers=headers, trust_env=False) as api:
                if status is None:
                    assert api.generate("toy", "a").response == "ab"
                    continue
                with pytest.raises(ollama.ResponseError, match="API key") as raised:
                    api.generate("toy", "a")
                assert raised.value.status_code == status


@pytest.mark.parametrize("streamed", [False, True])
def test_the_suture_object_and_token_ids_come_with_the_end(streamed: bool) -> None:
    body = {"model": "toy", "prompt": "a", "suffix": "b", "return_tokens": True, "stream": streamed}
    with serving(FakeCompleter(SCRIPT)) as url, client(url) as http:
        response = http.post("/api/generate", json=body)
    if streamed:
        *parts, end = lines(response)
        assert [part["token_ids"] for part in parts] == [[5, 6], [7], [8], [9]]
        assert not any("suture" in part for part in parts)
    else:
        assert response.headers["content-type"] == "application/json"
        end = response.json()
        assert end["token_ids"] == [5, 6, 7, 8, 9]
    assert end["suture"]["tokens"] == {"ids": [5, 6, 7, 8, 9]}
    assert end["suture"]["edit"] == {"delete_after": 0, "text": TEXT}
    assert end["suture"]["prompt"]["reused"] == 15


def test_a_stream_has_no_line_without_text_but_the_last() -> None:
    with serving(FakeCompleter(says("", "a", ""))) as url, client(url) as http:
        heard = lines(http.post("/api/generate", json={"model": "toy", "prompt": "x"}))
    assert [part["response"] for part in heard] == ["a", ""]
    assert [part["done"] for part in heard] == [False, True]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"[]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b"\xff", "UTF-8"),
        (b'{"options": {"temperature": NaN}}', "must be JSON"),
        (b'{"options": {"num_predict": ' + b"9" * 6000 + b"}}", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b'{"model": 1}', '"model" must be a string'),
        (b'{"model": "\\ud800"}', '"model" must be Unicode text'),
        (b'{"model": "nope", "prompt": "a"}', "model 'nope' not found"),
    ],
)
@pytest.mark.parametrize("path", ["/api/generate", "/api/show"])
def test_a_body_that_cannot_be_read_is_refused_in_ollamas_shape(
    path: str, content: bytes, told: str
) -> None:
    completer = FakeCompleter()
    with serving(completer) as url, client(url) as http:
        response = http.post(path, content=content)
    assert response.status_code == (404 if "not found" in told else 400)
    answer = response.json()
    assert answer.keys() == {"error"} and told in answer["error"]
    assert completer.requests == []


def test_a_model_is_shown_by_either_name_of_the_field_and_not_without() -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        for body in ({"model": "toy"}, {"name": "toy:latest"}, {"model": "toy", "verbose": True}):
            assert http.post("/api/show", json=body).status_code == 200
        nobody = http.post("/api/show", json={})
    assert (nobody.status_code, nobody.json()) == (400, {"error": '"model" is required'})


@pytest.mark.parametrize("field", ["model", "name"])
def test_no_name_of_a_model_is_too_odd_to_be_answered(field: str) -> None:
    odd: list[object] = [None, True, 0, 10**30, "", "\0", "\ud800", "x" * 20_000, "a\nb", [], {}]
    with serving(FakeCompleter()) as url, client(url) as http:
        for value in odd:
            # As escapes: no UTF-8 has a lone surrogate.
            response = http.post("/api/show", content=json.dumps({field: value}))
            assert response.status_code in (400, 404)
            error = response.json()["error"]
            assert error and "\n" not in error and len(error) < 400


def test_routes_that_are_not_here_say_so_in_ollamas_shape() -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        chat = http.post("/api/chat", json={})
        get = http.get("/api/generate")
        version = http.get("/api/version").json()
        assert http.head("/api/tags").status_code == http.head("/api/version").status_code == 200
    assert chat.status_code == 404 and "/api/generate" in chat.json()["error"]
    assert get.status_code == 405 and get.json().keys() == {"error"}
    # Clients compare it with the least that they take, such as 0.6.4.
    assert tuple(int(part) for part in version["version"].split(".")) >= (0, 6, 4)
    assert version["suture"]["version"]


def test_a_client_that_leaves_ends_its_completion() -> None:
    completer = FakeCompleter(says(*"x" * 500), delay_s=0.01)
    with ollama_client(completer) as api:
        parts = api.generate("toy", "a", stream=True)
        next(parts)
        assert isinstance(parts, Generator)
        parts.close()
        deadline = time.monotonic() + 5
        while not completer.closed.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert completer.cancelled == 1
