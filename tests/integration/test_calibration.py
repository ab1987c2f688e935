"""`suture doctor --calibrate`, with a model that says nothing: what is kept, and what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.tiny_models import tiny_model
from support.vocabularies import pulled
from suture.server import cli
from suture.server.calibration import calibrate
from suture.server.calibration.profile import Profile, read_profile
from suture.server.calibration.scoring import Scorer
from suture.server.local import load_model
from suture.server.settings import load_settings

pytestmark = pytest.mark.model


@pytest.fixture(scope="session")
def tiny(model_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    [vocabulary] = pulled(["vocab-starcoder"], model_store).values()
    return tiny_model(vocabulary, tmp_path_factory.mktemp("tiny") / "starcoder.gguf")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUTURE_CACHE", str(tmp_path))
    return tmp_path


def doctor(capfd: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    status = cli.main(["doctor", *flags])
    out, err = capfd.readouterr()
    return status, out, err


def kept(cache: Path) -> list[Path]:
    folder = cache / "profiles"
    return sorted(folder.iterdir()) if folder.exists() else []


def test_the_winner_is_kept_told_and_served(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
    tiny: Path,
) -> None:
    monkeypatch.setattr(calibrate, "N_HOLES", 6)
    status, out, err = doctor(capfd, "--calibrate", str(tiny))
    [path] = kept(cache)
    assert status == 0, err
    assert "starcoder, 6 holes" in out and f": {path}\n" in out
    profile = Profile.model_validate_json(path.read_bytes())
    assert {"psm keep off", "anchor exact", "spm exact"} <= {f.variant for f in profile.figures}

    _, out, _ = doctor(capfd, "--model", str(tiny), "--port", "9")
    assert f"calibrated on 6 holes: layout {profile.layout}" in out
    engine, model = load_model(tiny, tiny.stem, load_settings(), lambda: True)
    engine.close()
    assert read_profile(load_settings().profiles, tiny, model.family) == profile
    assert model.defaults == profile.defaults

    path.write_text("{}")
    engine, model = load_model(tiny, tiny.stem, load_settings(), lambda: True)
    engine.close()
    assert model.defaults is None


def test_broken_off_nothing_is_kept(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
    tiny: Path,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Scorer, "score", interrupted)
    status, out, err = doctor(capfd, "--calibrate", str(tiny))
    assert (status, out) == (130, "") and "Traceback" not in err
    assert kept(cache) == []


def test_what_cannot_be_calibrated_is_said_in_one_line(
    capfd: pytest.CaptureFixture[str], cache: Path, tiny: Path, small_model: Path
) -> None:
    for flags, status, told in (
        (["--calibrate", "no-such-model"], 2, "no-such-model"),
        (["--calibrate", str(cache / "none.gguf")], 2, "none.gguf"),
        (["--calibrate", sys.executable], 2, "python"),
        (["--calibrate", str(tiny), "--model", str(tiny)], 2, "--model"),
        (["--calibrate", str(small_model)], 2, "this model has no FIM tokens"),
    ):
        found, out, err = doctor(capfd, *flags)
        assert (found, out) == (status, ""), flags
        [line] = [line for line in err.splitlines() if line.startswith("suture: ")]
        assert told in line and "Traceback" not in err
    assert kept(cache) == []
