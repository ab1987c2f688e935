"""A real pip against a package index on loopback."""

from __future__ import annotations

import importlib.util
import socket
import time
from pathlib import Path

import pytest

from support.package_index import PackageIndex, write_sdist, write_wheel
from suture.server.models import pip
from suture.server.models.source import SourceError, Stopped


def ignore(n_bytes: int) -> None: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def test_a_wheel_and_an_sdist_are_downloaded(index: PackageIndex, folder: Path) -> None:
    wheel = write_wheel(index.folder, "tiny-model", "1.0", {"tiny_model/a.bin": b"a"})
    sdist = write_sdist(index.folder, "tiny-model", "1.0", {"vendor/b.bin": b"b"})
    for kind, expected in (("wheel", wheel), ("sdist", sdist)):
        (folder / kind).mkdir()
        found = pip.download("tiny-model", "1.0", kind, folder / kind, ignore)  # type: ignore[arg-type]
        assert found.name == expected.name
        assert found.read_bytes() == expected.read_bytes()


def test_an_unknown_release_is_no_such_archive(index: PackageIndex, folder: Path) -> None:
    with pytest.raises(pip.NoSuchArchive, match="pip: No matching distribution found for none==1"):
        pip.download("none", "1", "wheel", folder, ignore)


def test_pips_own_failure_is_its_last_error_line(index: PackageIndex, folder: Path) -> None:
    write_wheel(index.folder, "tiny", "1.0", {}).write_bytes(b"no zip file")
    with pytest.raises(SourceError, match=r"^pip: .*tiny-1\.0-py3-none-any\.whl"):
        pip.download("tiny", "1.0", "wheel", folder, ignore)


def test_an_index_that_refuses_is_given_up_within_seconds(
    index: PackageIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/simple")
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"^the package index cannot be reached$"):
            pip.download("tiny", "1.0", "wheel", folder, ignore)
        assert time.monotonic() - began < 10


def test_an_index_that_never_answers_is_given_up(
    index: PackageIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.silent = True
    monkeypatch.setattr(pip, "ANSWER_S", 1.0)
    with pytest.raises(SourceError, match="no package index answered within 1 s"):
        pip.download("tiny", "1.0", "wheel", folder, ignore)


def test_bytes_are_watched_while_pip_runs_and_the_watcher_can_stop_it(
    index: PackageIndex, folder: Path
) -> None:
    content = bytes(range(256)) * 4096
    wheel = write_wheel(index.folder, "tiny", "1.0", {"a.bin": content, "b.bin": content[::-1]})
    wheel.write_bytes(wheel.read_bytes() + bytes(2_000_000))
    index.stall_on = wheel.name

    def watch(n_bytes: int) -> None:
        if n_bytes > 500_000:
            raise Stopped

    with pytest.raises(Stopped):
        pip.download("tiny", "1.0", "wheel", folder, watch)


def test_a_pip_module_in_the_working_directory_is_not_pip(
    index: PackageIndex, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(index.folder, "tiny", "1.0", {"a.bin": b"a"})
    (tmp_path / "pip.py").write_text("raise SystemExit('wrong pip')")
    monkeypatch.chdir(tmp_path)
    assert pip.download("tiny", "1.0", "wheel", folder, ignore).is_file()


def test_an_environment_without_pip_is_told_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match="pip is not installed in this environment"):
        pip.download("tiny", "1.0", "wheel", folder, ignore)
