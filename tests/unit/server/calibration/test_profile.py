"""P1 to P3: what is kept of a calibration, and what is believed of it."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from suture.server.calibration.profile import (
    Figures,
    Profile,
    fingerprint,
    read_profile,
    write_profile,
)
from suture.server.errors import SetupError
from suture.server.prompt.families import FimFamily, LayoutDefaults

FAMILY = FimFamily("toy", "psm", {"pre": 1, "suf": 2, "mid": 3}, frozenset())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(256)) * 1024)
    return path


def profile_for(model: Path) -> Profile:
    figures = (Figures(variant="anchor exact", word=-1.0, word_error=0.1, line=-3.0, line_error=1),)
    return Profile(
        file=fingerprint(model),
        model="model",
        family="toy",
        layout="anchor",
        boundary="move",
        holes=48,
        figures=figures,
    )


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_p1_a_profile_comes_back_as_it_was_kept(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "profiles"
    write_profile(folder, profile_for(model))
    found = read_profile(folder, model, FAMILY)
    assert found == profile_for(model) and not warnings_of(caplog)
    assert found.defaults == LayoutDefaults("anchor", "move")


def test_p1_another_file_of_the_same_name_has_no_profile(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_profile(tmp_path, profile_for(model))
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    assert read_profile(tmp_path, model, FAMILY) is None and not warnings_of(caplog)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"version": 2}', b"\xff", b'{"layout": "sideways"}'],
)
def test_p2_what_is_no_profile_is_left_aside_with_one_warning(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    write_profile(tmp_path, profile_for(model)).write_bytes(content)
    assert read_profile(tmp_path, model, FAMILY) is None
    assert len(warnings_of(caplog)) == 1 and "is no profile" in warnings_of(caplog)[0]


def test_p2_half_a_profile_is_left_aside(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_profile(tmp_path, profile_for(model))
    path.write_bytes(path.read_bytes()[:100])
    assert read_profile(tmp_path, model, FAMILY) is None and len(warnings_of(caplog)) == 1


def test_p2_a_profile_of_another_family_is_left_aside(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_profile(tmp_path, profile_for(model))
    other = replace(FAMILY, name="other")
    assert read_profile(tmp_path, model, other) is None
    assert len(warnings_of(caplog)) == 1 and "of another model" in warnings_of(caplog)[0]


def test_a_model_without_a_profile_or_a_family_is_no_warning(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_profile(tmp_path / "absent", model, FAMILY) is None
    assert read_profile(tmp_path, model, None) is None
    assert not warnings_of(caplog)


def test_p3_nothing_half_written_stays(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "profiles"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_profile(folder, profile_for(model))
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_of_one_line(tmp_path: Path, model: Path) -> None:
    (tmp_path / "profiles").write_bytes(b"")
    with pytest.raises(SetupError, match="profiles") as raised:
        write_profile(tmp_path / "profiles", profile_for(model))
    assert "\n" not in str(raised.value)
