"""From the bytes of a request to a checked body, or to an `InvalidRequest` of one line.

Whatever bytes arrive, the outcome is a model or a `RequestError`. No message repeats a value of
the body: it may be a user's source code.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.types import Scope

from suture.server.errors import InvalidRequest, RequestError, Unavailable
from suture.server.wording import explain

# The key of an ASGI scope under which the room is that all bodies share.
BODIES = "suture.bodies"
MAX_BODY_BYTES = 32 * 2**20
READ_S = 30.0
# Of every body so much is always taken; what goes beyond it shares the rest of what all may hold.
SMALL_BYTES = 2**20
SHARED_BYTES = 8 * MAX_BODY_BYTES
# 32 MB of "[],[],…" would be 700 MB of Python; no request has so many values that are no text.
MAX_VALUES = 2**20

# A string, also one without its end: nothing is looked at twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)

Body = TypeVar("Body", bound=BaseModel)


class BodyTooLarge(RequestError):
    """The body is larger than any file one edits."""

    status = 413
    ends_connection = True

    def __init__(self) -> None:
        super().__init__(f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB")


class BodyTooSlow(RequestError):
    """The body did not come in time."""

    status = 408
    ends_connection = True


class BodiesTooLarge(Unavailable):
    """So many large bodies are being read that there is no room for one more."""

    reason = "BUSY"


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object of a request's body.

    Raises `RequestError`, `BodiesTooLarge`, or Starlette's `ClientDisconnect`.
    """
    with _shared(request.scope).reader() as room:
        try:
            async with asyncio.timeout(READ_S):
                raw = await _read(request, room)
        except TimeoutError:
            raise BodyTooSlow(f"the body did not come within {READ_S:.0f} s") from None
        return decode_json(raw)


async def _read(request: Request, room: _Reader) -> bytes:
    # Now: who asks whether to send it need not, and nobody has to wait for the end of it.
    if _announced(request) > MAX_BODY_BYTES:
        raise BodyTooLarge
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise BodyTooLarge
        room.hold(size)
        pieces.append(piece)
    return b"".join(pieces)


def _announced(request: Request) -> int:
    """The length that the head says, 0 where it says none."""
    return int(request.headers.get("content-length", "0"))


class SharedRoom:
    """What all bodies that are being read hold together, beyond the small part of each."""

    def __init__(self, capacity: int = SHARED_BYTES) -> None:
        self.left = capacity

    @contextmanager
    def reader(self) -> Iterator[_Reader]:
        """Room for one body, given back at the block's end."""
        reader = _Reader(self)
        try:
            yield reader
        finally:
            self.left += reader.held

    def take(self, n_bytes: int) -> None:
        """Take so much more; raises `BodiesTooLarge`."""
        if n_bytes > self.left:
            raise BodiesTooLarge("too many large bodies are being read", retry_after=2)
        self.left -= n_bytes


class _Reader:
    """One body's part of the room."""

    def __init__(self, room: SharedRoom) -> None:
        self._room = room
        self.held = 0

    def hold(self, size: int) -> None:
        """Have room for a body that is `size` bytes long by now."""
        more = size - SMALL_BYTES - self.held
        if more > 0:
            self._room.take(more)
            self.held += more


def _shared(scope: Scope) -> SharedRoom:
    room = scope.get(BODIES)
    return room if isinstance(room, SharedRoom) else SharedRoom()


def decode_json(raw: bytes) -> dict[str, Any]:
    """The object that `raw` spells, in strict JSON: no NaN, no infinity."""
    if len(raw) > SMALL_BYTES and _has_many_values(raw):
        raise InvalidRequest(f"the body must have at most {MAX_VALUES} values")
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise InvalidRequest("the body must be UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InvalidRequest(f"the body must be JSON: {error.msg} at {where}") from None
    except (ValueError, RecursionError):  # a number of 5000 digits, NaN, 100000 brackets
        raise InvalidRequest(
            "the body must be JSON with numbers and nesting of sane size"
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {_json_type(value)}")
    return value


def _has_many_values(raw: bytes) -> bool:
    """Whether JSON of these bytes would be more than about `MAX_VALUES` objects.

    Text may have all the signs of JSON in it and still be one value, so strings are left out. That
    takes its time where there are many: first it is ruled out that there are, by their quotes, of
    which a string has at least one that does not stand behind a backslash.
    """
    if raw.count(b'"') - raw.count(b'\\"') > 2 * MAX_VALUES:
        return True
    return _n_signs(raw) > MAX_VALUES and _n_signs(_STRING.sub(b"", raw)) > MAX_VALUES


def _n_signs(raw: bytes) -> int:
    return sum(raw.count(sign) for sign in (b",", b"[", b"{"))


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _json_type(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def validate(model: type[Body], body: dict[str, Any]) -> Body:
    """`body` as a `model`; raises `InvalidRequest` with the first field that is wrong."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True, include_input=False)[0]
        field = _path(details["loc"])
        raise InvalidRequest(f'"{field}" {explain(details)}', field) from None


def _path(loc: tuple[int | str, ...]) -> str:
    """`("input_extra", 0, "text")` -> `input_extra[0].text`."""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
