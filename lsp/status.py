"""What the editor's status item says: how the server does, and why nothing is suggested. PURE.

`kind` is one of Copilot's: Normal, Warning, Error or Inactive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suture.lsp.completions import Outcome
from suture.lsp.gates import Refusal
from suture.lsp.http_client import READY, Health

Json = dict[str, Any]

_KINDS = {
    "LOADING": "Normal",
    "BUSY": "Warning",
    "NO_FIM": "Warning",
    "UNREACHABLE": "Error",
    "AUTH": "Error",
    "ERROR": "Error",
    "DISABLED": "Inactive",
    "EXCLUDED": "Inactive",
}
_MESSAGES = {
    "EMPTY": "the model has nothing to add here",
    "DUPLICATE_SUFFIX": "what comes next stands there already",
    "LOW_CONFIDENCE": "the model is not sure enough",
    "DEADLINE": "the model was too slow",
    "BUDGET": "there is no room for a prompt",
}


class Status:
    """Tells `send` what changed, and nothing twice; the first time when it is opened.

    `off` says why nothing is suggested anywhere, where that is so.
    """

    def __init__(self, send: Callable[[Json], None], off: Callable[[], Refusal | None]) -> None:
        self._send = send
        self._off = off
        self._health = READY
        self._outcome = Outcome()
        self._complaint = ""
        self._sent: Json = {}
        self._is_open = False

    def open(self) -> None:
        """From now on the client may be told."""
        self._is_open = True
        self._tell()

    @property
    def shown(self) -> Json:
        """What the status item says now."""
        if (off := self._off()) is not None:
            return self._as_json("Inactive", off.message, off.reason)
        health = self._health
        reason, message = health.reason, health.message
        if reason is None:
            reason = self._outcome.reason if self._outcome.suggestion is None else None
            message = self._outcome.message or _MESSAGES.get(reason or "", "")
        if reason is None and self._complaint:
            return self._as_json("Warning", self._complaint, None)
        return self._as_json(_KINDS.get(reason or "", "Normal"), message, reason)

    def healthy(self, health: Health) -> None:
        """The server does otherwise than before."""
        self._health = health
        self._tell()

    def outcome(self, outcome: Outcome) -> None:
        """A request was answered."""
        reason = outcome.reason
        is_told = reason is not None and reason == self._health.reason
        if not is_told and reason not in ("SUPERSEDED", "CANCELLED"):
            self._outcome = outcome
        self._tell()

    def switched(self) -> None:
        """Switches or options are others: what they refused last they may refuse no more."""
        if self._outcome.reason in ("DISABLED", "EXCLUDED"):
            self._outcome = Outcome()
        self._tell()

    def complain(self, complaints: list[str]) -> None:
        """Options are wrong, or no longer."""
        self._complaint = "; ".join(complaints)
        self._tell()

    def _as_json(self, kind: str, message: str, reason: str | None) -> Json:
        return {"kind": kind, "busy": reason == "LOADING", "message": message, "reason": reason}

    def _tell(self) -> None:
        if self._is_open and self.shown != self._sent:
            self._sent = self.shown
            self._send(self._sent)
