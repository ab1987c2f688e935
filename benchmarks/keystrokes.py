"""A completion at every key: evaluated tokens and time, beside llama-server.

    python benchmarks/keystrokes.py [--llama-server PATH] [--files N] [--keys N] [--layout LAYOUT]
        [--csv FILE] [--plot FILE]

Lines of this project's own sources are typed into their files, key by key, and after each key both
servers are asked for 12 tokens with the same text before and after the cursor, greedily, on two
threads, one after the other. llama-server is asked as llama.vim asks it. Without its path only
ours is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
from harness.plot import plot_keys
from harness.trace import Key, type_lines

from suture.server.models.catalog import Catalog
from suture.server.models.progress import progress_on
from suture.server.models.resolve import resolve_model
from suture.server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
# A file, how the first line begins that is typed, and how many are.
TYPED = (
    ("healing/boundary.py", '    spelled = b"".join', 7),
    ("server/models/store.py", "    verified = verified_as(", 6),
    ("server/models/store.py", "    recorded = verified_as(", 6),
)
N_BEFORE, N_AFTER = 40, 60
N_PREDICT = 12
TIMEOUT_S = 600.0
LLAMA_PORT = 8913
# llama-server closes a connection after five idle seconds, while the other one is asked.
CLOSE = {"Connection": "close"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one server to one key. Milliseconds; `first_ms` is until the first text."""

    text: str
    n_prompt: int
    n_evaluated: int
    first_ms: float
    total_ms: float


Ask = Callable[[Key], Answer]


def main() -> None:
    arguments = parse()
    keys = list(all_keys(arguments.files, arguments.keys))
    path = resolve_model(
        None, Catalog.packaged(), load_settings().model_store, progress_on(sys.stderr)
    )
    print(f"{len(keys)} keys, {N_PREDICT} tokens each, {path.name}")
    with contextlib.ExitStack() as stack:
        askers: dict[str, Ask] = {"suture": stack.enter_context(suture(path, arguments.layout))}
        if arguments.llama_server is not None:
            askers["llama-server"] = stack.enter_context(llama_server(arguments.llama_server, path))
        answers: dict[str, list[Answer]] = {name: [] for name in askers}
        for n, key in enumerate(keys):
            # They take turns at going first.
            names = list(askers) if n % 2 else list(askers)[::-1]
            for name in names:
                answers[name].append(askers[name](key))
            print(f"\r{n + 1} of {len(keys)} keys", end="", file=sys.stderr, flush=True)
    report(keys, answers)
    if arguments.csv is not None:
        write_csv(arguments.csv, keys, answers)
    if arguments.plot is not None:
        series = {name: [answer.n_evaluated for answer in given] for name, given in answers.items()}
        arguments.plot.write_text(plot_keys(series, "Prompt tokens evaluated at each key"), "utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-server", type=Path, metavar="PATH")
    parser.add_argument("--keys", type=int, default=40, metavar="N", help="of each file")
    parser.add_argument("--files", type=int, default=len(TYPED), metavar="N")
    parser.add_argument("--layout", default="auto")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a row for each key")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG")
    return parser.parse_args()


def all_keys(n_files: int, n_keys: int) -> Iterator[Key]:
    """The first `n_keys` keys of each of the first `n_files` files."""
    for name, beginning, n_lines in TYPED[:n_files]:
        lines = (ROOT / name).read_text("utf-8").splitlines(keepends=True)
        first = next(n for n, line in enumerate(lines) if line.startswith(beginning))
        start = max(first - N_BEFORE, 0)
        text = "".join(lines[start : first + n_lines + N_AFTER])
        yield from islice(type_lines(text, first - start, n_lines), n_keys)


@contextlib.contextmanager
def suture(path: Path, layout: str) -> Iterator[Ask]:
    """Our server; its prompts have room for all of the text, as the other's have."""
    command = [sys.executable, "-m", "suture.server", "serve", "--model", str(path), "--port", "0"]
    command += ["--threads", "2", "--layout", layout, "--first-text-ms", "60000"]
    with running(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None, "our server did not come up"
        with httpx2.Client(base_url=found[0], timeout=TIMEOUT_S, headers=CLOSE) as client:
            yield lambda key: ask_suture(client, key)


@contextlib.contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, which is ended whatever happens."""
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def ask_suture(client: httpx2.Client, key: Key) -> Answer:
    body = {
        "input_prefix": key.prefix,
        "input_suffix": key.suffix,
        "n_predict": N_PREDICT,
        "temperature": 0,
        "shape": "raw",
        "stream": True,
    }
    text, first_ms, total_ms, last = stream(client, body)
    prompt = last["suture"]["prompt"]
    return Answer(text, prompt["tokens"], prompt["evaluated"], first_ms, total_ms)


@contextlib.contextmanager
def llama_server(program: Path, path: Path) -> Iterator[Ask]:
    command = [str(program), "-m", str(path), "--port", str(LLAMA_PORT), "-t", "2", "-tb", "2"]
    command += ["-np", "1", "-c", "8192", "-b", "4096", "-ub", "1024", "--cache-reuse", "256"]
    quiet = subprocess.DEVNULL
    with running(subprocess.Popen(command, stdout=quiet, stderr=quiet, text=True)):
        url = f"http://127.0.0.1:{LLAMA_PORT}"
        with httpx2.Client(base_url=url, timeout=TIMEOUT_S, headers=CLOSE) as client:
            wait_for(client)
            yield lambda key: ask_llama_server(client, key)


def wait_for(client: httpx2.Client) -> None:
    for _ in range(600):
        with contextlib.suppress(httpx2.TransportError):
            if client.get("/health").status_code == 200:
                return
        time.sleep(0.2)
    raise SystemExit("llama-server did not come up")


def ask_llama_server(client: httpx2.Client, key: Key) -> Answer:
    """As llama.vim does: the cursor's line up to the cursor is the prompt."""
    line_start = key.prefix.rfind("\n") + 1
    body = {
        "input_prefix": key.prefix[:line_start],
        "prompt": key.prefix[line_start:],
        "input_suffix": key.suffix,
        "n_predict": N_PREDICT,
        "temperature": 0,
        "top_k": 1,
        "samplers": ["top_k"],
        "cache_prompt": True,
        "stream": True,
    }
    text, first_ms, total_ms, last = stream(client, body)
    timings = last["timings"]
    n_prompt = last.get("tokens_evaluated", timings["prompt_n"])
    return Answer(text, n_prompt, timings["prompt_n"], first_ms, total_ms)


def stream(
    client: httpx2.Client, body: dict[str, object]
) -> tuple[str, float, float, dict[str, Any]]:
    """The text, milliseconds to the first of it and to the end, and the last event."""
    started = time.perf_counter()
    first, text = None, ""
    last: dict[str, Any] = {}
    with client.stream("POST", "/infill", json=body) as response:
        for line in response.iter_lines():
            if not line.startswith("data: "):
                continue
            last = json.loads(line.removeprefix("data: "))
            if content := str(last.get("content", "")):
                first = first or time.perf_counter()
                text += content
    ended = time.perf_counter()
    return text, ((first or ended) - started) * 1000, (ended - started) * 1000, last


def report(keys: Sequence[Key], answers: dict[str, list[Answer]]) -> None:
    print("\n| server | prompt tokens | evaluated: p50 | p95 | mean | first text, ms | total, ms |")
    print("| --- " * 7 + "|")
    for name, given in answers.items():
        evaluated = [answer.n_evaluated for answer in given]
        print(
            f"| {name} | {statistics.mean(a.n_prompt for a in given):.0f}"
            f" | {statistics.median(evaluated):.0f} | {p95(evaluated):.0f}"
            f" | {statistics.mean(evaluated):.1f}"
            f" | {statistics.median(a.first_ms for a in given):.0f}"
            f" | {statistics.median(a.total_ms for a in given):.0f} |"
        )
    if len(answers) == 2:
        ours, theirs = answers["suture"], answers["llama-server"]
        print("\nours divided by theirs: ", end="")
        rows: dict[str, Callable[[Answer], float]] = {
            "evaluated, mean": lambda a: a.n_evaluated,
            "first text, mean": lambda a: a.first_ms,
            "total, mean": lambda a: a.total_ms,
        }
        print(
            ", ".join(
                f"{what} {sum(map(of, ours)) / sum(map(of, theirs)):.3f}"
                for what, of in rows.items()
            )
        )
        print(
            f"evaluated, p95: {p95([a.n_evaluated for a in ours])}"
            f" against {p95([a.n_evaluated for a in theirs])}"
        )
    for action in ("type", "enter", "pair", "over", "backspace", "jump"):
        of_action = [n for n, key in enumerate(keys) if key.action == action]
        if of_action:
            means = ", ".join(
                f"{name} {statistics.mean(given[n].n_evaluated for n in of_action):.1f}"
                for name, given in answers.items()
            )
            print(f"  {action:10s}{len(of_action):5d} keys, evaluated on average: {means}")


def p95(values: Sequence[int]) -> int:
    return sorted(values)[len(values) * 95 // 100]


def write_csv(path: Path, keys: Sequence[Key], answers: dict[str, list[Answer]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["key", "action", *(f"{name} evaluated" for name in answers)])
        for n, key in enumerate(keys):
            rows.writerow([n, key.action, *(given[n].n_evaluated for given in answers.values())])


if __name__ == "__main__":
    main()
