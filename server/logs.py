"""Logs that may be shown to anybody: where something failed, never with which values.

What a server works on is its users' source code, and an exception's message may quote it. So a
failure is logged as its type and the frames of the program. Whatever other libraries log of
exceptions goes through the same form.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from types import TracebackType
from typing import Any

_log = logging.getLogger("suture.server")

# What uvicorn says of it.
_NO_HTTP = "Invalid HTTP request received."


def without_values(error: BaseException) -> str:
    """The error's type and frames, its causes first, without any message."""
    return _describe(error, set())


def _describe(error: BaseException, seen: set[int]) -> str:
    seen.add(id(error))
    frames = "".join(traceback.format_tb(error.__traceback__))
    said = f"{type(error).__name__}\n{frames}".rstrip()
    if isinstance(error, BaseExceptionGroup):
        said = "\n".join([said, *(_describe(part, seen) for part in error.exceptions)])
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None or id(cause) in seen:
        return said
    return f"{_describe(cause, seen)}\nthen {said}"


class ValuelessFormatter(logging.Formatter):
    """Formats what `logger.exception` was given as `without_values` does."""

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        return "" if ei[1] is None else without_values(ei[1])


def log_to_stderr() -> None:
    """Send warnings and worse of this process to standard error, one form for all."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ValuelessFormatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(_is_failure)
    logging.basicConfig(handlers=[handler])


def _is_failure(record: logging.LogRecord) -> bool:
    """Not so of a task that is cancelled at the end; that it had to be is logged beside it. Nor
    of what was no HTTP, of which any client could make the log as long as it likes."""
    if record.msg == _NO_HTTP:
        return False
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler for an event loop; asyncio's own shows the values of what failed."""
    error = context.get("exception")
    what = "no exception" if error is None else without_values(error)
    _log.error("the event loop was left with an error: %s", what)
