"""A model hub on loopback: file metadata, redirects' headers and byte ranges."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeHub:
    """Serves `files`, keyed ``OWNER/REPO/PATH``; `ranges` are the Range headers of its GETs.

    `cut_after` ends the first transfers after that many bytes each, `stall_after` does the same
    and leaves the connection open, `knows_ranges` False answers a range with the whole file,
    `silent` never answers, `linked` False tells no sha256. With `sends_on` each GET is redirected
    there, `padding` follows each file. `tokens` are the Authorization headers of its GETs.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.ranges: list[str | None] = []
        self.cut_after: list[int] = []
        self.stall_after: list[int] = []
        self.knows_ranges = True
        self.silent = False
        self.linked = True
        self.sends_on: str | None = None
        self.padding = b""
        self.tokens: list[str | None] = []
        self.closing = threading.Event()
        self.url = ""


@contextmanager
def serve_hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    """A hub whose repositories hold `files`."""
    hub = FakeHub(files)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            if (body := self._file()) is not None:
                self._send_head(200, body, len(body))

        def do_GET(self) -> None:
            hub.tokens.append(self.headers.get("Authorization"))
            if hub.sends_on is not None:
                self.send_response(302)
                self.send_header("Location", hub.sends_on)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if (body := self._file()) is None:
                return
            wanted = self.headers.get("Range")
            hub.ranges.append(wanted)
            start = 0
            if wanted is not None and hub.knows_ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            body += hub.padding
            self._send_head(206 if start else 200, body, len(body) - start)
            if hub.stall_after:
                self.wfile.write(body[start : start + hub.stall_after.pop(0)])
                hub.closing.wait()
                return
            n_sent = hub.cut_after.pop(0) if hub.cut_after else len(body)
            self.wfile.write(body[start : start + n_sent])

        def _file(self) -> bytes | None:
            if hub.silent:
                hub.closing.wait()
                return None
            owner_repo, _, rest = self.path.strip("/").partition("/resolve/")
            body = hub.files.get(f"{owner_repo}/{rest.partition('/')[2]}")
            if body is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
            return body

        def _send_head(self, status: int, body: bytes, n_bytes: int) -> None:
            sha256 = hashlib.sha256(body).hexdigest()
            self.send_response(status)
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{sha256[:40]}"')
            if hub.linked:
                self.send_header("X-Linked-Etag", f'"{sha256}"')
                self.send_header("X-Linked-Size", str(len(body)))
            self.send_header("Content-Length", str(n_bytes))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.closing.set()
            server.shutdown()
            thread.join()
