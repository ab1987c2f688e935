"""Many clients with no manners against a real server: is anything lost, stuck or kept?

    python benchmarks/soak.py [--clients N] [--requests N] [--streams N] [--seed N]

The model is tiny and has random weights, so that the server and not the model is at work. Each
client asks for holes and for text, as streams and whole, in sessions whose newer requests overtake
older ones, with deadlines, and leaves when it likes: in the queue, while its prompt is read, after
some events. One that is refused comes back as it is told to. Then as many streams as asked for are
open at once, 32 of them drawing. A process of its own asks `/health` all the time. Status 1 if a
request was lost or is stuck, or the engine still holds a sequence for one.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import multiprocessing
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2

from suture.server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.tiny_models import tiny_model  # noqa: E402
from support.vocabularies import pulled  # noqa: E402

CTX, PARALLEL, QUEUE = 4096, 8, 40
# Nothing that is asked here takes long: who has no end by then never gets one.
STUCK_S = 120.0
POLL_S = 0.05
LINES = (ROOT / "server" / "engine" / "kv.py").read_text().splitlines(keepends=True)


@dataclass
class Tally:
    """What became of the requests, and how long `/health` took, in seconds."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    losses: collections.Counter[str] = field(default_factory=collections.Counter)
    health_s: list[float] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.outcomes["lost"] + self.outcomes["stuck"]

    def lose(self, why: str) -> None:
        self.outcomes["lost"] += 1
        self.losses[why] += 1


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        [vocabulary] = pulled(["vocab-starcoder"], load_settings().model_store).values()
        model = tiny_model(vocabulary, Path(folder) / "starcoder-tiny.gguf")
        with serving(model, PARALLEL, QUEUE) as url:
            is_sound = asyncio.run(soak(url, arguments))
        with serving(model, 32, arguments.streams) as url:
            return 0 if asyncio.run(all_at_once(url, arguments.streams)) and is_sound else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=50, help="of each client")
    parser.add_argument("--streams", type=int, default=300, help="open at once, at the end")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


@contextlib.contextmanager
def serving(model: Path, parallel: int, queue: int) -> Iterator[str]:
    command = [sys.executable, "-m", "suture.server", "serve", "--model", str(model)]
    command += ["--port", "0", "--ctx", str(CTX), "--parallel", str(parallel)]
    # One thread: the model is so small that two wait for each other more than they compute.
    command += ["--queue", str(queue), "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


async def soak(url: str, arguments: argparse.Namespace) -> bool:
    tally = Tally()
    async with many_connections(url) as http:
        pid = (await http.get("/v1/status")).json()["pid"]
        n_warm = max(arguments.requests // 5, 1)
        started = time.monotonic()
        with asked_all_the_time(url, tally):
            await crowd(http, tally, arguments.clients, n_warm, arguments.seed)
            resident = [resident_mb(pid)]
            for half in (1, 2):
                n_more = (arguments.requests - n_warm + half - 1) // 2
                await crowd(http, tally, arguments.clients, n_more, arguments.seed + 1000 * half)
                resident.append(resident_mb(pid))
        took_s = time.monotonic() - started
        held = await what_is_held(http)
    print(f"{arguments.clients} clients x {arguments.requests} requests in {took_s:.0f} s\n")
    memory = "{:.0f} warm, {:.0f} half way, {:.0f} at the end".format(*resident)
    table({**counted(tally), **held, "resident memory, MB": memory})
    return tally.is_sound and not held["sequences running"]


async def all_at_once(url: str, n_streams: int) -> bool:
    tally = Tally()
    async with many_connections(url) as http:
        with asked_all_the_time(url, tally):
            await asyncio.gather(*(long_stream(http, tally, n) for n in range(n_streams)))
    print(f"\n{n_streams} streams at once\n")
    table(counted(tally))
    return tally.is_sound


def many_connections(url: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=url, trust_env=False, timeout=STUCK_S, limits=limits)


def counted(tally: Tally) -> dict[str, object]:
    outcomes, waits = tally.outcomes, [1000 * wait for wait in tally.health_s]
    rows: dict[str, object] = {"answered": outcomes["answered"], "left": outcomes["left"]}
    rows["refused with 503, then asked again"] = outcomes["refused"]
    rows["lost"] = f"{outcomes['lost']} {dict(tally.losses) or ''}".strip()
    rows["stuck"] = outcomes["stuck"]
    rows["/health, ms"] = f"p50 {statistics.median(waits):.1f}, max {max(waits):.1f}"
    return rows


def table(rows: dict[str, object]) -> None:
    print("| | |\n| --- | --- |")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


@contextlib.contextmanager
def asked_all_the_time(url: str, tally: Tally) -> Iterator[None]:
    """`/health` is asked until the block ends, by a process that has nothing else to do."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=ask_health, args=(url, theirs))
    process.start()
    try:
        yield
        ours.send("enough")
        tally.health_s += ours.recv()
    finally:
        process.terminate()
        process.join()


def ask_health(url: str, told: Connection) -> None:
    waits: list[float] = []
    with httpx2.Client(base_url=url, trust_env=False, timeout=STUCK_S) as http:
        while not told.poll(POLL_S):
            asked = time.perf_counter()
            http.get("/health").raise_for_status()
            waits.append(time.perf_counter() - asked)
    told.send(waits)


async def crowd(
    http: httpx2.AsyncClient, tally: Tally, n_clients: int, n_requests: int, seed: int
) -> None:
    clients = [
        Client(http, tally, random.Random(seed + n), f"client {n}") for n in range(n_clients)
    ]
    await asyncio.gather(*(client.run(n_requests) for client in clients))


class Client:
    """One that asks, overtakes itself and leaves as its random numbers say."""

    def __init__(
        self, http: httpx2.AsyncClient, tally: Tally, rng: random.Random, session: str
    ) -> None:
        self._http = http
        self._tally = tally
        self._rng = rng
        self._session = f"{session} {rng.random()}"
        self._seq = 0

    async def run(self, n_requests: int) -> None:
        while n_requests > 0:
            # Keys that come faster than answers.
            n_together = min(n_requests, self._rng.choice((1, 1, 1, 2, 3)))
            await asyncio.gather(*(self.ask(n_together > 1) for _ in range(n_together)))
            n_requests -= n_together

    async def ask(self, in_session: bool) -> None:
        path, body = self.body(in_session)
        leaves_s = self._rng.expovariate(5) if self._rng.random() < 0.3 else None
        asking = asyncio.create_task(request(self._http, path, body, self._tally))
        done, _ = await asyncio.wait({asking}, timeout=STUCK_S if leaves_s is None else leaves_s)
        if done:
            return
        self._tally.outcomes["stuck" if leaves_s is None else "left"] += 1
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    def body(self, in_session: bool) -> tuple[str, dict[str, Any]]:
        rng = self._rng
        at = rng.randrange(len(LINES))
        before = "".join(LINES[max(at - rng.choice((3, 10, 30)), 0) : at]) + LINES[at][: at % 40]
        after = "".join(LINES[at + 1 : at + 1 + rng.choice((0, 5, 15))])
        n_tokens = rng.choice((0, 1, 4, 16, 40))
        body: dict[str, Any] = {"stream": rng.random() < 0.5, "ignore_eos": rng.random() < 0.5}
        if in_session or rng.random() < 0.3:
            self._seq += 1
            body |= {"session": self._session, "seq": self._seq}
        if rng.random() < 0.5:
            return "/v1/completions", body | {"prompt": before, "max_tokens": n_tokens}
        if rng.random() < 0.3:
            body["t_max_predict_ms"] = rng.randint(1, 50)
        if rng.random() < 0.1:
            body["t_max_prompt_ms"] = rng.randint(1, 20)
        body |= {"input_prefix": before, "input_suffix": after, "n_predict": n_tokens}
        return "/infill", body


async def request(http: httpx2.AsyncClient, path: str, body: dict[str, Any], tally: Tally) -> None:
    """One request, as often as it is refused, to a whole answer or a loss."""
    while True:
        try:
            response = await http.post(path, json=body)
        except httpx2.HTTPError as error:
            tally.lose(type(error).__name__)
            return
        if response.status_code != 503:
            break
        tally.outcomes["refused"] += 1
        await asyncio.sleep(int(response.headers["retry-after"]) * random.uniform(0.2, 1.0))
    if response.status_code != 200:
        tally.lose(f"status {response.status_code}")
    elif not is_whole(path, body, response.text):
        tally.lose("half an answer")
    else:
        tally.outcomes["answered"] += 1


def is_whole(path: str, body: dict[str, Any], text: str) -> bool:
    if path == "/v1/completions":
        end = "data: [DONE]\n\n" if body["stream"] else '"finish_reason"'
        return end in text and '"error"' not in text
    return '"stop":true' in text and '"error"' not in text


async def long_stream(http: httpx2.AsyncClient, tally: Tally, n: int) -> None:
    body = {"prompt": f"{n} = ", "max_tokens": 40, "ignore_eos": True, "stream": True}
    await request(http, "/v1/completions", body, tally)


async def what_is_held(http: httpx2.AsyncClient) -> dict[str, object]:
    """What the engine holds once nobody asks; those that left are given a moment to be noticed."""
    for _ in range(100):
        status = (await http.get("/v1/status")).json()
        if not status["running"] + status["waiting"]:
            break
        await asyncio.sleep(0.1)
    page = (await http.get("/metrics")).text
    sequences = dict(re.findall(r'suture_kv_sequences\{state="(\w+)"\} ([\d.]+)', page))
    [n_free] = re.findall(r"suture_kv_cells_free ([\d.]+)", page)
    return {
        "requests running or waiting at the end": status["running"] + status["waiting"],
        "sequences running": int(float(sequences["running"])),
        "sequences idle, and saved in memory": f"{sequences['idle']}, {sequences['saved']}",
        "KV cells of idle sequences": f"{CTX - int(float(n_free))} of {CTX}",
    }


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
