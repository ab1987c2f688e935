"""Real vLLM servers on this machine's CPU, and the router that vLLM has for several.

They are what `make test-vllm` installs in a folder. See .dev/install_vllm.py for how.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from support.twin_models import CONTEXT

ROOT = Path(__file__).parents[2]
PLUGIN = "suture.server.engine.remote.vllm_plugin"
TIMEOUT_S = 600.0
# Blocks of the cache of prefixes: vLLM's attention on CPUs takes no smaller ones.
BLOCK = 32


@dataclass(frozen=True)
class Backend:
    """A running server of vLLM's, or its router."""

    url: str
    log: Path

    def ask(self, body: dict[str, object], headers: dict[str, str] | None = None) -> Any:
        """The answer of `/v1/completions`, which must be a 200."""
        response = httpx2.post(
            self.url + "/v1/completions", json=body, headers=headers, timeout=TIMEOUT_S
        )
        assert response.status_code == 200, response.text
        return response.json()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        text = httpx2.get(self.url + "/metrics", timeout=TIMEOUT_S).text
        lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    @property
    def n_running(self) -> float:
        return self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting")


def until(holds: Callable[[], bool], why_not: str) -> float:
    """Seconds until something holds. vLLM tells its figures a little later than its answers."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < 30, why_not
        time.sleep(0.02)
    return time.monotonic() - began


def program(folder: Path, part: str, name: str) -> Path:
    """A program of the part "server" or "router" of what is installed there."""
    return folder / part / "bin" / name


@contextlib.contextmanager
def vllm_servers(
    folder: Path, model: Path, logs: Path, flags: Sequence[Sequence[str]]
) -> Iterator[list[Backend]]:
    """A server of this model for each of the lists of flags, started side by side and warm."""
    with contextlib.ExitStack() as stack:
        started: list[tuple[Backend, subprocess.Popen[bytes]]] = []
        for number, more in enumerate(flags):
            home = logs / f"home{number}"
            home.mkdir()
            url, port = _free_address()
            command = (
                *(str(program(folder, "server", "vllm")), "serve", str(model)),
                *("--served-model-name", model.name, "--host", "127.0.0.1", "--port", port),
                *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "8"),
                *("--block-size", str(BLOCK), "--enable-prefix-caching", "--enforce-eager"),
                *("--enable-prompt-tokens-details", *more),
            )
            backend = Backend(url, logs / f"vllm{number}.log")
            process = stack.enter_context(_running(command, _environ(home), backend.log))
            started.append((backend, process))
        for backend, process in started:
            _wait_for(backend, process)
            # The first request waits for kernels that are compiled, half a minute.
            backend.ask({"model": model.name, "prompt": "def", "max_tokens": 2})
        yield [backend for backend, _ in started]


@contextlib.contextmanager
def vllm_router(folder: Path, backends: Sequence[Backend], policy: str, log: Path) -> Iterator[str]:
    """The URL of a router before these servers."""
    url, port = _free_address()
    _, metrics_port = _free_address()
    command = (
        *(str(program(folder, "router", "vllm-router")), "--host", "127.0.0.1", "--port", port),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", metrics_port),
        *("--policy", policy, "--worker-urls", *(backend.url for backend in backends)),
    )
    with _running(command, dict(os.environ), log) as process:
        _wait_for(Backend(url, log), process)
        yield url


def _environ(home: Path) -> dict[str, str]:
    """Nothing is fetched, told or kept; the two replicas share the cores."""
    return {
        **os.environ,
        "HOME": str(home),
        "PYTHONPATH": str(ROOT / ".dev"),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }


@contextlib.contextmanager
def _running(
    command: Sequence[str], environ: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The program with its children, which it has in a process group of its own."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environ, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(backend: Backend, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(backend.url + "/health", timeout=5).status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"{backend.url} did not come up:\n{backend.log.read_text()[-4000:]}")


def _free_address() -> tuple[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return f"http://127.0.0.1:{port}", str(port)
