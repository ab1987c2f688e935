"""How a backend fails, for who decides whether another one is asked."""

from __future__ import annotations

from suture.server.errors import EngineError, InvalidRequest, Unavailable


class BackendFailed(EngineError):
    """A backend broke off, answered nonsense or with a 5xx: another one may do better."""


class BackendRefused(InvalidRequest):
    """A backend takes the request for a wrong one (4xx): another one would say the same."""


class BackendBusy(Unavailable):
    """A backend has enough to do (429, 503): another one may have room."""

    reason = "BUSY"


class BackendUnreachable(Unavailable):
    """There is no answer from a backend: it is down, or its certificate is not to be trusted."""

    reason = "UNREACHABLE"


class ConstraintIgnored(EngineError):
    """The answer does not begin with the pending bytes: the backend forced nothing."""
