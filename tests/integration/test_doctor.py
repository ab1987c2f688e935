"""What `suture doctor` finds."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter
from support.http_server import serving
from support.vocabularies import pulled
from suture.server import cli
from suture.server.doctor import running
from suture.server.engine import libllama
from suture.server.errors import EngineError, SetupError
from suture.server.routes.completer import State
from suture.server.settings import load_settings
from suture.server.version import VERSION


@pytest.fixture
def port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def doctor(capfd: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    status = cli.main(["doctor", *flags])
    return status, capfd.readouterr().out


def test_the_pinned_build_is_found_sound(capfd: pytest.CaptureFixture[str], port: str) -> None:
    status, out = doctor(capfd, "--port", port)
    assert status == 0
    assert f"llama-cpp-python {libllama.PINNED_VERSION}: version, struct sizes, defaults" in out
    assert "backends: CPU" in out and "problem" not in out


@pytest.mark.parametrize(
    ("constant", "value", "told"),
    [
        ("PINNED_VERSION", "0.3.99", "this Suture needs 0.3.99"),
        ("LIBRARY_VERSION", "9.9.9", "this Suture needs 9.9.9"),
        ("STRUCT_SIZES", {"llama_batch": 57}, "llama_batch has 56 bytes, expected 57"),
        ("CONTEXT_DEFAULTS", {"n_ctx": 513}, "n_ctx is 512, expected 513"),
    ],
)
def test_another_build_is_a_problem_with_its_fix(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    port: str,
    constant: str,
    value: object,
    told: str,
) -> None:
    monkeypatch.setattr(libllama, constant, value)
    status, out = doctor(capfd, "--port", port)
    assert status == 2
    assert told in out and "-m pip install --no-cache-dir llama-cpp-python==" in out


def test_a_missing_build_is_a_problem(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    def missing() -> libllama.LibraryReport:
        raise SetupError("llama-cpp-python is not installed")

    monkeypatch.setattr(libllama, "inspect", missing)
    status, out = doctor(capfd, "--port", port)
    assert status == 2 and "problem llama-cpp-python is not installed" in out


def test_amx_is_noted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    report = replace(libllama.inspect(), uses_amx=True)
    monkeypatch.setattr(libllama, "inspect", lambda: report)
    assert "note    the build uses AMX" in doctor(capfd, "--port", port)[1]


def test_another_program_on_the_port_is_a_problem(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        status, out = doctor(capfd, "--port", str(listener.getsockname()[1]))
    assert status == 2 and "a server that does not answer" in out and "serve --port " in out


def test_a_server_that_runs_is_asked_for_a_token(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeCompleter()
    with serving(fake) as url:
        status, out = doctor(capfd, "--port", url.rpartition(":")[2])
    assert status == 0
    assert f"ok      {url}: suture {VERSION}, ready, pid {os.getpid()}, model toy" in out
    assert "a token was asked for, and came after " in out
    assert len(fake.requests) == 1 and fake.requests[0].max_tokens == 1


def test_a_server_of_another_version_or_model_is_noted_with_how_to_restart_it(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(running, "VERSION", "9.9")
    other = tmp_path / "other.gguf"
    other.touch()
    with serving(FakeCompleter()) as url:
        _, out = doctor(capfd, "--port", url.rpartition(":")[2], "--model", str(other))
    assert f"note    the server that runs is {VERSION}, and this is 9.9" in out
    assert f"has the model toy, and the settings say {other}" in out
    assert f"-> kill $(ps -o ppid= -p {os.getpid()}); " in out


@pytest.mark.parametrize(
    ("loading", "kind", "said"),
    [("loading", "note", "the server that runs is loading"), ("stalled", "note", "is stalled")],
)
def test_a_server_that_does_not_serve_yet_is_not_asked(
    capfd: pytest.CaptureFixture[str], loading: State, kind: str, said: str
) -> None:
    fake = FakeCompleter(loading=loading)
    with serving(fake) as url:
        _, out = doctor(capfd, "--port", url.rpartition(":")[2])
    assert f"{kind}    the server that runs" in out and said in out and not fake.requests


def test_a_server_that_fails_is_a_problem(capfd: pytest.CaptureFixture[str]) -> None:
    with serving(FakeCompleter([EngineError("decode failed")])) as url:
        status, out = doctor(capfd, "--port", url.rpartition(":")[2])
    assert status == 2 and "problem the server that runs answers: decode failed" in out


def test_a_server_that_does_not_answer_is_not_waited_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_ANSWER_TIMEOUT_S", 0.3)
    with serving(FakeCompleter(delay_s=3)) as url:
        status, out = doctor(capfd, "--port", url.rpartition(":")[2])
    assert status == 2 and "problem the server that runs answers: " in out


def test_a_key_that_is_missing_or_another_ones_is_a_problem(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for path in (right, wrong):
        path.write_text(path.name)
        path.chmod(0o600)
    with serving(FakeCompleter(), api_key_file=right) as url:
        at = ("--port", url.rpartition(":")[2])
        assert "a server that wants an API key, and none is set" in doctor(capfd, *at)[1]
        status, out = doctor(capfd, *at, "--api-key-file", str(wrong))
        assert status == 2 and f"does not know the first key of {wrong}" in out
        assert doctor(capfd, *at, "--api-key-file", str(right))[0] == 0


class Answering(BaseHTTPRequestHandler):
    """Has one JSON object, at one path."""

    at: tuple[str, str]

    def do_GET(self) -> None:
        path, body = self.at
        self.send_response(200 if self.path == path else 404)
        self.end_headers()
        self.wfile.write(body.encode() if self.path == path else b"not found")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/api/version", '{"version": "0.12.3"}', "Ollama 0.12.3"),
        ("/props", '{"build_info": "b6900-abc", "total_slots": 4}', "llama-server b6900-abc"),
        ("/", "hello", "something that is not Suture"),
    ],
)
def test_a_server_that_is_known_is_named_and_a_free_port_found(
    capfd: pytest.CaptureFixture[str], path: str, body: str, name: str
) -> None:
    handler = type("Handler", (Answering,), {"at": (path, body)})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        status, out = doctor(capfd, "--port", str(server.server_port))
        server.shutdown()
    assert status == 2
    assert f"problem http://127.0.0.1:{server.server_port}: {name}\n" in out
    [free] = re.findall(r"-> .*serve --port (\d+)$", out, re.MULTILINE)
    assert server.server_port < int(free) < server.server_port + 20


@pytest.mark.parametrize(
    ("line", "fix"), [("prot = 1\n", "-> ${EDITOR:-vi} "), ('port = "x"\n', "-> ${EDITOR:-vi} ")]
)
def test_a_settings_file_with_a_mistake_is_a_problem_and_the_rest_is_looked_at(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, line: str, fix: str
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(line)
    status, out = doctor(capfd, "--config", str(config))
    assert status == 2 and f"problem {config}: " in out and fix + str(config) in out
    assert "llama-cpp-python" in out


def test_a_variable_with_a_mistake_is_unset_by_the_fix(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTURE_PROT", "1")
    status, out = doctor(capfd)
    assert status == 2
    assert "problem SUTURE_PROT: unknown setting (did you mean SUTURE_PORT?)" in out
    assert "-> unset SUTURE_PROT" in out


def test_as_json_it_is_a_list_and_every_fix_is_a_line_for_a_shell(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, port: str
) -> None:
    keys = tmp_path / "it's keys"
    keys.write_text("k")
    keys.chmod(0o644)
    status, out = doctor(capfd, "--port", port, "--json", "--api-key-file", str(keys))
    found = json.loads(out)
    assert status == 2
    assert all(one.keys() == {"kind", "topic", "text", "fix"} for one in found)
    assert {"install", "build", "gpu", "threads", "port", "files"} <= {
        one["topic"] for one in found
    }
    for one in found:
        subprocess.run(["bash", "-n", "-c", one["fix"]], check=True)


def test_a_model_that_is_not_here_needs_room(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path))
    status, out = doctor(capfd, "--port", port)
    assert status == 0 and "not pulled yet" in out and "free for a model of 1117.3 MB" in out
    usage = shutil.disk_usage(tmp_path)._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    status, out = doctor(capfd, "--port", port)
    assert status == 2 and "1000.0 MB free, and the model has 1117.3 MB" in out


def test_a_broken_model_file_is_a_problem(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, port: str
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03")
    status, out = doctor(capfd, "--model", str(broken), "--port", port)
    assert status == 2 and "broken.gguf" in out


def test_each_model_that_may_be_served_is_looked_at(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path))
    missing = tmp_path / "missing.gguf"
    flags = ("--also-serve", "smollm2-135m", "--also-serve", str(missing))
    status, out = doctor(capfd, "--port", port, *flags)
    assert status == 2 and f"model {missing}: No such file" in out
    assert "note    model smollm2-135m: not pulled yet" in out and "pull smollm2-135m" in out
    # Room is looked for for all that are to come.
    together = re.search(r"free for a model of ([0-9.]+) MB", out)
    assert together is not None and float(together[1]) > 1200


def test_models_of_one_name_are_a_problem(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, port: str
) -> None:
    paths = [tmp_path / folder / "Same.gguf" for folder in "ab"]
    status, out = doctor(
        capfd, "--port", port, "--model", str(paths[0]), "--also-serve", str(paths[1])
    )
    assert status == 2 and "problem 2 models have the name same: each needs one of its own" in out


@pytest.mark.model
def test_a_model_that_is_larger_than_all_may_be_is_a_problem(
    capfd: pytest.CaptureFixture[str], coder_model: Path, small_model: Path, port: str
) -> None:
    flags = ("--model", str(small_model), "--also-serve", str(coder_model), "--port", port)
    status, out = doctor(capfd, *flags, "--memory-mb", "1000")
    assert status == 2 and f"--memory-mb 1000: {coder_model.stem} takes 1352." in out
    fix = re.search(r"serve --memory-mb ([0-9]+)", out)
    assert fix is not None
    status, out = doctor(capfd, *flags, "--memory-mb", fix[1])
    assert status == 0 and f"--memory-mb {fix[1]}: room for each model" in out


@pytest.mark.model
def test_a_models_family_is_told(
    capfd: pytest.CaptureFixture[str], coder_model: Path, small_model: Path, port: str
) -> None:
    assert load_settings().model_store == coder_model.parent
    assert "fills in the middle as qwen2.5-coder" in doctor(capfd, "--port", port)[1]
    small = doctor(capfd, "--model", str(small_model), "--port", port)[1]
    assert "no FIM: left to right only" in small
    assert "tokenizer: tiktoken (llama.cpp's tokens on" in small
    assert "detokenizer: bytes (" in small


@pytest.mark.model
def test_a_tokenizer_that_cannot_be_had_is_a_problem(
    capfd: pytest.CaptureFixture[str], model_store: Path, port: str
) -> None:
    [path] = pulled(["vocab-falcon"], model_store).values()
    told = "no one expression splits text as its family, falcon, does"

    _, out = doctor(capfd, "--model", str(path), "--port", port)
    assert f"tokenizer: llama ({told})" in out
    flags = ("--tokenizer", "tiktoken", "--detokenizer", "window")
    status, out = doctor(capfd, "--model", str(path), "--port", port, *flags)
    assert status == 2
    assert f"problem --tokenizer tiktoken: not with this vocabulary: {told}" in out


@pytest.mark.model
def test_a_file_without_weights_is_a_problem(
    capfd: pytest.CaptureFixture[str], model_store: Path, port: str
) -> None:
    [path] = pulled(["vocab-gpt-2"], model_store).values()

    status, out = doctor(capfd, "--model", str(path), "--port", port)
    assert status == 2 and "the file has a vocabulary but no weights" in out


def test_a_cache_that_cannot_be_written_is_a_problem(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cache"
    file.write_text("")
    monkeypatch.setenv("SUTURE_CACHE", str(file))

    status, out = doctor(capfd, "--port", port)
    assert status == 2 and f"problem cache {file} cannot be written" in out
