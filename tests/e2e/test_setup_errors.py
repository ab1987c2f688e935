"""What cannot work is one line on standard error and status 2."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from e2e.conftest import SUTURE, TIMEOUT_S, Served, run_suture

pytestmark = [pytest.mark.e2e, pytest.mark.model]


def assert_one_line(outcome: subprocess.CompletedProcess[bytes], *told: str) -> None:
    said = outcome.stderr.decode()
    assert outcome.returncode == 2, said
    assert outcome.stdout == b""
    assert said.count("\n") == 1 and said.endswith("\n"), said
    assert all(part in said for part in told), said


@pytest.mark.parametrize("n_bytes", [0, 4, 1000, 3_000_000])
@pytest.mark.parametrize("verb", ["serve", "complete"])
def test_a_broken_model_file(small_model: Path, tmp_path: Path, verb: str, n_bytes: int) -> None:
    broken = tmp_path / "broken.gguf"
    with small_model.open("rb") as source:
        broken.write_bytes(source.read(n_bytes))
    args = ["--port", "0"] if verb == "serve" else ["--local", "-"]
    assert_one_line(run_suture(verb, *args, "--model", str(broken), stdin=b"x = \0"), "broken.gguf")


def test_a_model_file_that_is_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.gguf")
    assert_one_line(
        run_suture("serve", "--port", "0", "--model", missing), "missing.gguf", "No such"
    )


def test_a_model_name_that_is_not_known() -> None:
    assert_one_line(run_suture("serve", "--model", "qwen-coder"), "qwen2.5-coder-1.5b")


def test_a_host_that_is_a_url() -> None:
    outcome = run_suture("serve", "--allow-host", "http://x/")
    assert_one_line(outcome, "--allow-host: must be a host's name", "'http://x/'")


def test_a_port_in_use(small_model: Path, small_server: Served) -> None:
    port = small_server.url.rsplit(":", 1)[1]
    outcome = run_suture("serve", "--port", port, "--model", str(small_model))
    assert_one_line(outcome, f"port {port} is in use", "Suture", "smollm2-135m")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        outcome = run_suture("serve", "--port", port, "--model", str(small_model))
    assert_one_line(outcome, f"port {port} is in use", "another program")


@pytest.mark.parametrize(
    ("name", "content", "position", "told"),
    [
        ("a.py", b"x = 1\n", ":9:1", "2 lines"),
        ("a.py", b"x = 1\n", ":1:99", "5 characters"),
        ("a.py", b"x = \xff\n", ":1:1", "UTF-8"),
        ("missing.py", None, ":1:1", "No such file"),
    ],
)
def test_a_position_that_is_not_in_the_file(
    tmp_path: Path, name: str, content: bytes | None, position: str, told: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert_one_line(run_suture("complete", "--local", f"{tmp_path / name}{position}"), name, told)


def test_a_context_too_large_for_the_memory(small_model: Path) -> None:
    outcome = run_suture("serve", "--port", "0", "--model", str(small_model), "--ctx", "16777216")
    assert_one_line(outcome, "--ctx")


def test_help_lists_the_verbs_that_work() -> None:
    helped = subprocess.run([*SUTURE, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert helped.returncode == 0
    for verb in ("serve", "complete", "pull", "models", "doctor"):
        assert f"    {verb} " in helped.stdout
