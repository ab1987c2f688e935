"""A real `suture serve` before another's inference server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from e2e.conftest import TIMEOUT_S, Served, serving

STRICT = ("--engine-kind", "vllm-strict")


@contextlib.contextmanager
def remote_serving(url: str, tokenizer: Path, *flags: str) -> Iterator[Served]:
    """Suture, once it knows what the server at this URL can do, or why it will not do."""
    engine = ("--engine", "remote", "--engine-url", url)
    with serving("--model", str(tokenizer), *engine, *flags) as served:
        deadline = time.monotonic() + TIMEOUT_S
        while served.status()["state"] == "loading":
            assert time.monotonic() < deadline, "it does not find out what it stands before"
            time.sleep(0.1)
        yield served
