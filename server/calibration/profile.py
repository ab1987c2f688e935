"""What calibrating found out about a model, kept beside what else was read of model files.

    9e02….json    named by size, beginning and end of the model file

P1  A profile is believed only if it is whole, of this version, and of this file.
P2  What is wrong with one is never an error: one warning, and the family's defaults stand.
P3  A profile gets to its name by a rename: a broken-off calibration leaves none, or the one before.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from suture.healing.whole_file import write_whole
from suture.server.errors import SetupError
from suture.server.prompt.families import FimFamily, HoleLayout, LayoutDefaults, TailBoundary

_EDGE_BYTES = 1 << 16

_log = logging.getLogger("suture.calibration")


class Figures(BaseModel):
    """A variant's means over all holes, in bits, with standard errors.

    `regret` is against the best candidate, None for what was none; `upper` the end of its
    confidence interval. `matches` is the share of holes that were written out, None if unmeasured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    variant: str
    word: float
    word_error: float
    line: float
    line_error: float
    regret: float | None = None
    upper: float | None = None
    matches: float | None = None


class Profile(BaseModel):
    """What "auto" stands for with one model file, and what that rests on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    file: str
    model: str
    family: str
    layout: HoleLayout
    boundary: TailBoundary
    holes: int
    figures: tuple[Figures, ...]

    @property
    def defaults(self) -> LayoutDefaults:
        return LayoutDefaults(self.layout, self.boundary)


def fingerprint(path: Path) -> str:
    """Tells model files apart without reading all of them. Raises `OSError`."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(b"%d\n" % size)
        digest.update(file.read(_EDGE_BYTES))
        file.seek(max(size - _EDGE_BYTES, 0))
        digest.update(file.read())
    return digest.hexdigest()[:32]


def read_profile(folder: Path, model: Path, family: FimFamily | None) -> Profile | None:
    """The profile of a model file; None if there is none, or none that can be believed."""
    if family is None:
        return None
    path = folder
    try:
        file = fingerprint(model)
        path = folder / f"{file}.json"
        profile = Profile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        reason = "is no profile" if isinstance(error, ValidationError) else error.strerror
        _log.warning("%s: %s: left aside; suture doctor --calibrate makes it anew", path, reason)
        return None
    if (profile.file, profile.family) != (file, family.name):
        _log.warning("%s: of another model, %s: left aside", path, profile.model)
        return None
    return profile


def write_profile(folder: Path, profile: Profile) -> Path:
    """Keep a profile; where it lies. Raises `SetupError` where it cannot be written."""
    path = folder / f"{profile.file}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, profile.model_dump_json(indent=1).encode() + b"\n")
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from None
    return path
