"""V1 to V3 are the invariants of `server/known_speed.py`."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from suture.server.known_speed import BELIEVED_S, KnownSpeed

CONDITIONS = {"threads": 2, "device": "cpu"}


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "toy.gguf"
    path.write_bytes(b"GGUF" * 100)
    return path


def test_v1_a_speed_is_believed_for_a_week(tmp_path: Path, model: Path) -> None:
    clock = Clock()
    speed = KnownSpeed(tmp_path / "speeds", model, CONDITIONS, clock)
    assert speed.read() is None
    speed.keep(70.5)
    assert KnownSpeed(tmp_path / "speeds", model, CONDITIONS, clock).read() == 70.5
    clock.now += BELIEVED_S - 1
    assert speed.read() == 70.5
    clock.now += 1
    assert speed.read() is None
    # Of a clock that was wrong then, or is now.
    clock.now -= BELIEVED_S + 1
    assert speed.read() is None


@pytest.mark.parametrize(
    "conditions", [{}, {**CONDITIONS, "threads": 1}, {**CONDITIONS, "device": "cuda"}]
)
def test_v1_other_conditions_have_another_speed(
    tmp_path: Path, model: Path, conditions: dict[str, object]
) -> None:
    KnownSpeed(tmp_path, model, CONDITIONS).keep(70.5)
    assert KnownSpeed(tmp_path, model, conditions).read() is None


def test_v1_another_file_or_machine_has_another_speed(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    KnownSpeed(tmp_path, model, CONDITIONS).keep(70.5)
    with monkeypatch.context() as patch:
        patch.setattr(platform, "node", lambda: "elsewhere")
        assert KnownSpeed(tmp_path, model, CONDITIONS).read() is None
    model.write_bytes(b"GGUF" * 101)
    assert KnownSpeed(tmp_path, model, CONDITIONS).read() is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"\xff",
        b'{"tokens_per_s": 1.0}',
        b'{"tokens_per_s": -1.0, "measured_at": 1000000.0}',
        b'{"tokens_per_s": "fast", "measured_at": 1000000.0}',
        b'{"tokens_per_s": 1e999, "measured_at": 1000000.0}',
    ],
)
def test_v2_what_is_no_speed_is_measured_anew(tmp_path: Path, model: Path, content: bytes) -> None:
    speed = KnownSpeed(tmp_path / "speeds", model, CONDITIONS, Clock())
    speed.keep(70.5)
    (kept,) = (tmp_path / "speeds").iterdir()
    kept.write_bytes(content)
    assert speed.read() is None
    speed.keep(60.0)
    assert speed.read() == 60.0


def test_v2_a_folder_or_model_that_cannot_be_had_is_no_error(tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder, path in ((tmp_path / "file", model), (tmp_path, tmp_path / "gone.gguf")):
        speed = KnownSpeed(folder, path, CONDITIONS)
        speed.keep(70.5)
        assert speed.read() is None


def test_v3_a_lower_speed_stands_only_where_none_is_believed(tmp_path: Path, model: Path) -> None:
    clock = Clock()
    speed = KnownSpeed(tmp_path, model, CONDITIONS, clock)
    speed.keep(70.0)
    speed.keep(20.0)
    speed.keep(71.0)
    assert speed.read() == 70.0
    speed.keep(80.0)
    assert speed.read() == 80.0
    clock.now += BELIEVED_S
    speed.keep(20.0)
    assert speed.read() == 20.0
