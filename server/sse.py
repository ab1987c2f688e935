"""Streams of JSON: a value in, its bytes in the stream out, and the ASGI side of a stream.

Most dialects stream server-sent events, Ollama's lines of JSON. An event is `data: <json>` and an
empty line. Text goes out as UTF-8, not as escapes: JSON escapes CR and LF itself, and no other
character ends a line of either. But many a client splits lines as Unicode does (Python's
`splitlines`, and httpx's `iter_lines` with it), and would take half of the JSON for an event:
those line ends are escaped too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Send

DONE = b"data: [DONE]\n\n"

_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


def encode_json(value: object) -> bytes:
    """`value` as compact UTF-8 JSON.

    A lone surrogate (a file name that is not UTF-8 has them) becomes its JSON escape.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = _LINE_ENDS.sub(lambda end: f"\\u{ord(end[0]):04x}", text)
    return text.encode("utf-8", "backslashreplace")


def event(value: object) -> bytes:
    """One event with `value` as its data."""
    return b"data: %s\n\n" % encode_json(value)


def line(value: object) -> bytes:
    """One line with `value`."""
    return encode_json(value) + b"\n"


@dataclass(frozen=True, slots=True)
class Framing:
    """How the values of a stream are told apart: `frame` makes a value a part of the stream."""

    content_type: bytes
    frame: Callable[[object], bytes]


EVENTS = Framing(b"text/event-stream; charset=utf-8", event)
LINES = Framing(b"application/x-ndjson", line)


class EventStream:
    """One response of events, or of lines. Its status goes out with the first, so that an error
    before it can still have a status of its own."""

    def __init__(self, send: Send, framing: Framing = EVENTS) -> None:
        self._send = send
        self._framing = framing
        self.started = False

    async def write(self, events: bytes) -> None:
        """Send whole events, already framed."""
        if not self.started:
            self.started = True
            await self._send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", self._framing.content_type),
                        (b"cache-control", b"no-store"),
                        # nginx would collect a stream otherwise
                        (b"x-accel-buffering", b"no"),
                    ],
                }
            )
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def close(self) -> None:
        """End the response."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
