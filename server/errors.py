"""Every exception that Suture raises on purpose.

SutureError
  SetupError            the user must change something before anything can run: exit 2
    ModelError          a model that is unknown, missing, broken or unsupported
    DownloadError       a model file that could not be fetched or verified
  RequestError          the caller can fix it
    InvalidRequest      400, says which field and what was expected
      Excluded          the file is one that no model is shown
    InfillUnsupported   501, the model has no FIM sentinels
  Unavailable           503 with Retry-After
    Loading             the model is still being loaded
    QueueFull           too many requests wait already
    NoRoom              other models are in use, and there is no room for this one beside them
    ClientBusy          429, too many of this client's do
    Stalled             the engine has work and completes no step
    Unreachable         no inference server answers that runs the model
    Stopping            the server ends what runs and takes up nothing more
  BadGateway            502, the inference server that was asked failed on the request
  EngineError           500, the engine failed; other requests go on

The mapping to a dialect's error body stands in that dialect's route; the status is here.
"""

from __future__ import annotations

from suture.server.request import Reason


class SutureError(Exception):
    """Base of all; ``str(error)`` is one line fit for a terminal.

    ``reason`` is the code of docs/reasons.md that it has, if any.
    """

    status = 500
    reason: Reason | None = None


class SetupError(SutureError):
    """Wrong usage, settings or files, found before any request is served."""


class ModelError(SetupError):
    """The model is unknown, missing, broken or of a kind that cannot be driven."""


class DownloadError(SetupError):
    """A model file could not be fetched, or is not what its checksum says."""


class RequestError(SutureError):
    """The request cannot be served as it is.

    ``ends_connection``: no more of what the client sends is read.
    """

    status = 400
    ends_connection = False


class InvalidRequest(RequestError):
    """A field is missing, of the wrong type or out of range; ``field`` names it."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Excluded(InvalidRequest):
    """The file at the cursor is one that may hold secrets: nothing of it is sent to a model."""

    reason = "EXCLUDED"

    def __init__(self) -> None:
        super().__init__('"path" names a file of secrets: no model is shown it', "path")


class InfillUnsupported(RequestError):
    """The loaded model was not trained to fill in the middle."""

    status = 501
    reason = "NO_FIM"


class Unavailable(SutureError):
    """The server cannot take the request now; ``retry_after`` is in whole seconds."""

    status = 503

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Loading(Unavailable):
    """The model is still being loaded."""

    reason = "LOADING"


class QueueFull(Unavailable):
    """As many requests wait as the queue holds."""

    reason = "BUSY"


class NoRoom(Unavailable):
    """Other models are in use, and there is no room in memory for this one beside them."""

    reason = "BUSY"


class ClientBusy(Unavailable):
    """As many requests of this client run and wait as one may have."""

    status = 429
    reason = "BUSY"


class Stalled(Unavailable):
    """The engine has work, and has completed no step of it within the set time."""


class Unreachable(Unavailable):
    """The model is run by other servers, and none of them answers."""

    reason = "UNREACHABLE"


class Stopping(Unavailable):
    """The server is about to end; another one may take its place."""

    reason = "CANCELLED"

    def __init__(self) -> None:
        super().__init__("the server is stopping")


class OutputFull(SutureError):
    """What a command writes to takes no more."""


class BadGateway(SutureError):
    """Another's inference server failed on this request.

    What it said may be in the message, and quote the request: that is for the client alone.
    """

    status = 502
    reason = "ERROR"


class EngineError(SutureError):
    """The engine failed on this request; its state was put back as it was before."""

    reason = "ERROR"
