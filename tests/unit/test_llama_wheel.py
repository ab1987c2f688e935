"""The script that builds llama.cpp once: what it builds, and when it does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / ".dev" / "llama_wheel.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a cache and an environment of its own."""
    spec = importlib.util.spec_from_file_location("llama_wheel", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("CUDA", "PORTABLE", "CMAKE_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "MARKER", tmp_path / "marker")
    return module


class Calls:
    """What the script would have built and installed."""

    def __init__(self, script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.built: list[str] = []
        self.installed: list[str] = []
        monkeypatch.setattr(script, "run_build", self.build)
        monkeypatch.setattr(script, "check_tools", lambda variant: None)
        monkeypatch.setattr(script, "pip", lambda *args: self.installed.append(args[-1]))

    def build(self, version: str, variant: str, out: Path, log: Path) -> None:
        out.mkdir()
        (out / f"llama_cpp_python-{version}.whl").write_bytes(b"")
        self.built.append(variant)


@pytest.fixture
def calls(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(script, monkeypatch)


def test_the_pin_is_the_one_the_engine_was_written_for(script: ModuleType) -> None:
    from suture.server.engine.libllama import PINNED_VERSION

    assert script.pinned_version() == PINNED_VERSION


def test_it_builds_once_and_installs_from_the_cache_afterwards(
    script: ModuleType, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "installed_version", lambda: None)
    script.install()
    script.install()
    assert calls.built == ["native"]
    assert len(calls.installed) == 4 and len(set(calls.installed)) == 1
    assert script.MARKER.read_text() == "native"


def test_an_installed_build_is_left_alone(
    script: ModuleType, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "installed_version", script.pinned_version)
    script.MARKER.write_text("cuda")
    script.install()
    assert calls.built == calls.installed == []


def test_another_kind_of_build_is_made_when_asked_for(
    script: ModuleType, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "installed_version", script.pinned_version)
    script.MARKER.write_text("native")
    monkeypatch.setenv("CUDA", "1")
    script.install()
    assert calls.built == ["cuda"] and script.MARKER.read_text() == "cuda"


def test_two_kinds_at_once_are_refused(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA", "1")
    monkeypatch.setenv("PORTABLE", "1")
    with pytest.raises(SystemExit) as caught:
        script.wanted_variant()
    assert caught.value.code == 2


def test_builds_that_differ_have_keys_that_differ(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {script.build_key(variant) for variant in script.VARIANTS}
    monkeypatch.setenv("CMAKE_ARGS", "-DCMAKE_CUDA_ARCHITECTURES=90")
    keys |= {script.build_key(variant) for variant in script.VARIANTS}
    monkeypatch.setattr(script, "cpu_features", lambda: "another CPU")
    keys |= {script.build_key(variant) for variant in script.VARIANTS}
    assert len(keys) == 8  # a portable build is the same on every CPU


def test_a_missing_compiler_is_told_with_its_remedy(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SystemExit):
        script.check_tools("native")
    assert "apt-get install g++" in capsys.readouterr().err


def test_an_old_python_is_told_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    with pytest.raises(SystemExit):
        script.make_venv(Path(".venv"))
    assert "Python 3.11 or newer is needed" in capsys.readouterr().err
