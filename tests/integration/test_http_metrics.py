"""`/metrics`, `/slots` and an unready `/health` over HTTP; logs of a worker process that fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from support.fake_completer import FakeCompleter
from support.http_server import Json, client, serving, settings
from support.scripted_completer import VOCABULARY, scripted
from support.toy import toy_encode
from suture.server.app import create_app
from suture.server.commands import serve
from suture.server.counters import Counters, Measured
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import Model, speaking_model
from suture.server.request import SamplingParams
from suture.server.routes.completer import Slot

TESTS = Path(__file__).parents[1]
QUOTING_WORKER = (sys.executable, str(TESTS / "support" / "quoting_worker.py"))
SPEAKS = speaking_model(VOCABULARY, b"def x = (me)")
PATHS = ("/metrics", "/slots")


def samples(text: str) -> dict[str, float]:
    """Every sample without its labels' names: `name` or `name value value`."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def infill(prefix: str, **fields: object) -> Json:
    return {"input_prefix": prefix, "input_suffix": "", "temperature": 0, **fields}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


class Gate:
    """A model that says nothing before it is opened."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, tokens: Sequence[int]) -> Logits:
        self.reached.set()
        assert self.opened.wait(20)
        return self.model(tokens)


def test_the_page_for_prometheus_is_what_the_completer_measures() -> None:
    completer = FakeCompleter(counted=Measured(Counters(generated_tokens=7), waiting=3))
    http = TestClient(create_app(completer, settings()), "http://localhost")
    response = http.get("/metrics")

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert samples(response.text)["llamacpp:tokens_predicted_total"] == 7
    assert samples(response.text)["llamacpp:requests_deferred"] == 3
    assert http.post("/metrics").status_code == 405


def test_slots_are_in_llama_servers_shape() -> None:
    slot = Slot(4, 120, 5, 12, SamplingParams(temperature=0.5, logit_bias=((3, 1.0),)), True)
    http = TestClient(
        create_app(FakeCompleter(at_work=(None, slot)), settings()), "http://localhost"
    )
    idle, busy = http.get("/slots").json()

    assert idle == {"id": 0, "n_ctx": 4096, "speculative": False, "is_processing": False}
    params = busy.pop("params")
    assert busy == {
        "id": 1,
        "n_ctx": 4096,
        "speculative": False,
        "is_processing": True,
        "id_task": 4,
        "n_prompt_tokens": 120,
        "next_token": [{"has_next_token": True, "n_remain": 7, "n_decoded": 5}],
    }
    assert params["n_predict"] == 12 and params["temperature"] == 0.5
    assert params["seed"] == -1 and params["ignore_eos"] is True
    assert "logit_bias" not in params and "stop" not in params


def test_a_stalled_engine_is_unready() -> None:
    http = TestClient(
        create_app(FakeCompleter(loading="stalled"), settings(stall_s=5)), "http://localhost"
    )
    response = http.get("/health")

    assert response.status_code == 503 and "retry-after" in response.headers
    message = "the engine has work and no step of it in 5 s"
    error = {"code": 503, "message": message, "type": "unavailable_error"}
    assert response.json() == {"error": error}
    assert http.get("/v1/status").json()["state"] == "stalled"


def test_numbers_need_the_key_and_health_does_not(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("abc\n")
    http = TestClient(create_app(FakeCompleter(), settings(api_key_file=keys)), "http://localhost")
    for path in PATHS:
        assert http.get(path).status_code == 401
        assert http.get(path, headers={"Authorization": "Bearer abc"}).status_code == 200
    assert http.get("/health").status_code == 200


def test_what_requests_did_is_counted() -> None:
    at = settings()
    with scripted(SPEAKS, at) as completer, serving(completer) as url, client(url) as http:
        before = samples(http.get("/metrics").text)
        session = {"session": "s", "n_predict": 8}
        first = http.post("/infill", json=infill("def x =", seq=1, **session)).json()
        # The user types the beginning of what was suggested.
        rest = http.post("/infill", json=infill("def x = (", seq=2, **session)).json()
        late = http.post("/infill", json=infill("def x = (m", seq=1, **session)).json()
        after = samples(http.get("/metrics").text)

    assert (first["content"], rest["content"]) == (" (me)", "me)")
    assert late["suture"]["finish"] == "superseded"
    assert before["llamacpp:n_decode_total"] == 0 < after["llamacpp:n_decode_total"]
    evaluated = first["suture"]["prompt"]["evaluated"]
    assert after["llamacpp:prompt_tokens_total"] == evaluated
    assert after["suture_evaluated_tokens_count"] == 2
    assert after["suture_evaluated_tokens_bucket 0.0"] == 1
    assert after["suture_evaluated_tokens_sum"] == evaluated
    assert after["suture_continued_requests_total"] == 1
    assert after["suture_superseded_unqueued_total"] == 1
    assert after["suture_finished_requests_total eos"] == 1
    assert after["llamacpp:tokens_predicted_total"] == first["tokens_predicted"]
    assert after["suture_encode_wait_seconds_count"] == 1
    assert after["suture_encode_seconds_count"] == 1
    assert 0 < after["suture_detokenize_seconds_total"] < 1
    assert after["llamacpp:requests_processing"] == after["suture_preparing_requests"] == 0


def test_texts_encoded_in_batches_are_counted() -> None:
    def slow(piece: bytes) -> Sequence[int]:
        time.sleep(0.01 if len(piece) > 1000 else 0)
        return toy_encode(piece)

    at = settings(encode_batch=4, encode_wait_ms=1)
    body = infill("def x =" + " " * 2000, n_predict=1)
    with scripted(SPEAKS, at, slow) as completer, serving(completer) as url:

        def ask(_: int) -> int:
            with client(url) as http:
                return http.post("/infill", json=body).status_code

        with ThreadPoolExecutor(8) as askers:
            assert set(askers.map(ask, range(24))) == {200}
        with client(url) as http:
            counted = samples(http.get("/metrics").text)

    n_batches = counted["suture_encode_batch_texts_count"]
    assert 0 < n_batches == counted["suture_encode_batch_texts_bucket 4.0"]
    assert counted["suture_encode_batches_cut_total"] == 0


def test_slots_show_what_runs_and_nothing_of_its_text() -> None:
    gate = Gate(SPEAKS)
    with scripted(gate, settings(parallel=1)) as completer, serving(completer) as url:
        with client(url) as http, client(url) as other:
            idle = http.get("/slots").json()
            body = infill("def x =", n_predict=9, stop=["hunter2"], input_suffix="hunter3")
            asking = threading.Thread(target=lambda: other.post("/infill", json=body))
            asking.start()
            assert gate.reached.wait(20)
            busy = http.get("/slots")
            refused = http.get("/slots", params={"fail_on_no_slot": "1"})
            gate.opened.set()
            asking.join(20)
            until(lambda: http.get("/slots").json() == idle)

    assert [slot["is_processing"] for slot in idle] == [False]
    (slot,) = busy.json()
    assert slot["is_processing"] and slot["n_prompt_tokens"] > 0
    assert slot["next_token"] == [{"has_next_token": True, "n_remain": 9, "n_decoded": 0}]
    assert "hunter" not in busy.text and "def" not in busy.text
    assert refused.status_code == 503
    assert refused.json()["error"]["message"] == "no slot available"


def test_health_tells_of_an_engine_that_stands_still_and_of_its_return() -> None:
    gate = Gate(SPEAKS)
    at = settings(stall_s=1)
    with scripted(gate, at) as completer, serving(completer, stall_s=1) as url:
        with client(url) as http, client(url) as other:
            body = infill("def x =")
            asking = threading.Thread(target=lambda: other.post("/infill", json=body))
            asking.start()
            assert gate.reached.wait(20)
            assert http.get("/health").status_code == 200
            until(lambda: http.get("/health").status_code == 503)
            gate.opened.set()
            asking.join(20)
            assert http.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("where", ["plan", "evaluate", "draw", "nowhere"])
def test_no_log_of_a_worker_has_text_of_a_request(where: str) -> None:
    """Each failure quotes the request in its message; only its type and place are logged."""
    at = settings(port=0)
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}
    with serve.bind(at) as listener, open(os.devnull, "wb") as news:
        serve.listen(listener, at)
        worker = subprocess.Popen(
            QUOTING_WORKER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(listener.fileno(), news.fileno()),
            env=environ,
        )
        assert worker.stdin is not None and worker.stdout is not None
        fds = {"fd": listener.fileno(), "news_fd": news.fileno()}
        order = fds | {"settings": at.model_dump(mode="json")}
        worker.stdin.write(json.dumps(order).encode() + b"\n")
        worker.stdin.flush()
        url = worker.stdout.readline().decode().split()[-1]
        with client(url) as http:
            body = infill(f"password = 'hunter2' # {where}", stop=["hunter3"])
            answers = [http.post("/infill", json=body | {"stream": s}) for s in (False, True)]
            bad = http.post("/infill", content=b'{"input_prefix": "hunter4", ')
        _, errors = worker.communicate(timeout=20)

    assert bad.status_code == 400
    assert [a.status_code for a in answers] == ([200, 200] if where == "nowhere" else [500, 500])
    logged = errors.decode()
    assert "hunter" not in logged
    assert ("Error" in logged) == (where != "nowhere")
    assert where == "nowhere" or not any("hunter" in answer.text for answer in answers)
