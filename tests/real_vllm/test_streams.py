"""Streams, stop strings, and clients that leave."""

from __future__ import annotations

import http.client
import json
from typing import Any

import httpx2
import pytest

from e2e.conftest import TIMEOUT_S, Served
from support.cut_texts import cut_holes
from support.same_text import Record
from support.vllm_servers import Backend, until

HOLES = cut_holes()
ASKED: dict[str, Any] = {"temperature": 0, "n_predict": 24, "healing": "recursive", "shape": "raw"}
ENDLESS = ASKED | {"n_predict": 7000, "ignore_eos": True}
# So many tokens take ten seconds: what is told of an engine so fast is late by some thousand.
BEFORE_ITS_END = 6500


def events(served: Served, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    url = served.url + path
    with httpx2.stream("POST", url, json=body | {"stream": True}, timeout=TIMEOUT_S) as response:
        assert response.status_code == 200
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("name", ["library 2", "emoji", "backslashes", "indentation"])
def test_a_stream_is_the_text_in_pieces_as_they_come(name: str, remote: Served) -> None:
    body = ASKED | {"prompt": HOLES[name][0]}
    whole = remote.post("/completion", body)
    told = events(remote, "/completion", body)

    assert "".join(event["content"] for event in told) == whole["content"]
    assert sum(bool(event["content"]) for event in told) > ASKED["n_predict"] // 2
    assert told[-1]["suture"]["healing"] == whole["suture"]["healing"]
    assert told[-1]["suture"]["finish"] == "length"


def test_a_stop_string_in_the_bytes_given_back_stops_nothing(
    embedded: Served, remote: Served
) -> None:
    body = ASKED | {"prompt": HOLES["indentation"][0], "give_back": "stable"}
    free = remote.post("/completion", body)
    assert free["suture"]["healing"]["pending"] == "\n    "
    # Whatever stands in the text itself must not end it.
    (stop,) = [stop for stop in ("\n    ", "\n   ", "\n") if stop not in free["content"]][:1]

    stopped = remote.post("/completion", body | {"stop": [stop]})
    assert stopped["content"] == free["content"]
    assert stopped["suture"]["finish"] == "length"
    assert embedded.post("/completion", body | {"stop": [stop]})["content"] == free["content"]


@pytest.mark.parametrize("n_characters", [1, 3, 9])
def test_a_stop_string_ends_the_text_before_it(n_characters: int, remote: Served) -> None:
    body = ASKED | {"prompt": HOLES["library 7"][0]}
    whole = remote.post("/completion", body)["content"]
    stop = whole[len(whole) // 2 :][:n_characters]

    expected = whole[: whole.index(stop)]
    stopped = remote.post("/completion", body | {"stop": [stop]})
    assert (stopped["content"], stopped["suture"]["finish"]) == (expected, "stop")
    told = events(remote, "/completion", body | {"stop": [stop]})
    assert "".join(event["content"] for event in told) == expected
    assert told[-1]["suture"]["finish"] == "stop"


def test_a_stop_string_frees_the_engine(remote: Served, backend: Backend) -> None:
    body = ENDLESS | {"prompt": HOLES["library 7"][0]}
    start = remote.post("/completion", body | {"n_predict": 24})["content"]
    before = backend.metric("vllm:generation_tokens_total")

    stopped = remote.post("/completion", body | {"stop": [start[8:12]]})
    assert stopped["suture"]["finish"] == "stop"
    idle_after(backend)
    assert backend.metric("vllm:generation_tokens_total") - before < BEFORE_ITS_END


@pytest.mark.parametrize("path", ["/completion", "/infill"])
def test_who_leaves_a_stream_frees_the_engine(
    path: str, remote: Served, backend: Backend, record_property: Record
) -> None:
    prefix, suffix = HOLES["library 4"]
    hole = {"input_prefix": prefix, "input_suffix": suffix}
    body = ENDLESS | ({"prompt": prefix} if path == "/completion" else hole) | {"stream": True}
    before = backend.metric("vllm:generation_tokens_total")
    with httpx2.stream("POST", remote.url + path, json=body, timeout=TIMEOUT_S) as response:
        # A line is left to be read: an iterator that is dropped closes the connection.
        lines = response.iter_lines()
        next(lines)
        until(lambda: backend.n_running > 0, "the engine does nothing")

    took = idle_after(backend)
    n_tokens = backend.metric("vllm:generation_tokens_total") - before
    assert n_tokens < BEFORE_ITS_END
    record_property(f"{path}: tokens of 7000, idle after", f"{n_tokens:.0f}, {took * 1000:.0f} ms")


def test_who_leaves_before_the_answer_frees_the_engine(remote: Served, backend: Backend) -> None:
    before = backend.metric("vllm:generation_tokens_total")
    body = json.dumps(ENDLESS | {"prompt": HOLES["library 4"][0]})
    leaving = http.client.HTTPConnection(remote.url.removeprefix("http://"))
    leaving.request("POST", "/completion", body, {"Content-Type": "application/json"})
    until(lambda: backend.n_running > 0, "the engine does nothing")
    leaving.close()

    idle_after(backend)
    assert backend.metric("vllm:generation_tokens_total") - before < BEFORE_ITS_END


def idle_after(backend: Backend) -> float:
    """Seconds until the engine has nothing to do."""
    return until(lambda: not backend.n_running, "the engine goes on")
