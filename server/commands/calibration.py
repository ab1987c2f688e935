"""`suture doctor --calibrate MODEL`: measures which layout the model fills holes best in.

Takes some minutes with a model of 1.5 billion parameters on two cores. The winner is kept for
`serve` and `complete --local`; broken off, nothing is. Status 2 for a model that cannot be
measured or fills no holes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from suture.server.calibration.profile import Profile, fingerprint, write_profile
from suture.server.commands import exits
from suture.server.commands.pull import require_llama_cpp, with_model_file
from suture.server.errors import InfillUnsupported, ModelError
from suture.server.settings import Settings


def calibrate(settings: Settings) -> int:
    """Measure the settings' model and keep what came out; a table on stdout, then the winner."""
    require_llama_cpp()
    # Only here: a doctor without --calibrate loads no engine.
    from suture.server.calibration import calibrate as calibration
    from suture.server.calibration.holes import own_holes
    from suture.server.local import load_model

    settings = with_model_file(settings)
    path = Path(str(settings.model))
    file = fingerprint(path)
    engine, model = load_model(path, path.stem, settings, lambda: True)
    progress = Progress(calibration.N_HOLES)
    try:
        scores = calibration.measure(model, own_holes(calibration.N_HOLES), progress.show)
    except InfillUnsupported:
        message = f"{path}: this model has no FIM tokens, so there are no layouts to choose from"
        raise ModelError(message) from None
    finally:
        progress.end()
        engine.close()
    family = model.family.name if model.family is not None else ""
    profile, chosen = calibration.profile_of(scores, file, path.stem, family, settings.healing)
    kept_in = write_profile(settings.profiles, profile)
    print(figures_table(profile))
    print(f"taken: {chosen.taken}: {kept_in}")
    return exits.OK


def figures_table(profile: Profile) -> str:
    """The figures of a profile, a variant a line, in columns."""
    head = f"{'variant':20s} {'word, bits':>15s} {'line, bits':>15s} {'regret':>8s} {'at most':>8s}"
    lines = [f"{profile.model}, {profile.holes} holes", head]
    for of in profile.figures:
        word, line = f"{of.word:.2f} ± {of.word_error:.2f}", f"{of.line:.2f} ± {of.line_error:.2f}"
        regret, upper = ("" if n is None else f"{n:.3f}" for n in (of.regret, of.upper))
        lines.append(f"{of.variant:20s} {word:>15s} {line:>15s} {regret:>8s} {upper:>8s}")
    return "\n".join(lines)


class Progress:
    """How many of the holes are done and how long the others take, on stderr."""

    def __init__(self, n_all: int) -> None:
        self._n_all = n_all
        self._started = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def show(self, n_done: int) -> None:
        left_s = (time.monotonic() - self._started) / n_done * (self._n_all - n_done)
        line = f"calibrating: {n_done} of {self._n_all} holes, {left_s / 60:.0f} min left"
        if self._is_terminal:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif n_done % 4 == 0:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
