"""What Suture adds to the time that an inference server takes, beside asking it directly.

    python benchmarks/remote_overhead.py [--n N]                              2 minutes
    python benchmarks/remote_overhead.py --backend URL --model TOKENIZER      a real server

The same prompts in turns: by the server's own API, by a bare proxy before it that only passes on
what it gets (Starlette and httpx2, as Suture has them), and by Suture's, unhealed, so that all have
the server write the same tokens. (What is healed has it write those anew that say the given-back
bytes: one, most often.) The time to the first text and to the last, and how much longer the proxy
and Suture take, prompt by prompt. Without `--backend` the server is one that plays vLLM, in a
process of its own, and takes 5 ms for a token.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from harness.tables import median, percentile, print_table, show_progress
from harness.texts import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from support.worker_process import worker

FRONT = ROOT / "benchmarks/harness/scripted_front.py"
PROXY = ROOT / "benchmarks/harness/bare_proxy.py"
PLAYED = ROOT / "benchmarks/harness/played_backend.py"
SUTURE = (sys.executable, "-m", "suture.server")
N_TOKENS = 16
WARM_UP = 10
LINES = (
    "def mean(values):\n    retu",
    "import num",
    "for name in user",
    "class Reader(Ba",
    "    return self.pa",
)


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds to the first text, and to the last."""

    first: float
    last: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=300, metavar="N", help="pairs of requests")
    parser.add_argument("--backend", metavar="URL", help="a server that is to be asked")
    parser.add_argument("--model", metavar="FILE", help="its model's GGUF file or tokenizer.json")
    args = parser.parse_args()
    if (args.backend is None) != (args.model is None):
        parser.error("--backend and --model go together")
    with contextlib.ExitStack() as stack:
        backend = args.backend or stack.enter_context(printing_its_url(PLAYED))
        proxy = stack.enter_context(printing_its_url(PROXY, backend))
        front = stack.enter_context(served(backend, args.model))
        times = measured({"direct": backend, "a bare proxy": proxy, "Suture": front}, args.n)
    show_progress("")
    rows = []
    for name in ("first", "last"):
        ways = {way: [getattr(one, name) for one in took] for way, took in times.items()}
        for way in ("a bare proxy", "Suture"):
            pairs = zip(ways["direct"], ways[way], strict=True)
            ways[f"added by {way}"] = [b - a for a, b in pairs]
        for way, values in ways.items():
            figures = (median(values), percentile(values, 95))
            rows.append((f"to the {name} text", way, *(f"{ms:.2f}" for ms in figures)))
    print_table(("time", "", "p50, ms", "p95, ms"), rows)


@contextlib.contextmanager
def printing_its_url(script: Path, *arguments: str) -> Iterator[str]:
    """The URL of what a script serves, which it prints once it listens."""
    command = [sys.executable, str(script), *arguments]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as one:
        assert one.stdout is not None
        try:
            yield one.stdout.readline().strip()
        finally:
            one.terminate()


@contextlib.contextmanager
def served(backend: str, model: str | None) -> Iterator[str]:
    """Suture in front of the backend, as `serve` has it, or over the toy vocabulary."""
    if model is None:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "output"
            flags: dict[str, object] = {"engine": "remote", "engine_url": (backend,)}
            with worker(str(FRONT), output, None, **flags) as front:
                yield ready(front.url)
        return
    flags_of_serve = ("--engine", "remote", "--engine-url", backend, "--model", model)
    command = [*SUTURE, "serve", "--port", "0", *flags_of_serve]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield ready(process.stdout.readline().split()[-1])
        finally:
            process.terminate()


def ready(url: str) -> str:
    while httpx2.get(f"{url}/health", trust_env=False).status_code != 200:
        time.sleep(0.05)
    return url


def measured(urls: Mapping[str, str], n: int) -> dict[str, list[Took]]:
    """The times of each way, for each prompt."""
    times: dict[str, list[Took]] = {way: [] for way in urls}
    with contextlib.ExitStack() as stack:
        clients = {
            way: stack.enter_context(httpx2.Client(base_url=url, trust_env=False, timeout=60))
            for way, url in urls.items()
        }
        path, body = request_of(clients["direct"])
        mores = {"Suture": ("/v1/completions", {"healing": "off"})}
        for at in range(n + WARM_UP):
            show_progress(f"{at} of {n}")
            # Each prompt is a new one: a cache that has it would answer the next way faster.
            prompt = f"# {at}\n{LINES[at % len(LINES)]}"
            ways = [*clients][at % len(clients) :] + [*clients][: at % len(clients)]
            for way in ways:
                where, more = mores.get(way, (path, body))
                took = asked(clients[way], where, common(prompt) | more)
                if at >= WARM_UP:
                    times[way].append(took)
    return times


def common(prompt: str) -> dict[str, Any]:
    return {
        "model": "suture",
        "prompt": prompt,
        "max_tokens": N_TOKENS,
        "temperature": 0,
        "stream": True,
    }


def request_of(direct: httpx2.Client) -> tuple[str, dict[str, Any]]:
    """Where a server completes texts, and by which name of the model."""
    models = direct.get("/v1/models").json()["data"]
    return "/v1/completions", {"model": models[0]["id"]}


def asked(client: httpx2.Client, path: str, body: dict[str, Any]) -> Took:
    started = time.perf_counter()
    first = None
    with client.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            raise SystemExit(f"{response.status_code}: {response.read().decode()}")
        for line in response.iter_lines():
            if first is None and says_something(line):
                first = time.perf_counter()
    ended = time.perf_counter()
    return Took(((first or ended) - started) * 1e3, (ended - started) * 1e3)


def says_something(line: str) -> bool:
    if not line.startswith("data: {"):
        return False
    choices: Sequence[Any] = json.loads(line.removeprefix("data: ")).get("choices") or ()
    return any(choice.get("text") for choice in choices)


if __name__ == "__main__":
    main()
