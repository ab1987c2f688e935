"""A real model from the configured package index, through the user's own pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.progress import RecordingProgress
from suture.server.models.catalog import Catalog
from suture.server.models.download import pull
from suture.server.models.store import verify

pytestmark = [pytest.mark.e2e, pytest.mark.model]


def test_a_real_model_is_pulled_and_verified(tmp_path: Path) -> None:
    entry = Catalog.packaged().find("smollm2-135m")
    progress = RecordingProgress()
    path = pull(entry, tmp_path / "store", progress)
    assert path.read_bytes()[:4] == b"GGUF"
    assert progress.n_bytes == entry.n_bytes
    verify(entry, tmp_path / "store")
