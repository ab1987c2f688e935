"""What a request costs the front itself: one process, engines that cost it next to nothing.

    python benchmarks/front_cost.py [--n N]        1 minute

Time of all cores that the worker takes for a request, over kept connections: with a scripted engine
on its own thread, as `serve` has llama.cpp; and in front of a server that plays vLLM in another
process, as `--engine remote` has it, an event for each token. Memory for each idle connection.
Texts are of 200 characters, as the toy vocabulary has a token for nearly each, and nothing is
healed. Then planning by itself: prompts of the benchmark of keys, with the real tokenizer of
`--model`, whose weights are not loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
from harness.memory import memory_of
from harness.scripted_words import words
from harness.servers import model_path
from harness.tables import print_table, show_progress
from harness.texts import ROOT
from harness.trace import Key, all_traces

from suture.healing import Vocabulary, tokenizer_of
from suture.server.codec import choose_codec
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.prompt.anchors import Anchors
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import detect_family
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionRequest

sys.path.insert(0, str(ROOT / "tests"))

from support.fake_backend import FakeBackend, playing
from support.toy import toy_vocabulary
from support.worker_process import Worker, worker

WORKER = ROOT / "benchmarks/harness/scripted_front.py"
N_IDLE = 500
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Kind:
    """Of requests: `n_clients` ask at once."""

    streamed: bool
    n_tokens: int
    n_clients: int

    @property
    def cells(self) -> tuple[object, ...]:
        return "streamed" if self.streamed else "whole", self.n_tokens, self.n_clients


KINDS = (
    Kind(False, 1, 1),
    Kind(False, 16, 1),
    Kind(True, 16, 1),
    Kind(True, 16, 8),
    Kind(True, 64, 8),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", metavar="NAME|PATH", help="the default one of models.txt")
    parser.add_argument("--n", type=int, default=400, metavar="N", help="requests of each kind")
    args = parser.parse_args()
    keys = [key for trace in all_traces(40, 60) for key in trace]
    rows = []
    with served() as front:
        rows += [("scripted", *kind.cells, *cost(front, keys, args.n, kind)) for kind in KINDS]
        idle_kb = idle_connection_kb(front)
    with playing(FakeBackend(words(toy_vocabulary()))) as url, served(url) as front:
        rows += [("remote", *kind.cells, *cost(front, keys, args.n, kind)) for kind in KINDS]
    show_progress("")
    columns = ("engine", "answer", "tokens", "clients", "requests/s", "CPU ms a request")
    print_table(columns, rows)
    print(f"\nAn idle connection: {idle_kb:.0f} kB, of {N_IDLE}")
    print(f"Planning a key's prompt: {planning_ms(model_path(args.model), keys):.2f} ms of CPU")


@contextlib.contextmanager
def served(*backends: str) -> Iterator[Worker]:
    """The worker, in front of backends where there are any."""
    flags: dict[str, object] = {"parallel": 32, "queue": 64}
    if backends:
        flags |= {"engine": "remote", "engine_url": backends, "engine_model": "toy"}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        # Paths of a script are joined to the tests' own, which an absolute one replaces.
        with worker(str(WORKER), output, None, **flags) as front:
            wait_ready(front.url)
            yield front


def wait_ready(url: str) -> None:
    while httpx2.get(f"{url}/health", trust_env=False).status_code != 200:
        time.sleep(0.05)


def cost(front: Worker, keys: Sequence[Key], n: int, kind: Kind) -> tuple[str, str]:
    """Requests a second, and milliseconds of CPU that each took."""
    show_progress(f"{kind.n_tokens} tokens, {kind.n_clients} clients")
    bodies = [body(key, kind) for key in keys]
    asyncio.run(ask_all(front.url, bodies[:20], 1))
    bodies = [bodies[at % len(bodies)] for at in range(n)]
    cpu_s, started = cpu_of(front.pid), time.perf_counter()
    asyncio.run(ask_all(front.url, bodies, kind.n_clients))
    elapsed = time.perf_counter() - started
    return f"{n / elapsed:.0f}", f"{(cpu_of(front.pid) - cpu_s) / n * 1e3:.2f}"


def body(key: Key, kind: Kind) -> dict[str, object]:
    return {
        "input_prefix": key.prefix[-100:],
        "input_suffix": key.suffix[:100],
        "n_predict": kind.n_tokens,
        "temperature": 0,
        "stream": kind.streamed,
        "shape": "raw",
        "healing": "off",
    }


async def ask_all(url: str, bodies: Sequence[dict[str, object]], n_clients: int) -> None:
    waiting = iter(bodies)

    async def ask_some(client: httpx2.AsyncClient) -> None:
        for one in waiting:
            reply = await client.post("/infill", json=one)
            if reply.status_code != 200:
                raise SystemExit(f"{reply.status_code}: {reply.text}")

    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
        await asyncio.gather(*(ask_some(client) for _ in range(n_clients)))


def cpu_of(pid: int) -> float:
    """Seconds of all cores that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def idle_connection_kb(front: Worker) -> float:
    """Memory for each of many connections that have asked something and stay."""
    host, port = front.url.removeprefix("http://").split(":")
    before = memory_of(front.pid).own_mb
    with contextlib.ExitStack() as stack:
        for _ in range(N_IDLE):
            one = stack.enter_context(socket.create_connection((host, int(port))))
            one.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            one.recv(4096)
        return (memory_of(front.pid).own_mb - before) * 1024 / N_IDLE


def planning_ms(path: Path, keys: Sequence[Key]) -> float:
    """The median over all keys, in the anchored layout, as they are typed."""
    vocabulary, own = Vocabulary.from_gguf(path), LlamaTokenizer(path)
    codec = choose_codec("auto", "auto", vocabulary, own, tokenizer_of(vocabulary))
    family = detect_family(vocabulary, path.stem)
    anchors, budget = Anchors(), PromptBudget(8192, 1e6, 60_000)
    times = []
    for key in keys:
        request = CompletionRequest(key.prefix, key.suffix, infill=True, layout="anchor")
        started = time.process_time()
        plan_prompt(request, vocabulary, family, codec.encoder.encode, budget, anchors=anchors)
        times.append(time.process_time() - started)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    main()
