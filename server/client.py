"""The HTTP client of the command line: is there a Suture, and what does it answer.

Streams are read as bytes and cut at the empty line between events: a text may hold any character
that `str.splitlines` takes for a line end.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx2

from suture.server.errors import (
    ClientBusy,
    EngineError,
    Excluded,
    InfillUnsupported,
    InvalidRequest,
    Loading,
    QueueFull,
    SetupError,
    SutureError,
    Unavailable,
    Unreachable,
)
from suture.server.request import Reason
from suture.server.settings import CHALLENGE
from suture.server.tls import tls_error

# Answering "who are you" takes a server milliseconds; completing may take as long as it takes.
PROBE_TIMEOUT_S = 2.0
MAX_STATUS_BYTES = 2**20
UNTRUSTED = (
    "a server whose certificate is not trusted (SSL_CERT_FILE names those that are), or that does "
    "not speak TLS"
)
COMPLETION_TIMEOUT = httpx2.Timeout(None, connect=5.0)


class ServerFailure(SutureError):
    """The server could not be reached, or did not answer as one should."""

    def __init__(self, message: str, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing listens there."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Something listens, and it is not Suture, or wants a key that we do not have."""

    what: str
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Suture:
    """A Suture server; `status` is what its `/v1/status` says, with an object for `model`."""

    status: dict[str, Any]

    @property
    def model_names(self) -> tuple[str, str]:
        """Name and path of its model."""
        model = self.status["model"]
        return str(model.get("name", "")), str(model.get("path", ""))


class Client:
    """A connection to the server at `url`; closes with the `with` block."""

    def __init__(
        self, url: str, api_key: str | None = None, trust: ssl.SSLContext | bool = True
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise SetupError(f"{url}: expected a URL that begins with http:// or https://")
        self._key = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            # The server is this machine or one that the user named: no proxy out of a variable.
            self._http = httpx2.Client(
                base_url=url,
                verify=trust,
                trust_env=False,
                timeout=COMPLETION_TIMEOUT,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise ServerFailure(f"{url}: {error}") from None
        self.url = url

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def identify(self) -> Absent | Stranger | Suture:
        """Who listens there. Our key is shown only to a server that asks for it as Suture does."""
        try:
            status, headers, body = self._probe({})
            if status == 401 and headers.get("www-authenticate", "") == CHALLENGE and self._key:
                status, _, body = self._probe(self._key)
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise ServerFailure(f"{self.url}: {error}") from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return Stranger(UNTRUSTED) if tls_error(error) is not None else Absent()
        except httpx2.HTTPError as error:
            return Stranger(f"a server that does not answer ({type(error).__name__})")
        if status == 401:
            return Stranger("a server that wants an API key", "AUTH")
        told = _json_object(body)
        if status == 503 and told.get("suture") == {"reason": "CANCELLED"}:
            return Stranger("a Suture that is stopping: try again in a moment", "CANCELLED")
        is_ours = isinstance(told.get("suture"), str) and isinstance(told.get("model"), dict)
        return Suture(told) if is_ours else Stranger("something that is not Suture")

    def _probe(self, headers: dict[str, str]) -> tuple[int, httpx2.Headers, bytes]:
        """Status, headers and body of `/v1/status`, as far as they come in time and bounds."""
        give_up_at = time.monotonic() + PROBE_TIMEOUT_S
        body = b""
        with self._http.stream(
            "GET", "/v1/status", headers=headers, timeout=PROBE_TIMEOUT_S
        ) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MAX_STATUS_BYTES or time.monotonic() > give_up_at:
                    break
            return response.status_code, response.headers, body

    def infill(
        self, body: dict[str, Any], timeout: httpx2.Timeout = COMPLETION_TIMEOUT
    ) -> Iterator[dict[str, Any]]:
        """The events of a streamed `/infill`; raises the `SutureError` that the server tells."""
        body = body | {"stream": True}
        try:
            with self._http.stream(
                "POST", "/infill", json=body, headers=self._key, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    raise _told(response.status_code, response.read(), response.headers)
                for event in parse_events(response.iter_bytes()):
                    if "error" in event:
                        raise _told(500, json.dumps(event).encode(), response.headers)
                    yield event
        except httpx2.HTTPError as error:
            raise ServerFailure(f"{self.url}: {error or type(error).__name__}") from None

    def candidates(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The answers of `/infill` to a body that asks for several; raises as `infill` does."""
        answers = _json(self._post("/infill", body))
        if not isinstance(answers, list) or not all(isinstance(one, dict) for one in answers):
            raise ServerFailure(f"{self.url}: the answer is no list of candidates")
        return answers

    def explain(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of `/v1/explain`; raises the `SutureError` that the server tells."""
        return _json_object(self._post("/v1/explain", body))

    def _post(self, path: str, body: dict[str, Any]) -> bytes:
        try:
            response = self._http.post(path, json=body, headers=self._key)
        except httpx2.HTTPError as error:
            raise ServerFailure(f"{self.url}: {error or type(error).__name__}") from None
        if response.status_code != 200:
            raise _told(response.status_code, response.content, response.headers)
        return response.content


def parse_events(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON object of each event, from a stream cut anywhere."""
    rest = b""
    for piece in pieces:
        *blocks, rest = (rest + piece).split(b"\n\n")
        yield from (_json_object(block.removeprefix(b"data: ")) for block in blocks)


def _told(status: int, body: bytes, headers: httpx2.Headers) -> SutureError:
    told = _json_object(body)
    error, ours = told.get("error"), told.get("suture")
    message = str(error.get("message", "")) if isinstance(error, dict) else f"status {status}"
    reason = ours.get("reason") if isinstance(ours, dict) else None
    if status == 501:
        return InfillUnsupported(message)
    if status in (429, 503):
        wait = headers.get("retry-after", "")
        after = int(wait) if wait.isdigit() else 1
        kinds = {
            "LOADING": Loading,
            "BUSY": ClientBusy if status == 429 else QueueFull,
            "UNREACHABLE": Unreachable,
        }
        return kinds.get(str(reason), Unavailable)(message, after)
    if reason == "EXCLUDED":
        return Excluded()
    if 400 <= status < 500:
        return InvalidRequest(message)
    return EngineError(message)


def _json_object(raw: bytes) -> dict[str, Any]:
    value = _json(raw)
    return value if isinstance(value, dict) else {}


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
