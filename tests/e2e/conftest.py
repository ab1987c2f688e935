"""Real `suture serve` processes, one for each model, and how to ask them."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

TIMEOUT_S = 180.0
SUTURE = (sys.executable, "-m", "suture.server")


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    process: subprocess.Popen[str]

    def post(self, path: str, body: object) -> Any:
        """The answer's JSON; it must be a 200."""
        response = httpx2.post(self.url + path, json=body, timeout=TIMEOUT_S)
        assert response.status_code == 200, response.text
        return response.json()

    def status(self) -> Any:
        return httpx2.get(self.url + "/v1/status", timeout=TIMEOUT_S).json()


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[Served]:
    command = [*SUTURE, "serve", "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            listening = re.search(r"http://\S+", process.stdout.readline())
            assert listening is not None, "the server did not come up"
            yield Served(listening[0], process)
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


@pytest.fixture(scope="session")
def coder_server(coder_model: Path) -> Iterator[Served]:
    with serving("--model", str(coder_model)) as served:
        yield served


@pytest.fixture(scope="session")
def small_server(small_model: Path) -> Iterator[Served]:
    with serving("--model", str(small_model)) as served:
        yield served


def run_suture(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command line, as a process."""
    return subprocess.run([*SUTURE, *args], input=stdin, capture_output=True, timeout=TIMEOUT_S)
