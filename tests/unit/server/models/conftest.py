"""A package index and a hub on loopback, and a progress that remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from support.fake_hub import FakeHub, serve_hub
from support.package_index import PackageIndex, serve_index
from support.progress import RecordingProgress


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    folder = tmp_path / "index"
    folder.mkdir()
    with serve_index(folder) as index:
        index.use(monkeypatch)
        yield index


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serve_hub({}) as hub:
        # The library reads its environment once, when it is imported.
        constants = huggingface_hub.constants
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield hub


@pytest.fixture
def progress() -> RecordingProgress:
    return RecordingProgress()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"
