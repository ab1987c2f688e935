"""`suture serve` as a user starts it, on a tiny model with random weights, under bad company."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from e2e.test_faults import Served, resident, serving
from support.raw_http import answers, connection, head, post
from support.route_bodies import POSTS, bodies
from support.tiny_models import tiny_model
from support.vocabularies import pulled

pytestmark = [pytest.mark.e2e, pytest.mark.model]

MARK = "hunter2"
TLS = Path(__file__).parents[1] / "support" / "tls"
DEBUG = {"SUTURE_DEBUG": "1", "PYTHONASYNCIODEBUG": "1"}


@pytest.fixture(scope="module")
def tiny(model_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    [vocabulary] = pulled(["vocab-llama-spm"], model_store).values()
    return tiny_model(vocabulary, tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def worker_of(served: Served) -> int:
    return int(served.status()["pid"])


def test_nothing_of_a_request_is_written_also_by_llama_cpp(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in DEBUG.items():
        monkeypatch.setenv(name, value)
    text = f"password = '{MARK}'\n" * 3
    with serving(tiny, tmp_path) as served:
        asked = bodies(text)
        for path in POSTS:
            for body in (json.dumps(asked[path]), json.dumps(asked[path] | {"stream": True})):
                httpx2.post(served.url + path, content=body, timeout=60)
            httpx2.post(served.url + path, content=body[:-2], timeout=60)
        pages = ("/metrics", "/slots", "/v1/status", "/props")
        told = [httpx2.get(served.url + path, timeout=60).text for path in pages]
        process = Path(f"/proc/{worker_of(served)}")
        told += [(process / name).read_text() for name in ("cmdline", "environ")]
    assert MARK not in served.log.read_text()
    assert not [one for one in told if MARK in one]


@pytest.mark.usefixtures("descriptors")
def test_a_thousand_idle_connections_and_large_bodies_slow_nobody(
    tiny: Path, tmp_path: Path
) -> None:
    with serving(tiny, tmp_path) as served, contextlib.ExitStack() as stack:
        before = resident(worker_of(served))
        for n in range(1000):
            idle = stack.enter_context(connection(served.url, 60))
            idle.sendall(head("GET", "/health") if n % 2 else b"")
        body = json.dumps({"prompt": "import nump", "max_tokens": 8, "temperature": 0}).encode()
        statuses: list[int] = []

        def send_too_much() -> None:
            with connection(served.url, 60) as large:
                large.sendall(head("POST", "/infill", f"Content-Length: {100 * 2**20}"))
                for _ in range(100):
                    large.sendall(b"x" * 2**20)
                statuses.append(answers(large)[0].status)

        sending = threading.Thread(target=send_too_much)
        sending.start()
        slowest = 0.0
        for _ in range(10):
            began = time.monotonic()
            with connection(served.url, 60) as one:
                one.sendall(post("/v1/completions", body))
                assert answers(one)[0].status == 200
            slowest = max(slowest, time.monotonic() - began)
        sending.join(60)
        assert statuses == [413] and slowest < 10
        assert resident(worker_of(served)) - before < 96 * 2**20
    assert not served.log.read_text().count("ERROR")


def test_files_of_keys_that_others_may_read_are_named_and_no_key_is(
    tiny: Path, tmp_path: Path
) -> None:
    keys, private = tmp_path / "keys", tmp_path / "key.pem"
    keys.write_text(f"{MARK}\nother\n")
    keys.chmod(0o644)
    private.write_bytes((TLS / "key.pem").read_bytes())
    private.chmod(stat.S_IRUSR)
    tls = ("--tls-cert", str(TLS / "cert.pem"), "--tls-key", str(private))
    trust = ssl.create_default_context(cafile=TLS / "cert.pem")
    with (
        serving(tiny, tmp_path, "--api-key-file", str(keys), *tls) as served,
        httpx2.Client(base_url=served.url, verify=trust, trust_env=False, timeout=60) as http,
    ):
        assert http.get("/v1/models").status_code == 401
        assert http.get("/v1/models", headers={"X-Api-Key": MARK}).status_code == 200
        status = http.get("/v1/status", headers={"Authorization": f"Bearer {MARK}"})
        pids = (served.process.pid, int(status.json()["pid"]))
        shown = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("cmdline", "environ")]
        assert not [path for path in shown if MARK.encode() in path.read_bytes()]
        assert MARK not in status.text
    warnings = served.log.read_text().splitlines()
    assert f"suture: {keys} can be read or changed by others: chmod 600" in warnings
    assert not any(str(private) in line or MARK in line for line in warnings)


def test_a_server_for_the_network_wants_keys(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="open to the network"):
        with serving(tiny, tmp_path, "--host", "0.0.0.0"):
            pass
    assert os.environ.get("SUTURE_API_KEY_FILE") is None
