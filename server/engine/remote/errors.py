"""How a backend fails, for who decides whether another one is asked."""

from __future__ import annotations

from suture.server.errors import BadGateway, EngineError, InvalidRequest, Unavailable, Unreachable


class BackendFailed(BadGateway):
    """A backend broke off, answered nonsense or with a 5xx: another one may do better."""


class TokenizerDiffers(BackendFailed):
    """A backend's tokens say something else here: its model is another, or its tokenizer is."""


class BackendRefused(InvalidRequest):
    """A backend takes the request for a wrong one (4xx): another one would say the same."""


class BackendBusy(Unavailable):
    """A backend has enough to do (429, 503): another one may have room."""

    reason = "BUSY"


class BackendUnreachable(Unreachable):
    """There is no answer from a backend: it is down, or its certificate is not to be trusted."""


class ConstraintIgnored(EngineError):
    """The answer does not begin with the pending bytes: the backend forced nothing."""
