"""huggingface_hub against a hub on loopback."""

from __future__ import annotations

import builtins
import hashlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import huggingface_hub.constants
import pytest

from support.fake_hub import FakeHub, serve_hub
from support.progress import RecordingProgress
from suture.server.models import hub as hub_module
from suture.server.models.hub import HubFile
from suture.server.models.source import Expected, Meter, SourceError

CONTENT = bytes(range(256)) * 4000
SHA = hashlib.sha256(CONTENT).hexdigest()
NOTHING = Expected(None, None)


@pytest.fixture
def source(hub: FakeHub) -> HubFile:
    hub.files["owner/repo/dir/tiny.gguf"] = CONTENT
    return HubFile.parse("hf:owner/repo/dir/tiny.gguf", "owner/repo/dir/tiny.gguf")


def fetch(source: HubFile, folder: Path, listed: Expected = NOTHING) -> tuple[bytes, int]:
    folder.mkdir(exist_ok=True)
    expected = source.expected(listed)
    progress = RecordingProgress()
    path = source.fetch(folder, expected, Meter(progress, expected.n_bytes))
    return path.read_bytes(), progress.n_bytes


def test_the_hub_tells_size_and_checksum(source: HubFile) -> None:
    assert source.expected(NOTHING) == Expected(len(CONTENT), SHA)


def test_a_file_is_fetched_and_counted(source: HubFile, tmp_path: Path) -> None:
    assert fetch(source, tmp_path / "f") == (CONTENT, len(CONTENT))


def test_a_cut_transfer_is_resumed_where_it_was_cut(
    source: HubFile, hub: FakeHub, tmp_path: Path
) -> None:
    hub.cut_after = [300_000, 200_000]
    assert fetch(source, tmp_path / "f") == (CONTENT, len(CONTENT))
    assert hub.ranges == [None, "bytes=300000-", "bytes=500000-"]


def test_a_stalled_transfer_is_resumed_on_a_new_connection(
    source: HubFile, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.stall_after = [300_000]
    monkeypatch.setattr(hub_module, "READ_S", 0.3)
    assert fetch(source, tmp_path / "f") == (CONTENT, len(CONTENT))
    assert hub.ranges == [None, "bytes=300000-"]


def test_a_later_run_resumes_what_an_earlier_one_got(
    source: HubFile, hub: FakeHub, tmp_path: Path
) -> None:
    hub.cut_after = [100_000, 0]
    with pytest.raises(SourceError):
        fetch(source, tmp_path / "f")
    assert fetch(source, tmp_path / "f") == (CONTENT, len(CONTENT))
    assert hub.ranges[-1] == "bytes=100000-"


def test_a_hub_without_ranges_is_fetched_from_the_start(
    source: HubFile, hub: FakeHub, tmp_path: Path
) -> None:
    hub.cut_after = [100_000]
    hub.knows_ranges = False
    assert fetch(source, tmp_path / "f")[0] == CONTENT


def test_a_partial_file_that_is_too_long_is_fetched_from_the_start(
    source: HubFile, tmp_path: Path
) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / f"{SHA}.incomplete").write_bytes(CONTENT + b"more")
    assert fetch(source, folder)[0] == CONTENT


def test_another_checksum_or_size_is_refused_before_the_transfer(
    source: HubFile, hub: FakeHub
) -> None:
    with pytest.raises(SourceError, match=f"wrong checksum: the hub's file has sha256 {SHA[:12]}"):
        source.expected(Expected(None, "0" * 64))
    with pytest.raises(SourceError, match=f"wrong size: the hub's file has {len(CONTENT)} bytes"):
        source.expected(Expected(7, SHA))
    assert hub.ranges == []


def test_a_hub_that_tells_no_sha256_needs_one_in_models_txt(
    source: HubFile, hub: FakeHub, tmp_path: Path
) -> None:
    hub.linked = False
    with pytest.raises(SourceError, match="the hub tells no sha256"):
        source.expected(NOTHING)
    assert fetch(source, tmp_path / "f", Expected(len(CONTENT), SHA))[0] == CONTENT


def test_a_file_that_the_hub_does_not_have_is_one_line(hub: FakeHub) -> None:
    source = HubFile.parse("hf:owner/repo/none.gguf", "owner/repo/none.gguf")
    with pytest.raises(SourceError) as caught:
        source.expected(NOTHING)
    assert "404" in str(caught.value) and "\n" not in str(caught.value)


def test_a_hub_that_refuses_is_given_up_at_once(
    source: HubFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/{{repo_id}}/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        with pytest.raises(SourceError, match="the hub cannot be reached"):
            source.expected(NOTHING)


def test_a_hub_that_never_answers_is_given_up(
    source: HubFile, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.silent = True
    monkeypatch.setattr(hub_module, "CONNECT_S", 0.3)
    began = time.monotonic()
    with pytest.raises(SourceError, match="the hub cannot be reached"):
        source.expected(NOTHING)
    assert time.monotonic() - began < 15


def test_offline_mode_is_honoured(source: HubFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="offline mode is enabled"):
        source.expected(NOTHING)


def test_offline_a_file_in_the_users_hub_cache_is_used(
    source: HubFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    repo = tmp_path / "hub-cache" / "models--owner--repo"
    for part in ("blobs", "refs", "snapshots/abc/dir"):
        (repo / part).mkdir(parents=True)
    (repo / "refs/main").write_text("abc")
    (repo / "blobs" / SHA).write_bytes(CONTENT)
    (repo / "snapshots/abc/dir/tiny.gguf").symlink_to(repo / "blobs" / SHA)
    assert fetch(source, tmp_path / "f", Expected(len(CONTENT), SHA))[0] == CONTENT


def test_a_missing_huggingface_hub_is_said(
    source: HubFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def no_hub(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "huggingface_hub":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_hub)
    with pytest.raises(SourceError, match="huggingface_hub is not installed"):
        source.expected(NOTHING)


def test_the_librarys_own_environment_names_the_hub(source: HubFile, hub: FakeHub) -> None:
    script = (
        "from suture.server.models.hub import HubFile\n"
        "from suture.server.models.source import Expected\n"
        "source = HubFile.parse('hf:…', 'owner/repo/dir/tiny.gguf')\n"
        "print(source.expected(Expected(None, None)).sha256)\n"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1"}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == SHA


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "secret")
    return "Bearer secret"


def test_a_redirect_on_the_hubs_host_is_followed_without_the_token(
    source: HubFile, hub: FakeHub, token: str, tmp_path: Path
) -> None:
    with serve_hub(hub.files) as store:
        hub.sends_on = f"{store.url}/owner/repo/resolve/main/dir/tiny.gguf"
        assert fetch(source, tmp_path / "f") == (CONTENT, len(CONTENT))
        assert store.tokens == [None]
    assert hub.tokens == [token]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_redirect_off_the_hubs_hosts_is_not_followed(
    source: HubFile, hub: FakeHub, tmp_path: Path, scheme: str
) -> None:
    with serve_hub(hub.files) as stranger:
        port = stranger.url.rpartition(":")[2]
        # The same machine by another name, of which the hub knows nothing.
        hub.sends_on = f"{scheme}://localhost:{port}/owner/repo/resolve/main/dir/tiny.gguf"
        with pytest.raises(SourceError, match="redirects to localhost"):
            fetch(source, tmp_path / "f")
        assert stranger.tokens == []
    assert (tmp_path / "f").is_dir() and not any(p.stat().st_size for p in tmp_path.rglob("*.inc*"))


def test_redirects_without_end_are_given_up(source: HubFile, hub: FakeHub, tmp_path: Path) -> None:
    hub.sends_on = hub.url
    with pytest.raises(SourceError, match="more than 5 times"):
        fetch(source, tmp_path / "f")
    assert len(hub.tokens) == 5


@pytest.mark.parametrize(
    ("target", "hub", "is_its"),
    [
        ("https://huggingface.co/a", "https://huggingface.co/b", True),
        ("https://cdn-lfs.huggingface.co/a", "https://huggingface.co/b", True),
        ("https://cas-bridge.xethub.hf.co/a", "https://huggingface.co/b", True),
        ("https://files.mirror.example/a", "https://mirror.example/b", True),
        ("https://cdn-lfs.hf.co/a", "https://mirror.example/b", True),
        ("http://huggingface.co/a", "https://huggingface.co/b", False),
        ("http://cdn-lfs.hf.co/a", "http://mirror.example/b", False),
        ("https://evil.example/a", "https://huggingface.co/b", False),
        ("https://huggingface.co.evil.example/a", "https://huggingface.co/b", False),
        ("https://evilhf.co/a", "https://huggingface.co/b", False),
        ("https://huggingface.co@evil.example/a", "https://huggingface.co/b", False),
        ("file:///etc/passwd", "https://huggingface.co/b", False),
    ],
)
def test_the_hubs_hosts_are_its_own_and_where_it_keeps_files(
    target: str, hub: str, is_its: bool
) -> None:
    assert hub_module._is_hubs(httpx2.URL(target), httpx2.URL(hub)) is is_its


def test_no_more_is_written_than_the_hub_announced(
    source: HubFile, hub: FakeHub, tmp_path: Path
) -> None:
    hub.padding = b"x" * 5_000_000
    with pytest.raises(SourceError, match="more than the 1024000 bytes"):
        fetch(source, tmp_path / "f")
    assert all(path.stat().st_size <= len(CONTENT) for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("path", ["../../../evil.gguf", "/evil.gguf", "dir/../../evil.gguf"])
def test_a_path_in_models_txt_leads_nowhere_but_to_the_hub(
    hub: FakeHub, tmp_path: Path, path: str
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    try:
        fetch(HubFile.parse(f"hf:owner/repo/{path}", f"owner/repo/{path}"), folder)
    except (SourceError, ValueError):
        pass
    outside = [found for found in tmp_path.rglob("*") if folder not in (found, *found.parents)]
    assert outside == []
