"""A model that other servers run, through the whole of Suture's own server, over real sockets."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from support.fake_backend import FakeBackend, Fault, Kind, playing, until
from support.http_server import client, events, serving, settings
from support.remote_completer import serving_backends
from support.scripted_completer import scripted
from support.toy import toy_vocabulary
from suture.server.decoding.candidates import Logits
from suture.server.engine.scripted import random_model, speaking_model

VOCABULARY = toy_vocabulary()
ANY = random_model(VOCABULARY.n_vocab)
TEXT = b"def add(x): return userName()\n    return me"
SPEAKING = speaking_model(VOCABULARY, TEXT)
PREFIXES = [
    "const user",
    "const userNa",
    "import nump",
    "def x = re",
    "def x =\n  ",
    "é 😀 nump",
    "x\t",
    "a.*+?(){}[]|^$\\",
    "",
    "const x\n",
]
Json = dict[str, Any]


def in_ascii(tokens: Sequence[int]) -> Logits:
    """A random model of ASCII: llama-server does not tell the tokens of what is no text."""
    row = ANY(tokens)
    row[128:256] = -30
    return row


def asked(url: str, body: Json, path: str = "/infill") -> Json:
    with client(url) as http:
        response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert isinstance(answer, dict)
    return answer


def infill(prefix: str, suffix: str = "\nend", **more: Any) -> Json:
    return {
        "input_prefix": prefix,
        "input_suffix": suffix,
        "n_predict": 12,
        "temperature": 0,
        "healing": "recursive",
    } | more


@pytest.mark.parametrize("kind", ["vllm", "llama-server"])
@pytest.mark.parametrize("layout", ["psm", "spm", "anchor"])
def test_a_backend_says_what_the_embedded_engine_does(kind: Kind, layout: str) -> None:
    model = in_ascii if kind == "llama-server" else ANY
    with scripted(model, settings()) as embedded, serving(embedded) as here:
        with playing(FakeBackend(model, kind=kind)) as url, serving_backends(url) as there:
            for prefix in PREFIXES:
                for boundary in ("keep", "move") if layout == "psm" else ("auto",):
                    body = infill(prefix, layout=layout, fim_boundary=boundary, shape="raw")
                    ours, theirs = asked(here, body), asked(there, body)
                    assert theirs["content"] == ours["content"], (prefix, boundary)
                    for field in ("level", "pending", "dropped_tokens"):
                        mine, other = (one["suture"]["healing"][field] for one in (ours, theirs))
                        assert mine == other, (prefix, boundary, field)


@pytest.mark.parametrize("kind", ["vllm", "llama-server"])
def test_grammars_and_pending_bytes_are_one_constraint(kind: Kind) -> None:
    body = infill("const userNa", grammar='root ::= "me" | "mes"', shape="raw", layout="anchor")
    with playing(FakeBackend(in_ascii, kind=kind)) as url, serving_backends(url) as there:
        answer = asked(there, body)
    assert answer["content"] in ("me", "mes")
    assert answer["suture"]["healing"]["level"] == "recursive"


def test_a_backend_that_ignores_its_constraint_heals_nothing_and_is_not_believed() -> None:
    backend = FakeBackend(SPEAKING, honours=False)
    with playing(backend) as url, serving_backends(url) as there:
        body = {"prompt": "def add(x): return userNa", "n_predict": 4}
        answer = asked(there, body, "/completion")
    assert answer["suture"]["healing"]["level"] == "none"


def test_one_that_begins_to_ignore_its_constraint_is_asked_again_for_what_is_behind() -> None:
    backend = FakeBackend(SPEAKING)
    body = {"prompt": "def add(x): return userNa", "n_predict": 4, "healing": "recursive"}
    with playing(backend) as url, serving_backends(url) as there:
        backend.faults = deque(["wrong ids"])
        answer = asked(there, body, "/completion")
    assert answer["suture"]["healing"]["level"] == "none"
    assert answer["content"].startswith("me")


def test_streams_end_at_stop_strings_behind_the_cursor() -> None:
    backend = FakeBackend(SPEAKING)
    body = {"prompt": "def add(x): return use", "n_predict": 40, "stream": True, "stop": ["("]}
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        response = http.post("/completion", json=body | {"healing": "recursive"})
        assert until(lambda: backend.n_running == 0)
    told = [json.loads(event) for event in events(response)]
    assert "".join(event["content"] for event in told) == "rName"
    assert told[-1]["stop_type"] == "word"
    assert told[-1]["suture"]["healing"]["level"] == "recursive"


def test_what_a_client_leaves_ends_at_the_backend() -> None:
    backend = FakeBackend(SPEAKING, step_s=0.01)
    with playing(backend) as url, serving_backends(url) as there:
        backend.fault = "endless"
        with httpx2.Client(base_url=there, trust_env=False) as http:
            body = {"prompt": "def", "n_predict": 4000, "stream": True}
            with http.stream("POST", "/completion", json=body) as response:
                assert next(response.iter_raw())
        assert until(lambda: backend.n_running == 0)


def test_a_newer_request_of_a_session_ends_the_one_before_at_the_backend() -> None:
    backend = FakeBackend(SPEAKING, step_s=0.01)
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        backend.fault = "endless"
        body = infill("def ", n_predict=3000, session="s", seq=1, stream=True, shape="raw")
        with http.stream("POST", "/infill", json=body) as response:
            parts = response.iter_raw()
            assert next(parts)
            asked(there, infill("import", n_predict=2, session="s", seq=2, shape="raw"))
            assert b'"superseded"' in b"".join(parts)
        assert until(lambda: backend.n_running == 0)


@pytest.mark.parametrize(
    "fault", ["dies", "500", "garbage", "no events", "429", "503", "only ids outside"]
)
def test_what_fails_before_its_first_token_is_asked_of_another_backend(fault: Fault) -> None:
    one, other = FakeBackend(SPEAKING), FakeBackend(SPEAKING)
    body = {"prompt": "def add(x): return userNa", "n_predict": 9}
    with playing(one) as a, playing(other) as b, serving_backends(a, b) as there:
        n_asked = len(one.completions)
        asked(there, body, "/completion")
        first, second = (one, other) if len(one.completions) > n_asked else (other, one)
        first.faults, n_asked = deque([fault]), len(second.completions)
        assert asked(there, body, "/completion")["content"].startswith("me()")
        assert not first.faults
        assert len(second.completions) == n_asked + 1


@pytest.mark.parametrize(
    "fault", ["dies in the middle", "error in the middle", "half JSON", "ids outside"]
)
def test_what_fails_in_its_middle_is_an_error(fault: Fault) -> None:
    backend = FakeBackend(SPEAKING)
    body = {"prompt": "def", "n_predict": 30, "stream": True}
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        backend.faults = deque([fault])
        told = [json.loads(event) for event in events(http.post("/completion", json=body))]
        assert told[-1]["error"]["code"] == 500
        # It goes on.
        assert asked(there, body | {"stream": False}, "/completion")["content"]


def test_a_deadline_ends_a_text_that_stalls() -> None:
    backend = FakeBackend(SPEAKING)
    body = {"prompt": "def add", "t_max_predict_ms": 200, "n_predict": 30}
    with playing(backend) as url, serving_backends(url) as there:
        backend.fault = "stalls in the middle"
        answer = asked(there, body, "/completion")
        assert answer["suture"]["reason"] == "DEADLINE"
        assert until(lambda: backend.n_running == 0)


def test_without_a_backend_it_starts_says_so_and_recovers() -> None:
    backend = FakeBackend(SPEAKING)
    with playing(backend) as url:
        port = int(url.rpartition(":")[2])
    with serving_backends(url) as there, client(there) as http:
        refused = http.post("/infill", json=infill("def "))
        assert refused.status_code == 503
        assert refused.json()["suture"]["reason"] == "UNREACHABLE"
        health = http.get("/health")
        assert health.status_code == 503
        assert "no inference server" in health.text
        with playing(backend, port=port):
            assert until(lambda: http.get("/health").status_code == 200)
            assert asked(there, {"prompt": "def "}, "/completion")["content"]


def test_what_is_known_is_answered_while_every_backend_is_busy() -> None:
    backend = FakeBackend(in_ascii, kind="llama-server")
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        begun = infill("def ", session="s", seq=1, shape="raw")
        said = asked(there, begun)["content"]
        backend.fault = "429"
        assert http.post("/infill", json=infill("import")).status_code == 503
        typed = begun | {"input_prefix": "def " + said[:1], "seq": 2}
        assert asked(there, typed)["content"] == said[1:]
        assert asked(there, {"content": "def"}, "/tokenize")["tokens"]
        # What is not is refused, and the session goes on.
        assert http.post("/infill", json=begun | {"input_prefix": "x", "seq": 3}).status_code == 503
        assert asked(there, typed | {"seq": 3})["content"] == said[1:]


def test_before_the_backends_were_looked_at_it_is_loading() -> None:
    backend = FakeBackend(SPEAKING, fault="stalls")
    with playing(backend) as url, serving_backends(url, wait=False) as there, client(there) as http:
        for refused in (http.get("/health"), http.post("/completion", json={"prompt": "def "})):
            assert refused.status_code == 503
            assert refused.json()["suture"]["reason"] == "LOADING"


def test_a_sampler_that_a_server_lacks_is_refused_by_its_field() -> None:
    with playing(FakeBackend(ANY)) as url, serving_backends(url) as there, client(there) as http:
        response = http.post("/completion", json={"prompt": "def", "dry_multiplier": 0.5})
    assert response.status_code == 400
    assert "dry_multiplier" in response.text


def test_what_one_of_the_servers_lacks_is_refused_whichever_is_asked() -> None:
    one, other = FakeBackend(SPEAKING), FakeBackend(SPEAKING, kind="openai")
    with playing(one) as a, playing(other) as b, serving_backends(a, b) as there:
        with client(there) as http:
            for n in range(8):
                body = infill("x", path=f"{n}.py", grammar='root ::= "me"')
                response = http.post("/infill", json=body)
                assert (response.status_code, "grammar" in response.text) == (400, True)


def test_the_same_file_of_one_user_meets_the_same_replica() -> None:
    replicas = [FakeBackend(SPEAKING) for _ in range(3)]
    with (
        playing(replicas[0]) as a,
        playing(replicas[1]) as b,
        playing(replicas[2]) as c,
        serving_backends(a, b, c) as there,
    ):
        assert until(lambda: all(replica.completions for replica in replicas))
        for replica in replicas:
            replica.asked.clear()
        for user in range(6):
            for key in range(4):
                asked(there, infill(f"def x{key}", path=f"/w/{user}.py", user=f"u{user}"))
    keys = [{one.headers["x-session-id"] for one in replica.completions} for replica in replicas]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 6


def test_tokens_of_the_prompt_that_the_backend_had_are_reported() -> None:
    with playing(FakeBackend(ANY)) as url, serving_backends(url) as there:
        body = {"prompt": "def add(x): return", "n_predict": 3, "healing": "off"}
        asked(there, body, "/completion")
        again = asked(there, body, "/completion")["suture"]["prompt"]
    assert again["reused"] == again["tokens"] > 0


def test_an_openai_server_gets_a_clean_end_and_its_answer_is_checked() -> None:
    backend = FakeBackend(SPEAKING, kind="openai")
    with playing(backend) as url, serving_backends(url) as there:
        body = {"prompt": "def add(x): return userNa", "n_predict": 9}
        answer = asked(there, body, "/completion")
        assert answer["suture"]["healing"]["level"] == "hygiene"
        assert answer["content"].startswith("me()")
        assert backend.completions[-1].body["prompt"] == "def add(x): return"


def test_an_openai_server_that_does_not_say_a_word_again_gets_clean_ends_all_the_same() -> None:
    backend = FakeBackend(SPEAKING, kind="openai")
    with playing(backend) as url, serving_backends(url) as there:
        asked(there, {"prompt": "def add(x): return userimp", "n_predict": 9}, "/completion")
        prompts = [one.body["prompt"] for one in backend.completions[-2:]]
        assert prompts == ["def add(x): return", "def add(x): return userimp"]
        body = {"prompt": "def add(x): return userNa", "n_predict": 9}
        answer = asked(there, body, "/completion")
    assert answer["suture"]["healing"]["level"] == "hygiene"
    assert backend.completions[-1].body["prompt"] == "def add(x): return"
