"""A model that other servers run, through the whole of Suture's own server, over real sockets."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from support.fake_backend import FakeBackend, Fault, Kind, playing, until
from support.http_server import client, events, serving, settings
from support.remote_completer import serving_backends
from support.scripted_completer import scripted
from support.toy import PIECES, SPECIALS, toy_vocabulary
from suture.healing import TokenKind, Vocabulary
from suture.server.decoding.candidates import Logits
from suture.server.engine.remote import health as health_module
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
# Paths of dialects, and where in their errors the words are.
DIALECTS = [
    ("/completion", "error"),
    ("/v1/completions", "error"),
    ("/v1/fim/completions", "message"),
    ("/api/generate", "error"),
]


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


def test_nothing_is_made_ready_for_drafts_which_others_engines_do_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr("suture.server.completion._known", made)
    with playing(FakeBackend(SPEAKING)) as url, serving_backends(url) as there:
        assert asked(there, {"prompt": "def", "n_predict": 4}, "/completion")["content"]


@pytest.mark.parametrize("kind", ["vllm", "llama-server", "openai"])
@pytest.mark.parametrize("stream", [False, True])
def test_one_connection_serves_one_request_after_the_other(kind: Kind, stream: bool) -> None:
    backend = FakeBackend(in_ascii, kind=kind)
    body = {"prompt": "def", "n_predict": 4, "stream": stream}
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        for n in range(5):
            response = http.post("/completion", json=body | {"prompt": f"def f{n}"})
            assert response.status_code == 200
            if not n:
                n_before = backend.n_connections
        assert backend.n_connections == n_before


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
        # The connection is kept, and may have been closed before: it is tried over a new one.
        first.faults, n_asked = (
            deque([fault] * (2 if fault == "dies" else 1)),
            len(second.completions),
        )
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
        assert told[-1]["error"]["code"] == 502
        # It goes on.
        assert asked(there, body | {"stream": False}, "/completion")["content"]


@pytest.mark.parametrize(("path", "field"), DIALECTS)
def test_what_fails_in_its_middle_is_a_bad_gateway_where_nothing_was_shown(
    path: str, field: str
) -> None:
    backend = FakeBackend(SPEAKING)
    body = {"prompt": "def", "stream": False, "shape": "raw"}
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        backend.faults = deque(["dies in the middle"])
        response = http.post(path, json=body)
        assert response.status_code == 502
        assert "broke off" in str(response.json()[field])
        assert response.json()["suture"] == {"reason": "ERROR"}
        assert http.post(path, json=body).status_code == 200


@pytest.mark.parametrize(
    "fault", ["400", "500", "503", "dies", "dies in the middle", "half JSON", "no events"]
)
def test_clients_are_not_told_where_a_backend_is(
    fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    backend = FakeBackend(SPEAKING)
    body = {"prompt": "def", "n_predict": 30}
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        backend.fault = fault
        failed = http.post("/completion", json=body)
        backend.fault = None
    assert failed.status_code in (400, 502, 503)
    assert url.partition("//")[2] not in failed.text
    if failed.status_code == 502:
        assert f"{url}: " in caplog.text
    # What it says may quote the request: that is for the client alone.
    assert "to order" not in caplog.text
    with serving_backends(url) as there, client(there) as http:
        refused = http.post("/completion", json=body)
        assert refused.status_code == 503
        assert "no server answers there" in refused.text
        assert url.partition("//")[2] not in refused.text


def test_a_grammar_that_a_backend_cannot_read_is_refused_without_its_address() -> None:
    backend = FakeBackend(SPEAKING)
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        body = {"prompt": "def", "grammar": "root ::= (", "n_predict": 4}
        refused = http.post("/completion", json=body)
    assert refused.status_code == 400
    assert url.partition("//")[2] not in refused.text


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


def test_another_model_under_the_same_name_is_probed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "CALM_PAUSE_S", 0.05)
    backend = FakeBackend(SPEAKING)
    body = {"prompt": "def add(x): return userNa", "n_predict": 4}
    with playing(backend) as url, serving_backends(url) as there, client(there) as http:
        n_probed = len(backend.completions)
        time.sleep(0.3)
        assert len(backend.completions) == n_probed, "its times of creation are made up"
        backend.root, backend.vocabulary = "org/another", in_another_order(VOCABULARY)
        assert until(lambda: http.get("/health").status_code == 503)
        assert until(lambda: "tokenizer is another" in http.post("/completion", json=body).text)
        backend.root, backend.vocabulary = "org/toy", VOCABULARY
        assert until(lambda: http.get("/health").status_code == 200)
        assert asked(there, body, "/completion")["content"].startswith("me")


def in_another_order(vocabulary: Vocabulary) -> Vocabulary:
    """The same tokens with other ids, but for those of control."""
    n = vocabulary.n_vocab
    texts = [vocabulary.bytes_of(i) for i in range(len(PIECES))][::-1]
    return Vocabulary(
        [*texts, *(text.encode() for text in SPECIALS)],
        kinds=[TokenKind.NORMAL] * len(texts) + [TokenKind.CONTROL] * len(SPECIALS),
        n_vocab=n,
        bos_id=vocabulary.bos_id,
        eos_id=vocabulary.eos_id,
        eog_ids=vocabulary.eog_ids,
    )


@pytest.mark.parametrize("kind", ["vllm", "llama-server", "openai"])
@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_a_url_may_have_a_path(kind: Kind, end: str) -> None:
    backend = FakeBackend(in_ascii, kind=kind, under="/teams/code")
    with playing(backend) as url, serving_backends(f"{url}/teams/code{end}") as there:
        assert asked(there, {"prompt": "def ", "n_predict": 4}, "/completion")["content"]
        (one,) = httpx2.get(f"{there}/v1/status", trust_env=False).json()["backends"]
        assert (one["name"], one["kind"]) == (f"{url}/teams/code", kind)


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
