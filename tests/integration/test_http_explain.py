"""`POST /v1/explain` through the scripted engine."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.explaining import SPEAKING, exact, piece_names
from support.fake_completer import FakeCompleter
from support.http_server import Json, client, serving, settings
from support.scripted_completer import VOCABULARY
from suture.server.engine.protocol import Logits
from suture.server.engine.scripted import random_model
from suture.server.errors import EngineError, InfillUnsupported, Loading, QueueFull

ROUTE = "/v1/explain"
BODY: Json = {"input_prefix": "const userNa", "input_suffix": "", "fim_boundary": "move"}
HOLE: Json = BODY | {"input_suffix": ";\n"}
PAGES = Path(__file__).parents[2] / "server" / "pages" / "src"


def explained(body: Json, **flags: object) -> Json:
    at = settings(**flags)
    with exact(at) as completer, serving(completer, **flags) as url, client(url) as http:
        response = http.post(ROUTE, json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
    assert isinstance(answer, dict)
    return answer


def test_all_of_it_is_said() -> None:
    told = explained(BODY)
    assert (told["model"], told["asked"], told["finish"], told["reason"]) == (
        *("toy", "exact", "eos"),
        None,
    )
    assert told["cursor"]["before"] == "const userNa"
    boundary = told["boundary"]
    assert piece_names(boundary["typed"]) == ["const", " user", "Na"]
    assert piece_names(boundary["kept"]) == ["const"]
    assert (boundary["pending"], boundary["dropped_tokens"]) == (" userNa", 2)
    best, *others = told["covers"]["best"]
    assert piece_names(best["tokens"]) == [" userName"]
    assert (best["overhang"], best["exact_end"]) == ("me", False)
    assert best["probability"] > 0.99 > sum(one["probability"] for one in others)
    assert 0 < told["covers"]["evidence"]["probability"] <= 1
    texts = {method["name"]: method["text"] for method in told["methods"]}
    assert texts == dict.fromkeys(("off", "drop_one", "recursive", "exact"), "me = ()")
    levels = {method["name"]: method["level"] for method in told["methods"]}
    assert levels == {
        "off": "none",
        "drop_one": "recursive",
        "recursive": "recursive",
        "exact": "exact",
    }
    assert [method["name"] for method in told["methods"] if method["asked"]] == ["exact"]
    assert told["diagnoses"][0]["code"] == "INSIDE_WORD" and told["diagnoses"][0]["healed"]
    assert (told["prompt"]["layout"], told["prompt"]["boundary"]) == ("psm", "move")
    assert sum(one["tokens"] for one in told["prompt"]["segments"]) == told["prompt"]["tokens"]


def test_chunks_with_secrets_are_counted_and_not_shown() -> None:
    extra = [{"text": "KEY=1\n", "filename": ".env"}, {"text": "b = 1\n", "filename": "b.py"}]
    prompt = explained(BODY | {"input_extra": extra})["prompt"]
    assert (prompt["excluded"], prompt["truncated"]) == (1, False)
    assert [one["role"] for one in prompt["segments"]].count("extra") == 1


def test_a_second_asking_says_what_came_from_the_cache() -> None:
    body = BODY | {"input_prefix": "def x = ()\n" * 5 + "const userNa"}
    with exact(settings()) as completer, serving(completer) as url, client(url) as http:
        first, second = (http.post(ROUTE, json=body).json()["prompt"] for _ in range(2))
        assert http.post("/infill", json=body | {"temperature": 0}).status_code == 200
    assert first["reused"] == 0 and second["reused"] > first["tokens"] // 2
    assert second["evaluated"] == second["tokens"] - second["reused"]


def test_explaining_changes_no_answer() -> None:
    body = HOLE | {"temperature": 0, "n_predict": 8}
    with exact(settings()) as completer, serving(completer) as url, client(url) as http:
        before = http.post("/infill", json=body).json()
        told = http.post(ROUTE, json=body).json()
        after = http.post("/infill", json=body).json()
    assert before["content"] == after["content"] == told["methods"][-1]["text"]
    assert before["suture"]["healing"]["logprob"] == after["suture"]["healing"]["logprob"]


def test_the_bound_is_that_of_the_answer() -> None:
    """At an exact end not every follower is asked about: the answer is none the worse for it."""
    body = BODY | {"temperature": 0, "n_predict": 8}
    noise = random_model(VOCABULARY.n_vocab)
    with exact(settings(), noise) as completer, serving(completer) as url, client(url) as http:
        answer = http.post("/infill", json=body).json()["suture"]["healing"]
        told = http.post(ROUTE, json=body).json()["covers"]
    assert answer["level"] == "exact" and told["tv_bound"] == answer["tv_bound"]


@pytest.mark.parametrize("field", ["n_predict", "max_tokens"])
def test_no_tokens_are_one_and_all_are_as_many_as_may_be(field: str) -> None:
    assert explained(BODY | {field: 0})["finish"] == "length"
    assert explained(BODY | {field: -1})["finish"] == "eos"


def test_a_kept_tail_is_weak_and_its_prompt_is_run_once() -> None:
    with exact(settings()) as completer, serving(completer) as url, client(url) as http:
        told = http.post(ROUTE, json=HOLE | {"fim_boundary": "keep"}).json()
        assert completer.measured().counters.jobs == 1
    assert told["covers"] is None and told["reason"] == "EMPTY"
    assert [one["code"] for one in told["diagnoses"]] == ["INSIDE_WORD", "BEHIND_SENTINEL"]


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"healing": "off"}, "off"),
        ({"healing": "recursive"}, "recursive"),
        ({"healing": "recursive", "give_back": 1}, "drop_one"),
        ({"give_back": 2}, "exact"),
        ({"stream": True, "n": 3, "session": "s", "seq": 1, "n_predict": -1}, "exact"),
    ],
)
def test_the_method_asked_for_is_marked(fields: Json, asked: str) -> None:
    told = explained(BODY | fields)
    assert told["asked"] == asked and told["covers"] is not None
    assert [method["name"] for method in told["methods"] if method["asked"]] == [asked]


def test_a_number_of_a_session_supersedes_nothing() -> None:
    numbered = BODY | {"session": "s", "seq": 5, "temperature": 0}
    with exact(settings()) as completer, serving(completer) as url, client(url) as http:
        assert http.post(ROUTE, json=numbered | {"seq": 9}).status_code == 200
        answer = http.post("/infill", json=numbered).json()
    assert answer["suture"]["finish"] == "eos"


WRONG: list[tuple[Json, str | None]] = [
    ({"input_prefix": 1}, "input_prefix"),
    ({"input_prefix": "\ud800"}, "input_prefix"),
    ({"healing": "magic"}, "healing"),
    ({"give_back": 9}, "give_back"),
    ({"layout": "plain"}, "layout"),
    ({"fim_boundary": "mix"}, "fim_boundary"),
    ({"grammar": "root ::= ("}, "grammar"),
    ({"n_predict": "8"}, "n_predict"),
    ({"temperature": -1}, "temperature"),
    ({"n": 99}, "n"),
    ({"input_extra": [1]}, "input_extra[0]"),
]


@pytest.mark.parametrize(("fields", "field"), WRONG)
def test_bad_fields_are_a_400_that_names_them(fields: Json, field: str | None) -> None:
    with exact(settings()) as completer, serving(completer) as url, client(url) as http:
        response = http.post(ROUTE, content=json.dumps(BODY | fields))
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == field
        assert http.post(ROUTE, json=BODY).status_code == 200


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"input_prefix": NaN}', b"{}"])
def test_bad_bodies_are_a_400(raw: bytes) -> None:
    with serving(FakeCompleter()) as url, client(url) as http:
        response = http.post(ROUTE, content=raw)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert http.get(ROUTE).status_code == 405


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Loading("Loading model", retry_after=2), 503),
        (QueueFull("2 requests wait already", retry_after=2), 503),
        (InfillUnsupported("no sentinels"), 501),
        (EngineError("the engine failed"), 500),
    ],
)
def test_other_errors_have_the_shape_of_their_route(error: Exception, status: int) -> None:
    with serving(FakeCompleter(explanation=error)) as url, client(url) as http:
        response = http.post(ROUTE, json=BODY)
    assert response.status_code == status
    assert response.json()["error"]["message"] == str(error)
    assert ("Retry-After" in response.headers) == (status == 503)


def test_a_full_queue_is_a_503_and_a_client_that_leaves_ends_its_explanation() -> None:
    go = threading.Event()

    def gated(tokens: Sequence[int]) -> Logits:
        assert go.wait(20)
        return SPEAKING(tokens)

    flags = {"parallel": "1", "queue": "1"}
    at = settings(**flags)
    with exact(at, gated) as completer, serving(completer) as url:
        threads = [threading.Thread(target=_leave, args=(url,)) for _ in range(2)]
        for n, thread in enumerate(threads):
            thread.start()
            _until(lambda n=n: _at_work(completer) == n + 1)
        with client(url) as http:
            response = http.post(ROUTE, json=BODY)
            assert response.status_code == 503 and "Retry-After" in response.headers
            for thread in threads:
                thread.join()
            go.set()
            _until(lambda: _at_work(completer) == 0)
            assert http.post(ROUTE, json=BODY).status_code == 200
        assert completer.measured().counters.failures == 0


def _leave(url: str) -> None:
    with client(url) as http, pytest.raises(Exception, match="timed out"):
        http.post(ROUTE, json=BODY, timeout=1.0)


def _at_work(completer: object) -> int:
    measured = completer.measured()  # type: ignore[attr-defined]
    return int(measured.running + measured.waiting)


def _until(condition: object) -> None:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_unforeseen_failure_is_logged_without_the_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeCompleter(explanation=KeyError("const secret"))
    with caplog.at_level(logging.DEBUG), serving(fake) as url, client(url) as http:
        response = http.post(ROUTE, json={"input_prefix": "const secret", "input_suffix": ""})
    assert response.status_code == 500 and response.json()["error"]["message"] == "internal error"
    assert "KeyError" in caplog.text and "secret" not in caplog.text


HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</textarea></script>\u2028\u2029\x00\x1b[31m\x07",
    "\u202egnp.exe\u202c é🎉 e\u0301 \r\n\t",
    "<|fim_prefix|><|endoftext|>[bold]x[/bold]",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_it_is(text: str) -> None:
    told = explained({"input_prefix": text, "input_suffix": text})
    assert text.endswith(told["cursor"]["before"]) and text.startswith(told["cursor"]["after"])
    assert bytes(told["cursor"]["before_bytes"]).decode() == told["cursor"]["before"]


def test_the_page_asks_for_what_an_answer_has() -> None:
    script = (PAGES / "explain.js").read_text("utf-8")
    told = explained(BODY)
    assert set(re.findall(r"\bsaid\.(\w+)", script)) <= told.keys()
    for part, name in (
        ("prompt", r"said\.prompt"),
        ("covers", "found"),
        ("cursor", r"said\.cursor"),
    ):
        assert set(re.findall(rf"\b{name}\.(\w+)", script)) <= told[part].keys(), part
