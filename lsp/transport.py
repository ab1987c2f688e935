"""Messages over a stream of bytes, each behind headers that say how long it is."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator

from suture.server.errors import SetupError

# A file of that size is open in no editor.
MAX_MESSAGE = 2**28
_LENGTH = re.compile(rb"\s*content-length\s*:\s*([0-9]+)\s*", re.IGNORECASE)


async def read_messages(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The body of each message, until the stream ends.

    Raises `ValueError` where one says that it is longer than any can be: nothing behind it could be
    told apart.
    """
    while True:
        n_bytes = await _read_headers(reader)
        if n_bytes is None:
            return
        if n_bytes > MAX_MESSAGE:
            raise ValueError(f"a message of {n_bytes} bytes")
        try:
            yield await reader.readexactly(n_bytes)
        except asyncio.IncompleteReadError:
            return


async def _read_headers(reader: asyncio.StreamReader) -> int | None:
    """The length that the next headers say; None at the end. Others than that are skipped."""
    n_bytes: int | None = None
    while line := await _read_line(reader):
        if found := _LENGTH.fullmatch(line):
            n_bytes = int(found[1])
        elif not line.strip() and n_bytes is not None:
            return n_bytes
    return None


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # longer than any header
        return b"\n"


async def open_stdio() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Standard input and output as streams; what else is printed goes to standard error."""
    loop = asyncio.get_running_loop()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader()
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, output
        )
    except ValueError:
        raise SetupError("suture lsp talks to an editor: both ends must be pipes") from None
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def accept_one(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The first connection to a port of this machine; nobody else gets one."""
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    accepted = asyncio.get_running_loop().create_future()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if accepted.done():
            writer.close()
        else:
            accepted.set_result((reader, writer))

    try:
        server = await asyncio.start_server(connected, "127.0.0.1", port)
    except OSError as error:
        raise SetupError(f"--tcp {port}: {error.strerror}") from None
    port = server.sockets[0].getsockname()[1]
    print(f"suture lsp: waiting for an editor at 127.0.0.1:{port}", file=sys.stderr, flush=True)
    try:
        return await accepted
    finally:
        server.close()
