"""Whether a backend is asked. PURE: seconds on any clock.

  healthy     it is asked
  unhealthy   it is not; after a pause it is looked at, and found well again or not
  draining    it says itself that it takes up nothing new; what it has begun it ends

A backend that cannot be reached is unhealthy at once, one that fails requests after a few in a row.
Being well when it is looked at shortens no pause, only an answer to a request does: one that says
that it is well and answers nothing is asked ever more seldom.
"""

from __future__ import annotations

from typing import Literal

HealthState = Literal["healthy", "unhealthy", "draining"]

FAILURES_IN_A_ROW = 3
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
# One that loads its model drains too, and is wanted as soon as it has done so.
DRAINING_PAUSE_S = 1.0
CALM_PAUSE_S = 10.0


class Health:
    """One backend's health, and `why` it is not asked; at first it is not, as nobody knows it."""

    def __init__(self, why: str) -> None:
        self.state: HealthState = "unhealthy"
        self.why = why
        self.busy_until = 0.0
        self._n_failed = 0
        self._ill_pause_s = 0.0

    @property
    def is_healthy(self) -> bool:
        return self.state == "healthy"

    @property
    def pause_s(self) -> float:
        """How long until it is looked at again."""
        if self.state == "draining":
            return DRAINING_PAUSE_S
        return CALM_PAUSE_S if self.is_healthy else self._ill_pause_s

    def answered(self) -> None:
        """A request was answered."""
        self._n_failed = 0
        self._ill_pause_s = 0.0

    def busy(self, until: float) -> None:
        """It is not to be asked before then, and is well."""
        self._n_failed = 0
        self.busy_until = until

    def failed(self, why: str, *, is_gone: bool) -> None:
        """A request failed; of an unhealthy one that is no news, as all of its streams do."""
        if not self.is_healthy:
            return
        self._n_failed += 1
        if is_gone or self._n_failed >= FAILURES_IN_A_ROW:
            self._fall_ill(why)

    def found_ill(self, why: str, *, is_gone: bool) -> None:
        """It was looked at, and is not well."""
        if self.is_healthy:
            self.failed(why, is_gone=is_gone)
        else:
            self._fall_ill(why)

    def found_draining(self, why: str) -> None:
        """It was looked at, and takes up nothing new."""
        self.state, self.why = "draining", why

    def found_well(self) -> None:
        """It was looked at, and is well."""
        self.state, self.why = "healthy", ""
        self._n_failed = 0

    def _fall_ill(self, why: str) -> None:
        self.state, self.why = "unhealthy", why
        self._ill_pause_s = min(max(2 * self._ill_pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
