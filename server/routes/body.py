"""From the bytes of a request to a checked body, or to an `InvalidRequest` of one line.

Whatever bytes arrive, the outcome is a model or a `RequestError`. No message repeats a value of
the body: it may be a user's source code.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from suture.server.errors import InvalidRequest, RequestError
from suture.server.wording import explain

MAX_BODY_BYTES = 32 * 2**20
# An answer before the body has been read resets the connection, and the client sees no answer.
MAX_DRAINED_BYTES = 8 * MAX_BODY_BYTES

Body = TypeVar("Body", bound=BaseModel)


class BodyTooLarge(RequestError):
    """The body is larger than any file one edits."""

    status = 413


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object of a request's body.

    Raises `InvalidRequest`, `BodyTooLarge`, or Starlette's `ClientDisconnect`.
    """
    return decode_json(await _read(request))


async def _read(request: Request) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size <= MAX_BODY_BYTES:
            pieces.append(piece)
        elif size > MAX_DRAINED_BYTES:
            break
    if size > MAX_BODY_BYTES:
        raise BodyTooLarge(f"the body is larger than {MAX_BODY_BYTES // 2**20} MiB")
    return b"".join(pieces)


def decode_json(raw: bytes) -> dict[str, Any]:
    """The object that `raw` spells, in strict JSON: no NaN, no infinity."""
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
