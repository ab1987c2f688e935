"""Our server and llama-server: started alike, asked alike, and ended whatever happens.

Both run on two threads over the same file with a KV cache of the same size, and are asked greedily
over `/infill`, streaming, each request on a connection of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from suture.server.models.catalog import Catalog
from suture.server.models.progress import progress_on
from suture.server.models.resolve import resolve_model
from suture.server.settings import load_settings

N_THREADS = 2
N_CTX = 8192
TIMEOUT_S = 600.0
POLL_S = 0.02

# What starts our server: as anybody does, or with drafts taken out.
SUTURE = ("-m", "suture.server")
UNDRAFTED = (str(Path(__file__).with_name("undrafted.py")),)
# Prompts have room for all of the text, as llama-server's have: nothing is cut for speed.
EQUAL_WINDOWS = ("--first-text-ms", "60000")
# What llama.vim's documentation has people start.
AS_FOR_LLAMA_VIM = ("-b", "4096", "-ub", "1024", "--cache-reuse", "256")

Fields = Mapping[str, object]
_OURS: Fields = {"temperature": 0, "shape": "raw"}
_THEIRS: Fields = {"temperature": 0, "top_k": 1, "samplers": ["top_k"], "cache_prompt": True}


@dataclass(frozen=True, slots=True)
class Reply:
    """Of one server to one request. Milliseconds; `first_ms` is until the first text, and
    `predicted_ms` the server's own account of the time from its first token to its last.

    `arrivals` are the times at which tokens came, on `time.perf_counter`'s clock, and how many;
    ours tells of tokens only with `return_tokens`.
    """

    text: str
    n_prompt: int
    n_evaluated: int
    n_predicted: int
    n_drafted: int
    first_ms: float
    total_ms: float
    predicted_ms: float
    arrivals: tuple[tuple[float, int], ...]

    @property
    def n_steps(self) -> int:
        """Tokens after the first, whose time belongs to the prompt."""
        return max(self.n_predicted - 1, 0)


class Server:
    """One that runs. `pid` is what was started, which may have children."""

    def __init__(self, name: str, url: str, pid: int, fields: Fields) -> None:
        self.name = name
        self.url = url
        self.pid = pid
        self._fields = fields
        self._client = httpx2.Client(
            # llama-server closes a connection after five idle seconds, while others are asked.
            base_url=url,
            timeout=TIMEOUT_S,
            headers={"Connection": "close"},
        )

    def body(self, prefix: str, suffix: str, n_predict: int, **fields: object) -> dict[str, object]:
        """A request as llama.vim writes it: the cursor's line up to the cursor is the prompt."""
        line_start = prefix.rfind("\n") + 1
        return {
            "input_prefix": prefix[:line_start],
            "prompt": prefix[line_start:],
            "input_suffix": suffix,
            "n_predict": n_predict,
            "stream": True,
            **self._fields,
            **fields,
        }

    def ask(self, prefix: str, suffix: str, n_predict: int, **fields: object) -> Reply:
        """The reply, read as a stream. `fields` come on top of the greedy request."""
        body = self.body(prefix, suffix, n_predict, **fields)
        started = time.perf_counter()
        first, text, arrivals = None, "", []
        last: dict[str, Any] = {}
        with self._client.stream("POST", "/infill", json=body) as response:
            for last in events(response.iter_bytes()):
                now = time.perf_counter()
                if content := str(last.get("content", "")):
                    first = first or now
                    text += content
                if token_ids := last.get("tokens"):
                    arrivals.append((now, len(token_ids)))
        ended = time.perf_counter()
        if "timings" not in last:
            raise SystemExit(f"{self.name} answered with {last}")
        first_ms, total_ms = ((first or ended) - started) * 1e3, (ended - started) * 1e3
        return _reply(text, last, first_ms, total_ms, arrivals)

    def close(self) -> None:
        self._client.close()


def events(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The events of a stream; an error that is no event is one as well.

    Only LF ends a line: a text may hold what `iter_lines` splits at.
    """
    rest = b""
    for chunk in itertools.chain(chunks, (b"\n",)):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            data = line.strip().removeprefix(b"data: ")
            if data and data != b"[DONE]":
                yield json.loads(data)


def _reply(
    text: str,
    last: dict[str, Any],
    first_ms: float,
    total_ms: float,
    arrivals: Sequence[tuple[float, int]],
) -> Reply:
    timings, ours = last["timings"], last.get("suture")
    return Reply(
        text=text,
        n_prompt=int(last.get("tokens_evaluated", timings["prompt_n"])),
        n_evaluated=int(timings["prompt_n"]) + (ours["healing"]["nodes"] if ours else 0),
        n_predicted=int(timings["predicted_n"]),
        n_drafted=int(ours["draft"]["proposed"] if ours else timings.get("draft_n", 0)),
        first_ms=first_ms,
        total_ms=total_ms,
        predicted_ms=float(timings["predicted_ms"]),
        arrivals=tuple(arrivals),
    )


@contextlib.contextmanager
def suture(
    path: Path, *flags: str, name: str = "suture", program: Sequence[str] = SUTURE
) -> Iterator[Server]:
    """Our server, ready."""
    with running(suture_command(path, *flags, program=program), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            raise SystemExit(f"{name} did not come up")
        with contextlib.closing(Server(name, found[0], process.pid, _OURS)) as server:
            yield server


def suture_command(
    path: Path, *flags: str, port: int = 0, program: Sequence[str] = SUTURE
) -> list[str]:
    command = [sys.executable, *program, "serve", "--model", str(path), "--port", str(port)]
    return [*command, "--threads", str(N_THREADS), "--ctx", str(N_CTX), *flags]


@contextlib.contextmanager
def llama_server(
    program: Path, path: Path, *flags: str, name: str = "llama-server"
) -> Iterator[Server]:
    """llama-server, ready. It has one slot if no flag says otherwise."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = llama_command(program, path, *flags, port=port)
    with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_healthy(url, process)
        with contextlib.closing(Server(name, url, process.pid, _THEIRS)) as server:
            yield server


def llama_command(program: Path, path: Path, *flags: str, port: int) -> list[str]:
    threads = str(N_THREADS)
    command = [str(program), "-m", str(path), "--port", str(port), "-t", threads, "-tb", threads]
    return [*command, "-c", str(N_CTX), "-np", "1", *flags]


@contextlib.contextmanager
def running(command: list[str], **streams: int) -> Iterator[subprocess.Popen[str]]:
    """The process, which is ended whatever happens, also when we are told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    process = subprocess.Popen(command, text=True, **streams)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_healthy(url: str, process: subprocess.Popen[str], timeout_s: float = 120.0) -> None:
    """Return as soon as `/health` is 200."""
    give_up = time.perf_counter() + timeout_s
    with httpx2.Client(base_url=url, timeout=5.0) as client:
        while time.perf_counter() < give_up and process.poll() is None:
            with contextlib.suppress(httpx2.TransportError):
                if client.get("/health").status_code == 200:
                    return
            time.sleep(POLL_S)
    raise SystemExit(f"the server of {url} did not come up")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def parser_of(doc: str | None, n: int, what: str) -> argparse.ArgumentParser:
    """The flags that all have: `--llama-server`, `--model` and `--n`, which counts `what`."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="measured beside ours")
    parser.add_argument("--model", metavar="NAME|PATH", help="the default one of models.txt")
    parser.add_argument("--n", type=int, default=n, metavar="N", help=f"{what} (default {n})")
    return parser


def model_path(wanted: str | None) -> Path:
    """The model's file, fetched if it is not there."""
    store = load_settings().model_store
    return resolve_model(wanted, Catalog.packaged(), store, progress_on(sys.stderr))


def in_turn(servers: Sequence[Server], turn: int) -> list[Server]:
    """All of them; another goes first each time, as a machine's speed drifts."""
    at = turn % len(servers)
    return [*servers[at:], *servers[:at]]
