"""Several models over HTTP: which one answers, what the lists say, loading and unloading."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from starlette.testclient import TestClient

from support.driving import TIMEOUT_S
from support.fake_completer import FakeCompleter
from support.http_server import Json, client, events, serving, settings
from support.json_values import JSON
from support.pools import Scripted, opened
from suture.server import pooled_model
from suture.server.app import create_app
from suture.server.pool import ModelPool

# Of a hole the models are shown its end, and then the line.
TEXTS = {"one-1b": b"\ndef x = (me)", "two": b"\ndef x = user"}
SAID = {"one-1b": " (me)", "two": " user"}
PREFIX = "def x ="


@contextmanager
def served(
    texts: dict[str, bytes] = TEXTS, gate: threading.Event | None = None, **flags: object
) -> Iterator[tuple[ModelPool, httpx2.Client]]:
    """A pool over HTTP, whose first model is loaded."""
    sizes = dict.fromkeys(texts, 100)
    models = Scripted(texts, settings(**flags), sizes, gate=gate or opened())
    with models.pool() as pool, serving(pool, **flags) as url, client(url) as http:
        wait(http, next(iter(texts)), "loaded")
        yield pool, http


def wait(http: httpx2.Client, name: str, value: str) -> Json:
    """The model's entry, once its state is `value`."""
    give_up_at = time.monotonic() + TIMEOUT_S
    while True:
        [entry] = [one for one in http.get("/models").json()["data"] if one["id"] == name]
        if entry["status"]["value"] == value:
            return dict(entry)
        assert time.monotonic() < give_up_at, entry
        time.sleep(0.01)


def infill(model: str | None) -> Json:
    named = {} if model is None else {"model": model}
    return {"input_prefix": PREFIX, "input_suffix": "\n", "temperature": 0, "layout": "spm"} | named


def post(http: httpx2.Client, path: str, body: Json) -> Json:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def load(http: httpx2.Client, name: str) -> None:
    assert post(http, "/models/load", {"model": name}) == {"success": True}
    wait(http, name, "loaded")


def test_the_model_that_a_body_names_answers_and_another_name_means_the_first() -> None:
    with served() as (_, http):
        load(http, "two")
        for asked, answers in (
            ("two", "two"),
            ("one-1b", "one-1b"),
            (None, "one-1b"),
            ("x", "one-1b"),
        ):
            answer = post(http, "/infill", infill(asked))
            assert (answer["content"], answer["model"]) == (SAID[answers], answers)


def test_in_every_dialect_the_model_named_is_the_one_that_answers() -> None:
    openai = {"prompt": PREFIX, "suffix": "\n", "temperature": 0, "layout": "spm"}
    segments = {"segments": {"prefix": PREFIX, "suffix": "\n"}, "temperature": 0, "layout": "spm"}
    source = {"sources": {"a.py": PREFIX + "\n"}, "multiline": True}
    cursor = {"cursor": {"file": "a.py", "line": 0, "character": len(PREFIX)}}
    refact = {"inputs": source | cursor, "parameters": {"temperature": 0}, "layout": "spm"}
    ollama = {"prompt": PREFIX, "suffix": "\n", "options": {"temperature": 0}, "stream": False}
    with served() as (_, http):
        load(http, "two")
        for name, said in SAID.items():
            named = {"model": name}
            answer = post(http, "/v1/completions", openai | named)
            assert (answer["choices"][0]["text"], answer["model"]) == (said, name)
            answer = post(http, "/beta/completions", openai | named)
            assert (answer["choices"][0]["text"], answer["model"]) == (said, name)
            answer = post(http, "/v1/completions", segments | named)
            assert answer["choices"][0]["text"] == said
            answer = post(http, "/v1/fim/completions", openai | named)
            assert (answer["choices"][0]["message"]["content"], answer["model"]) == (said, name)
            answer = post(http, "/v1/code-completion", refact | named)
            assert (answer["choices"][0]["code_completion"], answer["model"]) == (said, name)
            answer = post(http, "/api/generate", ollama | named | {"layout": "spm"})
            assert (answer["response"], answer["model"]) == (said, name)
            answer = post(http, "/v1/explain", infill(name))
            assert answer["model"] == name
            ids = post(http, "/tokenize", {"content": PREFIX} | named)["tokens"]
            assert post(http, "/detokenize", {"tokens": ids} | named) == {"content": PREFIX}


def test_refacts_clients_are_told_of_all_models_and_ask_as_they_were_told() -> None:
    source = {"sources": {"a.py": PREFIX + "\n"}, "multiline": True}
    cursor = {"cursor": {"file": "a.py", "line": 0, "character": len(PREFIX)}}
    body = {"inputs": source | cursor, "parameters": {"temperature": 0}, "layout": "spm"}
    with served() as (_, http):
        load(http, "two")
        caps = http.get("/v1/caps").json()
        assert caps["completion_default_model"] == "suture/one-1b"
        assert [*caps["completion_models"]] == ["suture/one-1b", "suture/two"]
        for name, record in caps["completion_models"].items():
            answer = post(http, "/v1/code-completion", body | {"model": name})
            assert answer["model"] == record["name"] and record["id"] == name
            assert answer["choices"][0]["code_completion"] == SAID[record["name"]]
        # In Ollama's dialect a name is what Ollama's lists say.
        asked = {"prompt": PREFIX, "model": "suture/two", "stream": False}
        assert http.post("/api/generate", json=asked).status_code == 404


def test_a_model_that_is_not_loaded_is_begun_and_the_client_told_to_come_again() -> None:
    openai, gate = {"prompt": PREFIX, "model": "two"}, opened()
    with served(gate=gate) as (_, http):
        for path, body in (
            ("/infill", infill("two")),
            ("/v1/completions", openai),
            ("/v1/completions", openai | {"stream": True}),
            ("/v1/explain", infill("two")),
            ("/tokenize", {"content": "x", "model": "two"}),
            # Ids say nothing without their model.
            ("/completion", {"prompt": [1, 2], "model": "two"}),
        ):
            gate.clear()
            response = http.post(path, json=body)
            gate.set()
            assert response.status_code == 503, path
            assert response.headers["retry-after"] == "2"
            assert response.json()["suture"] == {"reason": "LOADING"}
            wait(http, "two", "loaded")
            assert http.post(path, json=body).status_code == 200
            post(http, "/models/unload", {"model": "two"})


def test_in_ollamas_dialect_a_text_waits_until_its_model_is_loaded() -> None:
    with served() as (_, http):
        body = {"prompt": PREFIX, "model": "two", "stream": False}
        for _ in range(2):
            assert post(http, "/api/generate", body)["done"]
        wait(http, "two", "loaded")


def test_lists_tell_of_all_models_and_which_are_loaded() -> None:
    with served() as (pool, http):
        while not pool.models[1].n_bytes:
            pool.tend()
            time.sleep(0.01)
        assert http.get("/v1/models").json()["data"][1]["fim"]["supported"]
        assert http.get("/models").json() == http.get("/v1/models").json()
        one, two = http.get("/v1/models").json()["data"]
        assert http.get("/v1/models/two").json() == two
        assert (one["id"], one["status"]) == ("one-1b", {"value": "loaded"})
        assert (two["id"], two["status"]) == ("two", {"value": "unloaded"})
        tags = http.get("/api/tags").json()["models"]
        assert [tag["name"] for tag in tags] == ["one-1b:latest", "two:latest"]
        assert [tag["capabilities"] for tag in tags] == [["completion", "insert"]] * 2
        assert [one["name"] for one in http.get("/api/ps").json()["models"]] == ["one-1b:latest"]
        shown = post(http, "/api/show", {"model": "two"})
        assert shown["model_info"]["general.basename"] == "two"
        assert http.post("/api/show", json={"model": "three"}).status_code == 404
        status = http.get("/v1/status").json()
        assert status["model"]["name"] == "one-1b" and status["state"] == "ready"
        assert status["models"] == [
            {"name": "one-1b", "state": "ready", "bytes": 100_000_000},
            {"name": "two", "state": "unloaded", "bytes": 100_000_000},
        ]
        metrics = http.get("/metrics").text.splitlines()
        assert 'suture_model_loaded{model="one-1b"} 1.0' in metrics
        assert 'suture_model_bytes{model="one-1b"} 1e+08' in metrics
        assert 'suture_model_loaded{model="two"} 0.0' in metrics
        assert 'suture_model_bytes{model="two"} 0.0' in metrics


@pytest.mark.parametrize(
    "name", ["three", "on", "one-1b/x", "", "%20", "%00", "..%2ftwo", "é" * 99]
)
def test_a_model_that_is_not_served_is_a_404_of_openais(name: str) -> None:
    with served() as (_, http):
        response = http.get(f"/v1/models/{name}")
        assert response.status_code == 404
        error = response.json()["error"]
        assert error["param"] == "model" and "/v1/models lists" in error["message"]
        assert http.get("/v1/models").status_code == 200


def test_a_models_name_may_have_slashes_and_a_tag() -> None:
    with served({"org/one-1b": b" x"}) as (_, http):
        for name in ("org/one-1b", "org%2Fone-1b", "org/one-1b:latest"):
            assert http.get(f"/v1/models/{name}").json()["id"] == "org/one-1b"


def test_props_and_slots_are_those_of_the_model_in_the_query() -> None:
    with served(parallel=3) as (_, http):
        assert http.get("/props").json()["model_alias"] == "one-1b"
        asleep = http.get("/props?model=two").json()
        assert (asleep["model_alias"], asleep["is_sleeping"]) == ("two", True)
        assert asleep["total_slots"] == 3
        load(http, "two")
        awake = http.get("/props?model=two").json()
        assert (awake["is_sleeping"], awake["default_generation_settings"]["n_ctx"]) == (
            False,
            4096,
        )
        assert http.get("/slots?model=two&fail_on_no_slot=1").json() == http.get("/slots").json()


def test_loading_what_is_loaded_and_unloading_what_is_not_is_fine() -> None:
    with served() as (_, http):
        for path in ("/models/unload", "/models/load", "/models/load"):
            assert post(http, path, {"model": "library/TWO:latest"}) == {"success": True}
        wait(http, "two", "loaded")
        for _ in range(2):
            assert post(http, "/models/unload", {"model": "two"}) == {"success": True}
        assert wait(http, "two", "unloaded")["status"] == {"value": "unloaded"}


def test_the_first_model_is_not_unloaded_while_it_is_loaded() -> None:
    gate = threading.Event()
    models = Scripted(TEXTS, settings(), dict.fromkeys(TEXTS, 100), gate=gate)
    with models.pool() as pool, serving(pool) as url, client(url) as http:
        response = http.post("/models/unload", json={"model": "one-1b"})
        gate.set()
        assert response.status_code == 503 and int(response.headers["retry-after"]) > 0
        document = http.get("/openapi.json").json()
        assert "503" in document["paths"]["/models/unload"]["post"]["responses"]


@pytest.mark.parametrize("path", ["/models/load", "/models/unload"])
def test_what_is_no_model_is_told_so(path: str) -> None:
    with served() as (_, http):
        response = http.post(path, json={"model": "three"})
        assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
        for body in ({}, {"model": 1}, {"model": None}, {"model": ["two"]}):
            response = http.post(path, json=body)
            assert response.status_code == 400, body
            assert response.json()["error"]["type"] == "invalid_request_error"
        assert http.post(path, content=b"{").status_code == 400
        assert http.get(path).status_code == 405


def test_a_model_that_cannot_be_loaded_is_a_500_of_its_own_and_says_so() -> None:
    gate = opened()
    with served(TEXTS | {"two": b"broken"}, gate) as (_, http):
        gate.clear()
        assert http.post("/infill", json=infill("two")).status_code == 503
        gate.set()
        while wait(http, "two", "unloaded")["status"] == {"value": "unloaded"}:
            pass
        assert wait(http, "two", "unloaded")["status"] == {"value": "unloaded", "failed": True}
        response = http.post("/infill", json=infill("two"))
        assert response.status_code == 500
        assert response.json()["error"]["message"] == "the model two could not be loaded"
        assert http.get("/health").status_code == 200
        assert http.get("/api/ps").json()["models"][0]["name"] == "one-1b:latest"


def test_a_model_that_cannot_be_loaded_is_not_loaded_again_for_every_request_of_token_ids(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = {"prompt": [1, 2], "model": "two"}
    with served(TEXTS | {"two": b"broken"}) as (_, http):
        assert http.post("/completion", json=ids).status_code == 503
        while not wait(http, "two", "unloaded")["status"].get("failed"):
            pass
        for _ in range(3):
            response = http.post("/completion", json=ids)
            assert response.status_code == 500
            assert response.json()["error"]["message"] == "the model two could not be loaded"
        assert caplog.text.count("not a GGUF file") == 1


def test_a_model_that_cannot_be_loaded_is_not_loaded_again_by_every_empty_prompt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served(TEXTS | {"two": b"broken"}) as (_, http):
        for _ in range(3):
            response = http.post("/api/generate", json={"model": "two"})
            assert response.status_code == 500
            assert response.json()["error"] == "the model two could not be loaded"
        assert caplog.text.count("not a GGUF file") == 1


def test_where_there_is_no_room_the_request_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(memory_mb=150) as (pool, http):
        # The first one was loaded for nobody yet.
        response = http.post("/v1/completions", json={"prompt": PREFIX, "model": "two"})
        assert (response.status_code, response.json()["suture"]) == (503, {"reason": "BUSY"})
        assert "no room for the model two" in response.json()["error"]["message"]
        assert http.post("/models/load", json={"model": "two"}).status_code == 503
        monkeypatch.setattr(pooled_model, "UNUSED_S", 0.0)
        load(http, "two")
        wait(http, "one-1b", "unloaded")
        assert http.get("/health").status_code == 200
    with served(TEXTS | {"three": b""}, memory_mb=99 + 1) as (pool, http):
        vars(pool.models[2])["_n_bytes"] = 10**9
        response = http.post("/models/load", json={"model": "three"})
        assert response.status_code == 400
        assert "three takes 1000 MB" in response.json()["error"]["message"]


def test_ollamas_empty_prompt_loads_a_model_and_without_time_to_be_kept_unloads_it() -> None:
    with served() as (_, http):
        loaded = post(http, "/api/generate", {"model": "two", "stream": False})
        assert (loaded["done"], loaded["done_reason"], loaded["response"]) == (True, "load", "")
        assert 0 < loaded["load_duration"] <= loaded["total_duration"]
        assert len(http.get("/api/ps").json()["models"]) == 2
        [line] = http.post(
            "/api/generate", json={"model": "two", "keep_alive": 0}
        ).text.splitlines()
        assert '"done_reason":"unload"' in line and '"done":true' in line
        assert len(http.get("/api/ps").json()["models"]) == 1
        # Of a model that is not here nothing is loaded or unloaded.
        for more in ({}, {"keep_alive": 0}):
            assert http.post("/api/generate", json={"model": "three"} | more).status_code == 404
        assert len(http.get("/api/ps").json()["models"]) == 1


def test_a_stream_is_not_ended_by_an_unloading() -> None:
    with (
        served() as (_, http),
        http.stream(
            "POST", "/v1/completions", json={"prompt": PREFIX, "stream": True, "temperature": 0}
        ) as stream,
    ):
        pieces = stream.iter_bytes()
        first = next(pieces)
        with httpx2.Client(base_url=http.base_url, trust_env=False) as other:
            assert post(other, "/models/unload", {"model": "one-1b"}) == {"success": True}
        assert (first + b"".join(pieces)).endswith(b"data: [DONE]\n\n")


def test_a_server_of_one_completer_has_it_loaded_always() -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        assert wait(http, "toy", "loaded")["fim"]["supported"]
        assert post(http, "/models/load", {"model": "toy"}) == {"success": True}
        refused = http.post("/models/unload", json={"model": "toy"})
        assert refused.status_code == 400 and "cannot be unloaded" in refused.text
        for nothing in (0, "0s", "000ns"):  # which the schema lets through
            asked = http.post("/api/generate", json={"model": "toy", "keep_alive": nothing})
            assert asked.status_code == 400 and "cannot be unloaded" in asked.json()["error"]
        stream = http.post("/v1/completions", json={"prompt": "a", "model": "x", "stream": True})
        assert events(stream)[-1] == "[DONE]"


@settings_of_hypothesis(max_examples=60, deadline=None)
@given(JSON | st.fixed_dictionaries({"model": JSON}))
def test_any_json_is_answered_in_llama_servers_shape(body: Any) -> None:
    with TestClient(create_app(FakeCompleter(), settings()), "http://localhost") as http:
        for path in ("/models/load", "/models/unload"):
            response = http.post(path, content=json.dumps(body))
            assert response.status_code in (400, 404)
            error = response.json()["error"]
            assert error.keys() == {"code", "message", "type"}
            assert error["message"] and "\n" not in error["message"] and len(error["message"]) < 400


def test_keys_are_checked_here_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("secret")
    with serving(FakeCompleter(), api_key_file=keys) as url, client(url) as http:
        for path in ("/models/load", "/models/unload"):
            assert http.post(path, json={"model": "toy"}).status_code == 401
        assert http.get("/models").status_code == 401
        bearer = {"Authorization": "Bearer secret"}
        assert http.get("/models", headers=bearer).status_code == 200


def test_many_clients_and_models_that_come_and_go_and_each_answer_is_its_models() -> None:
    names = list(SAID)
    with served(parallel=2) as (pool, http):

        def ask(number: int) -> list[tuple[str, int, Json]]:
            rng = random.Random(number)
            with httpx2.Client(base_url=http.base_url, trust_env=False, timeout=20) as own:
                return [one(own, rng) for _ in range(10)]

        def one(own: httpx2.Client, rng: random.Random) -> tuple[str, int, Json]:
            name = rng.choice(names)
            if rng.random() < 0.2:
                path = rng.choice(["/models/load", "/models/unload"])
                response = own.post(path, json={"model": name})
            else:
                response = own.post("/infill", json=infill(name))
            return name, response.status_code, response.json()

        with ThreadPoolExecutor(4) as clients:
            answers = [answer for each in clients.map(ask, range(4)) for answer in each]
        for name, status, body in answers:
            if status == 503:
                assert body["suture"]["reason"] == "LOADING"
            elif status == 200 and "success" not in body:
                assert (body["content"], body["model"]) == (SAID[name], name)
            else:
                assert body == {"success": True}
        assert any(status == 200 and "content" in body for _, status, body in answers)
        while pool.measured().running:
            time.sleep(0.01)
