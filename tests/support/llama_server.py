"""llama.cpp's own server as a process, from the `xllamacpp` wheel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TESTS = Path(__file__).parents[1]


@contextmanager
def llama_cpp_server(model: Path) -> Iterator[str]:
    """Its URL, once the model is loaded."""
    command = [sys.executable, "-m", "conformance.llama_cpp_server", str(model), "--threads", "1"]
    with subprocess.Popen(
        command, cwd=_TESTS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            listening = (line for line in process.stdout if line.startswith("listening on "))
            yield next(listening).split()[-1]
        finally:
            process.kill()
