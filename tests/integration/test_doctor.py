"""What `suture doctor` finds."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from support.vocabularies import pulled
from suture.server import cli
from suture.server.engine import libllama
from suture.server.errors import SetupError
from suture.server.settings import load_settings


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
    assert told in out and "-> pip install" in out


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
    assert status == 2 and "choose another --port" in out


def test_a_broken_model_file_is_a_problem(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, port: str
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03")
    status, out = doctor(capfd, "--model", str(broken), "--port", port)
    assert status == 2 and "broken.gguf" in out


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
