"""Something between a client and a server that counts requests, and changes nothing.

Bytes go through as they come. Who leaves is left on the other side, too, at once: a request that
its client gave up is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

CHUNK = 2**16


class CountingProxy:
    """`n_requests` counts the requests of `path` that came so far; clients ask at `url`."""

    def __init__(self, server_url: str, path: str) -> None:
        address = urlsplit(server_url)
        self._server = str(address.hostname), int(address.port or 80)
        self._head = f"POST {path} HTTP/1.1\r\n".encode()
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self.n_requests = 0
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        self._is_listening.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_listening.set()
        await self._stopped.wait()
        server.close()
        passing = asyncio.all_tasks() - {asyncio.current_task()}
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side leaves."""
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection(*self._server)
        except OSError:
            writer.close()
            return
        pumps = {
            asyncio.ensure_future(self._pump(reader, upstream_writer, self._head)),
            asyncio.ensure_future(self._pump(upstream_reader, writer, b"")),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (writer, upstream_writer):
                end.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes
    ) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                if head:
                    # A head that two chunks share is counted with the second one.
                    self.n_requests += (rest + chunk).count(head)
                    rest = (rest + chunk)[-len(head) + 1 :]
                writer.write(chunk)
                await writer.drain()


@contextlib.contextmanager
def counting(server_url: str, path: str = "/infill") -> Iterator[CountingProxy]:
    """A proxy before a server, until the block ends."""
    proxy = CountingProxy(server_url, path)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()
