"""What `/v1/status` says of the requests of late, and what users did with their texts."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter, says
from support.http_server import Json, client, serving, settings
from support.scripted_completer import VOCABULARY, scripted
from suture.server.engine.scripted import speaking_model
from suture.server.errors import EngineError, Loading
from suture.server.routes.status import resident_bytes

SPEAKS = speaking_model(VOCABULARY, b"def x = (me)")


def infill(prefix: str, **fields: object) -> Json:
    return {"input_prefix": prefix, "input_suffix": "", "temperature": 0, **fields}


def test_requests_of_all_dialects_are_noted() -> None:
    with scripted(SPEAKS, settings()) as completer, serving(completer) as url, client(url) as http:
        assert http.post("/infill", json=infill("def x")).status_code == 200
        assert http.post("/infill", json=infill("def x", stream=True)).status_code == 200
        openai = {"prompt": "def x", "max_tokens": 4, "temperature": 0}
        assert http.post("/v1/completions", json=openai).status_code == 200
        recent = http.get("/v1/status").json()["recent"]
    assert recent["per_minute"] == recent["requests"] == 3
    assert recent["first_text_ms"]["p95"] <= recent["total_ms"]["p95"]
    assert recent["reused_tokens"] > 0 and recent["prompt_tokens"] > recent["reused_tokens"]
    assert sum(recent["finish"].values()) == 3 == sum(recent["by_second"]["requests"])
    assert len(recent["by_second"]["first_text_ms"]) == 60


def test_a_suggestion_that_is_typed_through_reads_nothing() -> None:
    with scripted(SPEAKS, settings()) as completer, serving(completer) as url, client(url) as http:
        for seq, prefix in enumerate(("def x", "def x =", "def x = (")):
            http.post("/infill", json=infill(prefix, session="s", seq=seq))
        evaluated = http.get("/v1/status").json()["recent"]["evaluated_tokens"]
    assert evaluated["p50"] == 0 and evaluated["p95"] > 0


@pytest.mark.parametrize(
    ("error", "reason"), [(Loading("Loading model"), "LOADING"), (EngineError("no"), "ERROR")]
)
def test_what_fails_is_noted_with_its_reason(error: Exception, reason: str) -> None:
    with serving(FakeCompleter([error])) as url, client(url) as http:
        assert http.post("/infill", json=infill("a")).status_code >= 500
        recent = http.get("/v1/status").json()["recent"]
    assert recent["finish"] == {"error": 1} and recent["reasons"] == {reason: 1}


def test_a_client_that_leaves_is_noted() -> None:
    with serving(FakeCompleter(says("a", "b"), delay_s=0.5)) as url, client(url) as http:
        with pytest.raises(Exception, match="timed out"):
            http.post("/infill", json=infill("a"), timeout=0.2)
        end = time.monotonic() + 10
        while not (recent := http.get("/v1/status").json()["recent"])["requests"]:
            assert time.monotonic() < end
    assert recent["finish"] == {"cancelled": 1} and recent["reasons"] == {"CANCELLED": 1}
    assert recent["total_ms"] is None


def test_what_users_did_is_counted() -> None:
    event: Json = {"completion_id": "a", "choice_index": 0}
    with serving(FakeCompleter()) as url, client(url) as http:
        for kind, times in (("view", 3), ("select", 2), ("dismiss", 1)):
            for _ in range(times):
                assert http.post("/v1/events", json=event | {"type": kind}).status_code == 200
        http.post("/v1/events?select_kind=line", json=event | {"type": "select"})
        shown = http.get("/v1/status").json()["shown"]
    assert shown == {"view": 3, "select": 2, "select_line": 1, "dismiss": 1}


def test_r2_nothing_of_a_text_is_in_it() -> None:
    secret = "hunter2"
    model = speaking_model(VOCABULARY, f"def {secret} = {secret}".encode())
    with scripted(model, settings()) as completer, serving(completer) as url, client(url) as http:
        body = infill(f"def {secret}", session=secret, seq=1, path=secret, language=secret)
        assert secret in http.post("/infill", json=body).json()["content"]
        assert secret not in json.dumps(http.get("/v1/status").json())


def test_the_memory_of_the_process_is_told_where_it_can_be(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path / "none") is None
    (tmp_path / "statm").write_text("9 4 3 2 1 0 0\n")
    assert resident_bytes(tmp_path / "statm") == 4 * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "linux":
        assert (resident_bytes() or 0) > 2**20
