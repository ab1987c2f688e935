"""`suture serve` in front of llama.cpp's own server, as processes, over a real model."""

from __future__ import annotations

import importlib.util
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from e2e.conftest import TIMEOUT_S, Served, run_suture, serving
from support.fake_backend import until
from support.llama_server import llama_cpp_server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.model,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None, reason="pip install xllamacpp, for the peer"
    ),
]

# Cut inside words, numbers, blanks and signs.
CODE = '''\
import json
from pathlib import Path


class Reader:
    """Reads settings: naïve, 我很好, 😀."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = [name for name in path.read_text("utf-8").split("\\n") if name]

    def first(self, default: str = "nobody") -> str:
        if not self.names:
            return default
        return self.names[0].strip()
'''
# Their log probabilities differ by up to 0.2.
NOISE = 0.4
CUTS = [40, 71, 96, 120, 133, 177, 210, 246, 301, 333, 388, 402]


@pytest.fixture(scope="module")
def llama_server(small_model: Path) -> Iterator[str]:
    with llama_cpp_server(small_model) as url:
        yield url


@pytest.fixture(scope="module")
def in_front(llama_server: str, small_model: Path) -> Iterator[Served]:
    flags = ("--engine", "remote", "--engine-url", llama_server, "--model", str(small_model))
    with serving(*flags) as served:
        yield served


def completed(served: Served, prompt: str, **fields: Any) -> Any:
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "healing": "recursive"} | fields
    return served.post("/completion", body)


def test_the_probe_says_how_it_heals(in_front: Served) -> None:
    (backend,) = in_front.status()["backends"]
    assert (backend["kind"], backend["level"]) == ("llama-server", "recursive")


def test_embedded_and_remote_say_the_same(in_front: Served, small_server: Served) -> None:
    for cut in CUTS:
        there, here = (completed(one, CODE[:cut], n_probs=4) for one in (in_front, small_server))
        for field in ("level", "pending", "dropped_tokens"):
            told = there["suture"]["healing"][field], here["suture"]["healing"][field]
            assert told[0] == told[1], (cut, field)
        pairs = zip(
            there["completion_probabilities"], here["completion_probabilities"], strict=True
        )
        parted = next(((a, b) for a, b in pairs if a["id"] != b["id"]), None)
        if parted is None:
            assert there["content"] == here["content"]
        else:
            # The two are builds of their own: what is nearly a tie may turn.
            assert behind(parted[0]["id"], parted[1]) < NOISE, (cut, parted)


def behind(token_id: int, scored: Any) -> float:
    """By how many nats a token is behind the best one in its place."""
    tops = {one["id"]: one["logprob"] for one in scored["top_logprobs"]}
    return float(max(tops.values()) - tops.get(token_id, -99.0))


def test_streams_stop_and_leave_the_engine_idle(in_front: Served, llama_server: str) -> None:
    asked = {"prompt": CODE[:246], "n_predict": 200, "stop": ["\n"], "temperature": 0}
    body = asked | {"stream": True}
    response = httpx2.post(in_front.url + "/completion", json=body, timeout=TIMEOUT_S)
    assert '"stop_type":"word"' in response.text
    assert until(lambda: is_idle(llama_server))


def test_who_leaves_frees_the_engine(in_front: Served, llama_server: str) -> None:
    body = {"prompt": CODE, "n_predict": 2000, "ignore_eos": True, "stream": True}
    with httpx2.stream("POST", in_front.url + "/completion", json=body, timeout=TIMEOUT_S) as told:
        next(told.iter_raw())
    # Sooner than so many tokens can be written.
    assert until(lambda: is_idle(llama_server))


def is_idle(url: str) -> bool:
    return not any(slot["is_processing"] for slot in httpx2.get(url + "/slots").json())


def test_a_grammar_and_healing_share_the_one_constraint(in_front: Served) -> None:
    answer = completed(in_front, "the answer is ye", grammar='root ::= "s" | "sterday"')
    assert answer["content"] in ("s", "sterday")
    assert answer["suture"]["healing"]["level"] == "recursive"


def test_the_command_line_asks_it(in_front: Served) -> None:
    done = run_suture(
        "complete", "-", "--server", in_front.url, "--max-tokens", "4", stdin=b"import num\0"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"py")


def test_it_starts_without_its_engine_and_ends_in_order(small_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    flags = ("--engine", "remote", "--engine-url", nobody, "--model", str(small_model))
    with serving(*flags) as served:
        health = httpx2.get(served.url + "/health", timeout=TIMEOUT_S)
        assert (health.status_code, health.json()["suture"]["reason"]) == (503, "UNREACHABLE")
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--engine", "remote"), b"--engine-url"),
        (("--engine-url", "http://127.0.0.1:1"), b"--engine remote"),
        (("--engine", "remote", "--engine-url", "ftp://x"), b"ftp"),
        (("--engine", "remote", "--engine-url", "http://a", "--engine-url", "http://a"), b"twice"),
        (("--engine", "remote", "--engine-url", "http://a", "--also-serve", "x"), b"--also-serve"),
        (("--engine", "remote", "--engine-kind", "tgi"), b"--engine-kind"),
    ],
)
def test_wrong_settings_are_told(small_model: Path, flags: tuple[str, ...], said: bytes) -> None:
    done = run_suture("serve", "--port", "0", "--model", str(small_model), *flags)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1
