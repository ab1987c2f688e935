"""`serve` with real processes and sockets, and a scripted completer in place of a model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from support.fake_completer import FakeCompleter
from support.http_server import client, serving, settings
from support.raw_http import until
from suture.server import cli
from suture.server.commands import serve
from suture.server.errors import SetupError
from suture.server.worker_process import start_worker

TESTS = Path(__file__).parents[1]
CERT, KEY = (TESTS / "support" / "tls" / name for name in ("cert.pem", "key.pem"))
FAKE_WORKER = (sys.executable, str(TESTS / "support" / "fake_worker.py"))

# What `serve` does once the model's file is found, in a process of its own.
SERVE = """
import json, sys
from suture.server.commands import serve
from suture.server.supervisor import Supervisor
from suture.server.worker_process import start_worker
from support.http_server import settings
at = settings(**{'port': 0} | json.loads(sys.argv[1]))
with serve.bind(at) as listener:
    serve.listen(listener, at)
    command = sys.argv[2:]
    def spawn(follows):
        return start_worker(listener, at, command, follows=follows)
    sys.exit(Supervisor(spawn, lambda: spawn, pauses_s=(0.1, 0.1)).run())
"""


@contextmanager
def served(kind: str = "", **flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A serving process and its URL, once it says that it listens."""
    process = start(kind, **flags)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on http"), line
        yield process, line.split()[-1]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)


def start(kind: str, **flags: str) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, json.dumps(flags), *FAKE_WORKER, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )


def complete(http: httpx2.Client, prefix: str) -> httpx2.Response:
    return http.post("/infill", json={"input_prefix": prefix, "input_suffix": ""})


def test_it_says_that_it_listens_when_the_model_is_loaded_and_drains_on_sigterm() -> None:
    with served("slow") as (process, url), client(url) as http:
        assert http.get("/health").status_code == 200
        assert complete(http, "x").json()["content"] == "range(3)"
        status = http.get("/v1/status").json()
        assert status["pid"] != process.pid
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0
        assert errors.splitlines() == ["started", "closed"]


def test_a_request_in_progress_is_finished_before_the_end() -> None:
    with served() as (process, url), asking(url, "long") as running:
        process.send_signal(signal.SIGINT)
        assert running.result().json()["content"] == "range(3)"
        process.communicate(timeout=20)
        assert process.returncode == 130


@contextmanager
def asking(url: str, prefix: str) -> Iterator[Future[httpx2.Response]]:
    """A request of its own that runs beside the block."""

    def ask() -> httpx2.Response:
        with client(url) as http:
            return complete(http, prefix)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        with client(url) as http:
            assert until(lambda: http.get("/v1/status").json()["running"] == 1)
        yield asked


def until_it_stops(http: httpx2.Client) -> httpx2.Response:
    """How `/health` refuses, once it does, on a connection that was open before."""
    while (refused := http.get("/health")).status_code == 200:
        time.sleep(0.02)
    return refused


def test_q1_q2_q3_what_runs_is_answered_and_what_is_new_refused_in_its_dialect() -> None:
    with served(drain_s="60") as (process, url), client(url) as http:
        assert http.get("/health").status_code == 200
        with asking(url, "longer") as running:
            process.terminate()
            refused = until_it_stops(http)
            with pytest.raises(SetupError, match="is in use by a Suture that is stopping"):
                serve.bind(settings(port=url.rpartition(":")[2]))
            with client(url) as another:
                told = [
                    refused,
                    another.get("/health"),
                    complete(another, "x"),
                    another.post("/v1/completions", json={"prompt": "x"}),
                    another.post("/api/generate", json={"prompt": "x"}),
                ]
            assert running.result().json()["content"] == "range(3)"
        assert {response.status_code for response in told} == {503}
        assert {response.headers["retry-after"] for response in told} == {"1"}
        assert {response.headers["connection"] for response in told} == {"close"}
        assert running.result().headers["connection"] == "close"
        assert told[2].json()["error"]["type"] == "unavailable_error"
        assert told[4].json()["error"] == "the server is stopping"
        assert told[4].json()["suture"] == {"reason": "CANCELLED"}
        assert process.wait(timeout=20) == 0


def test_what_takes_longer_than_the_drain_is_ended_by_the_completer() -> None:
    with served(drain_s="0") as (process, url), asking(url, "endless") as running:
        process.terminate()
        assert running.result().json()["content"] == "range(3)"
        assert process.wait(timeout=20) == 0
        assert process.stderr is not None
        assert process.stderr.read().splitlines() == ["started", "cancelled", "closed"]


def test_a_second_signal_does_not_wait() -> None:
    with served(drain_s="600") as (process, url), client(url) as http:
        assert http.get("/health").status_code == 200
        with asking(url, "endless") as running:
            process.terminate()
            assert until_it_stops(http).status_code == 503
            process.terminate()
            assert process.wait(timeout=20) == 0
            with pytest.raises(httpx2.RemoteProtocolError):
                running.result()


def test_on_sighup_another_worker_takes_over_and_no_request_is_lost() -> None:
    with served("slow") as (process, url), client(url) as http:
        pids = {http.get("/v1/status").json()["pid"]}
        with asking(url, "long") as running:
            process.send_signal(signal.SIGHUP)
            ends = time.monotonic() + 20
            while len(pids) < 2 and time.monotonic() < ends:
                # Each on a new connection, and all of them on one that is kept.
                with client(url) as another:
                    assert complete(another, "x").json()["content"] == "range(3)"
                assert http.get("/health").status_code == 200
                pids.add(http.get("/v1/status").json()["pid"])
            assert running.result().json()["content"] == "range(3)"
        assert len(pids) == 2
        with client(url) as another:
            assert another.get("/v1/status").json()["pid"] in pids
        process.terminate()
        out, errors = process.communicate(timeout=20)
        assert process.returncode == 0 and out.count("listening on ") == 1
        assert errors.splitlines().count("closed") == 2 and "cancelled" not in errors


def test_after_a_crash_the_next_request_is_served_by_a_new_worker() -> None:
    with served() as (process, url), client(url) as http:
        first = http.get("/v1/status").json()["pid"]
        with pytest.raises(httpx2.RemoteProtocolError):
            complete(http, "crash")
        # No wait: the parent's socket takes the connection while there is no worker.
        assert complete(http, "x").json()["content"] == "range(3)"
        assert http.get("/v1/status").json()["pid"] != first
        process.terminate()
        assert "the worker died of SIGABRT: starting it again" in process.communicate()[1]


def test_it_serves_on_where_nobody_reads_what_it_says() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = start("slow", port=str(port))
    assert process.stdout is not None
    process.stdout.close()
    with client(f"http://127.0.0.1:{port}") as http:
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            with suppress(httpx2.ConnectError):
                if http.get("/health").status_code == 200:
                    break
            time.sleep(0.1)
        time.sleep(1)
        assert complete(http, "x").json()["content"] == "range(3)"
    process.terminate()
    assert process.wait(timeout=20) == 0
    assert process.stderr is not None
    assert process.stderr.read().splitlines() == ["started", "closed"]
    process.stderr.close()


def test_a_model_that_cannot_be_loaded_is_one_line_and_status_2() -> None:
    process = start("broken")
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (2, "")
    assert errors.splitlines() == ["started", "closed", "suture: /m.gguf: not a GGUF file"]


def test_an_engine_that_fails_for_good_is_restarted_and_given_up() -> None:
    process = start("dead")
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 3
    assert errors.count("suture: the engine is gone") == 3
    assert errors.endswith("3 times in a row: giving up\n")


def test_a_worker_whose_parent_is_killed_ends() -> None:
    with served() as (process, url), client(url) as http:
        worker = http.get("/v1/status").json()["pid"]
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and Path(f"/proc/{worker}").exists():
            time.sleep(0.02)
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_a_worker_that_dies_at_once_is_no_error_to_start() -> None:
    at = settings(port=0)
    with serve.bind(at) as listener:
        worker = start_worker(listener, at, ("true",))
        assert list(worker.news) == []
        assert worker.wait() == 0


def test_a_port_in_use_is_named_with_who_holds_it() -> None:
    with serving(FakeCompleter()) as url:
        port = url.rsplit(":", 1)[1]
        with pytest.raises(SetupError, match=rf"port {port} is in use by Suture .*model toy"):
            serve.bind(settings(port=port))
    with serve.bind(settings(port=0)) as other:
        other.listen()
        port = str(other.getsockname()[1])
        with pytest.raises(SetupError, match=f"port {port} is in use by another program"):
            serve.bind(settings(port=port))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example"])
def test_a_network_is_not_served_by_accident(host: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="open to the network"):
        serve.check_exposure(settings(host=host))
    serve.check_exposure(settings(host=host, allow_host=["box.example"]))
    keys = tmp_path / "keys"
    keys.write_text("key")
    serve.check_exposure(settings(host=host, api_key_file=keys))


@pytest.mark.parametrize("url", ["gpu-1:8000", "foo", "ftp://gpu-1", "http://", "http://gpu-1/?x"])
def test_what_is_no_url_of_an_engine_is_said_before_anything_is_loaded(url: str) -> None:
    with pytest.raises(SetupError, match="expected a URL"):
        serve.check_engine(settings(engine="remote", engine_url=["http://gpu-1", url]))


def test_certificate_and_key_go_together_and_must_fit(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="go together"):
        serve.check_tls(settings(tls_cert=CERT))
    with pytest.raises(SetupError, match="No such file"):
        serve.check_tls(settings(tls_cert=CERT, tls_key=tmp_path / "missing"))
    with pytest.raises(SetupError, match="--tls-key"):
        serve.check_tls(settings(tls_cert=CERT, tls_key=CERT))
    serve.check_tls(settings(tls_cert=CERT, tls_key=KEY))
    serve.check_tls(settings())


def test_tls_is_served_and_trusted_by_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    with served("", tls_cert=str(CERT), tls_key=str(KEY)) as (_, url):
        assert url.startswith("https://")
        monkeypatch.setenv("SUTURE_TLS_CERT", str(CERT))
        monkeypatch.setenv("SUTURE_PORT", url.rsplit(":", 1)[1])
        assert cli.main(["complete", f"{CERT}:1:1"]) == 0
        assert capfd.readouterr() == ("range(3)", "")
        monkeypatch.delenv("SUTURE_TLS_CERT")
        assert cli.main(["complete", f"{CERT}:1:1", "--server", url]) == 3
        assert "SSL_CERT_FILE" in capfd.readouterr().err


@pytest.mark.parametrize("verb", ["complete", "explain"])
def test_certificates_are_trusted_that_the_environment_names(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    # They are no reason to ask a proxy.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with served("", tls_cert=str(CERT), tls_key=str(KEY)) as (_, url):
        asked = [verb, f"{CERT}:1:1", "--server", url]
        monkeypatch.setenv("SSL_CERT_FILE", str(CERT))
        assert cli.main(asked) == 0
        assert capfd.readouterr().err == ""
        monkeypatch.setenv("SSL_CERT_FILE", "")
        assert cli.main(asked) == 3
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
        assert cli.main(asked) == 2
        assert "SSL_CERT_FILE: " in capfd.readouterr().err


def test_an_address_that_is_not_ours_is_one_line() -> None:
    with pytest.raises(SetupError, match="cannot listen on 192"):
        serve.bind(settings(host="192.0.2.1"))
    with pytest.raises(SetupError, match=r"--host no\.such\.host\.invalid"):
        serve.bind(settings(host="no.such.host.invalid"))
