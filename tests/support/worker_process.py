"""A worker in a process of its own, whose output and memory can be looked at."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.http_server import settings
from suture.server.commands import serve
from suture.server.worker_process import start_worker

SUPPORT = Path(__file__).parent
# The worker itself, with all that it writes in a file.
REDIRECTED = 'out="$1"; shift; echo $$ >"$out.pid"; exec "$@" >"$out" 2>&1'


@dataclass
class Worker:
    """`output` is all that it writes, on both streams."""

    url: str
    pid: int
    output: Path

    def resident(self) -> int:
        """Bytes of memory that it holds."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def said(self) -> str:
        return self.output.read_text("utf-8", errors="replace")


@contextmanager
def worker(
    script: str, output: Path, environ: Mapping[str, str] | None = None, **flags: object
) -> Iterator[Worker]:
    """The worker of `support/<script>`, once it says that it listens."""
    at = settings(port=0, **flags)
    path = {"PYTHONPATH": os.pathsep.join([*sys.path, str(SUPPORT.parent)])}
    variables = [f"{name}={value}" for name, value in (path | dict(environ or {})).items()]
    program = ("env", *variables, sys.executable, str(SUPPORT / script))
    with serve.bind(at) as listener:
        serve.listen(listener, at)
        started = start_worker(listener, at, ("sh", "-c", REDIRECTED, "sh", str(output), *program))
        _wait_for(output)
        pid = int(Path(f"{output}.pid").read_text())
        try:
            yield Worker(f"http://127.0.0.1:{listener.getsockname()[1]}", pid, output)
        finally:
            os.kill(pid, signal.SIGTERM)
            started.wait()


def _wait_for(output: Path) -> None:
    deadline = time.monotonic() + 60
    while not (output.exists() and b"listening on" in output.read_bytes()):
        assert time.monotonic() < deadline, output.read_text() if output.exists() else "nothing"
        time.sleep(0.02)
