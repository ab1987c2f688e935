"""Server-sent events as they come over a socket: bytes in, the data of events out. PURE.

A line ends with LF, CR or CRLF, an event with an empty line; `data` of several lines is joined with
LF. All other fields, and comments, by which servers keep a connection open, say nothing here. What
is read does not depend on where the bytes are split, and an event without an end is not kept
growing.
"""

from __future__ import annotations

from collections.abc import Iterator

# The first event of a prompt of 200,000 tokens, with all of them in it, is 1.5 MB.
MAX_EVENT_BYTES = 8 * 2**20
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event has more bytes than any server that we know sends."""


class EventParser:
    """Reads one stream of events."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._n_bytes = 0
        self._ended_with_cr = False
        self._is_first_line = True

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of each event that ends within these bytes; raises `EventTooLarge`.

        An event that the stream ends in is none, as the specification has it.
        """
        for part in self._without_lf(piece).splitlines(keepends=True):
            self._line += part
            self._n_bytes += len(part)
            if self._n_bytes > self._max_bytes:
                raise EventTooLarge(f"an event of more than {self._max_bytes} bytes")
            if part.endswith((b"\n", b"\r")) and (data := self._end_line()) is not None:
                yield data

    def _without_lf(self, piece: bytes) -> bytes:
        """The bytes without the LF of a CRLF, whose CR has ended the line already."""
        if not piece:
            return piece
        rest = piece[1:] if self._ended_with_cr and piece.startswith(b"\n") else piece
        self._ended_with_cr = piece.endswith(b"\r")
        return rest

    def _end_line(self) -> bytes | None:
        """Take the line up; the data of the event that it ends."""
        line = bytes(self._line.rstrip(b"\r\n"))
        self._line.clear()
        if self._is_first_line:
            line = line.removeprefix(_BOM)
            self._is_first_line = False
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None

    def _end_event(self) -> bytes | None:
        data = b"\n".join(self._data) if self._data else None
        self._data.clear()
        self._n_bytes = 0
        return data
