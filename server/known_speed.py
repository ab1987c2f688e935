"""How fast a model was read on this machine of late, kept in a folder: a start need not measure it.

    9e02….json    named by the model file, and by all that its speed depends on

V1  A speed is believed for a week, if it is whole and was measured under the same conditions.
V2  What is wrong with one, or with the folder, is never an error: then the model is measured.
V3  A speed gets to its name by a rename, and a lower one never takes the place of a higher that
    is believed: what else runs on a machine only ever slows a model down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from suture.healing.whole_file import write_whole
from suture.server.calibration.profile import fingerprint

BELIEVED_S = 7 * 24 * 3600
# A gain that is smaller changes no prompt's size.
MIN_GAIN = 1.05


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    tokens_per_s: float = Field(gt=0)
    measured_at: float


class KnownSpeed:
    """The speed of one model file under `conditions`, in prompt tokens per second.

    The machine's name is one of the conditions, as homes are shared. `now` is seconds since 1970.
    """

    def __init__(
        self,
        folder: Path,
        model: Path,
        conditions: Mapping[str, object],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._path: Path | None = None
        with contextlib.suppress(OSError):
            stands_for = [fingerprint(model), platform.node(), sorted(conditions.items())]
            digest = hashlib.sha256(json.dumps(stands_for, default=str).encode()).hexdigest()
            self._path = folder / f"{digest[:32]}.json"

    def read(self) -> float | None:
        """The speed; None where none is known that can be believed (V1, V2)."""
        if self._path is None:
            return None
        try:
            record = _Record.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return None
        age_s = self._now() - record.measured_at
        return record.tokens_per_s if 0 <= age_s < BELIEVED_S else None

    def keep(self, tokens_per_s: float) -> None:
        """Remember a speed that was measured just now, if it says more than what is known (V3)."""
        known = self.read()
        if self._path is None or (known is not None and tokens_per_s < MIN_GAIN * known):
            return
        record = _Record(tokens_per_s=tokens_per_s, measured_at=self._now())
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, record.model_dump_json().encode() + b"\n")
