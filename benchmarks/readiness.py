"""What comes on top of llama.cpp: time until ready, memory, and Python in every step.

    python benchmarks/readiness.py --llama-server PATH [--n N]        4 minutes

Three tables:

1. *Ready*: seconds from starting the process to the first successful `/health`, beside a process
   that loads the same file by llama.cpp's own functions, makes such a context and decodes a token.
   `over the load` is what a server takes longer than loading the model file alone. All take turns;
   the median counts, and the file is in the page cache. Ours measures its speed while it loads.
2. *Memory* after one short request (the bare process: after its token). `not in files` is what the
   process has for itself; the rest is mostly the mapped model. `above llama.cpp` is that less the
   bare process's. Our server is two processes: one that watches, one that holds the model.
3. *Python*: microseconds between two evaluations, of all that our scheduler, sampling and streams
   do for a step, without the event loop. The scripted engine costs nothing by itself; on the model
   what the evaluation has left in the caches is felt. `not counted` has the metrics' counters and
   their clocks taken out, but for how full the cache is.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.gaps import Gaps, model_gaps, scripted_gaps
from harness.memory import Memory, memory_of, tree_of
from harness.servers import (
    N_CTX,
    N_THREADS,
    Server,
    free_port,
    llama_command,
    llama_server,
    model_path,
    parser_of,
    running,
    suture,
    suture_command,
    wait_healthy,
)
from harness.tables import print_table, show_progress

BARE = Path(__file__).resolve().parent / "harness/bare.py"
N_STREAMS = (1, 8)


@dataclass(frozen=True, slots=True)
class Bare:
    """Of a process that has llama.cpp and nothing else: seconds, and its memory."""

    load_s: float
    context_s: float
    decode_s: float
    memory: Memory


def main() -> None:
    args = parser_of(__doc__, 5, "starts of each").parse_args()
    path = model_path(args.model)
    bare = report_ready(path, args.llama_server, args.n)
    report_memory(path, args.llama_server, bare)
    report_python(path)


def report_ready(path: Path, program: Path | None, n: int) -> list[Bare]:
    """The first table; what the bare processes measured."""
    bare: list[Bare] = []
    seconds: dict[str, list[float]] = {"suture": []}
    if program is not None:
        seconds["llama-server"] = []
    start_bare(path)  # the file is in the page cache from here on
    for turn in range(n):
        show_progress(f"starts: {turn + 1} of {n}")
        bare.append(start_bare(path))
        port = free_port()
        seconds["suture"].append(time_to_ready(suture_command(path, port=port), port))
        if program is not None:
            port = free_port()
            command = llama_command(program, path, port=port)
            seconds["llama-server"].append(time_to_ready(command, port))
    show_progress("")
    load_s = statistics.median(run.load_s for run in bare)
    print(f"{path.name}: {n} starts of each")
    rows = [
        ("llama.cpp: model", f"{load_s:.2f}", ""),
        ("llama.cpp: context", f"{statistics.median(run.context_s for run in bare):.2f}", ""),
        ("llama.cpp: one token", f"{statistics.median(run.decode_s for run in bare):.2f}", ""),
    ]
    for name, times in seconds.items():
        ready_s = statistics.median(times)
        rows.append((f"{name}: ready", f"{ready_s:.2f}", f"{ready_s - load_s:.2f}"))
    print_table(("", "s", "over the load, s"), rows)
    return bare


def start_bare(path: Path) -> Bare:
    command = [sys.executable, str(BARE), str(path), str(N_CTX), str(N_THREADS)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running(command, **pipes, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        seconds = json.loads(process.stdout.readline())
        return Bare(**seconds, memory=memory_of(process.pid))


def time_to_ready(command: list[str], port: int) -> float:
    started = time.perf_counter()
    with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_healthy(f"http://127.0.0.1:{port}", process)
        return time.perf_counter() - started


def report_memory(path: Path, program: Path | None, bare: list[Bare]) -> None:
    base = bare[-1].memory
    rows = [("llama.cpp", f"{base.rss_mb:.0f}", f"{base.own_mb:.0f}", "")]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(suture(path))]
        if program is not None:
            servers.append(stack.enter_context(llama_server(program, path)))
        for server in servers:
            server.ask("def add(a, b):\n    ", "\n", 16)
            for what, memory in memories(server).items():
                above = f"{memory.own_mb - base.own_mb:.0f}"
                rows.append((what, f"{memory.rss_mb:.0f}", f"{memory.own_mb:.0f}", above))
    print_table(("", "resident, MB", "not in files, MB", "above llama.cpp, MB"), rows)


def memories(server: Server) -> dict[str, Memory]:
    """Of the process that has the model, and of all of a server's processes."""
    each = [memory_of(pid) for pid in tree_of(server.pid)]
    if len(each) == 1:
        return {server.name: each[0]}
    largest = max(each, key=lambda memory: memory.rss_mb)
    return {f"{server.name}: worker": largest, f"{server.name}: all": sum(each, Memory(0.0, 0.0))}


def report_python(path: Path) -> None:
    engines: dict[str, Callable[[int, bool], Gaps]] = {
        "scripted": lambda n, counted: scripted_gaps(path, n, counted),
        path.stem: lambda n, counted: model_gaps(path, N_THREADS, n, counted),
    }
    rows = []
    for name, measure in engines.items():
        for n_streams in N_STREAMS:
            show_progress(f"steps: {name}, {n_streams} streams")
            counted, uncounted = measure(n_streams, True), measure(n_streams, False)
            rows.append(
                (
                    name,
                    n_streams,
                    counted.n_steps,
                    f"{counted.median_us:.0f}",
                    f"{uncounted.median_us:.0f}",
                    f"{counted.evaluation_ms:.1f}",
                )
            )
    show_progress("")
    columns = ("engine", "streams", "steps", "Python a step, us", "not counted, us")
    print_table((*columns, "evaluation, ms"), rows)


if __name__ == "__main__":
    main()
