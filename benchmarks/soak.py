"""Many clients with no manners against a real server: is anything lost, stuck or kept?

    python benchmarks/soak.py [--clients N] [--requests N] [--streams N] [--seed N]
    python benchmarks/soak.py --minutes 20 [--model NAME|PATH] [--clients N] [--seed N]

The model is tiny and has random weights, so that the server and not the model is at work. Each
client asks for holes and for text, as streams and whole, in sessions whose newer requests overtake
older ones, with deadlines, and leaves when it likes: in the queue, while its prompt is read, after
some events. One that is refused comes back as it is told to. Then as many streams as asked for are
open at once, 32 of them drawing. A process of its own asks `/health` all the time. Status 1 if a
request was lost or is stuck, or the engine still holds a sequence for one.

With `--minutes` two servers are asked for so long, in every dialect: one with a real model, by
default the small one, which goes on left to right, and one with the tiny model, which fills holes
too. Clients pause, leave when they like, in the middle of a body as well, and send bodies that must
be refused. What each worker holds is looked at every few seconds: memory, files and threads.
Status 1 also if a worker was another one at the end, or has kept files open.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import multiprocessing
import random
import re
import socket
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
from harness.memory import Held, memory_of
from harness.mixed_traffic import Sent, Traffic, ends_with_done, ends_with_stop, has, sent
from harness.servers import model_path
from harness.tables import percentile, print_table, show_progress

from suture.server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.tiny_models import tiny_model  # noqa: E402
from support.vocabularies import pulled  # noqa: E402

CTX, PARALLEL, QUEUE = 4096, 8, 40
# Nothing that is asked here takes long: who has no end by then never gets one.
STUCK_S = 300.0
POLL_S = 0.05
LOOK_S = 5.0
# Until every cache is full and every thread is there: this part of the minutes.
WARM_UP = 0.1
# What may stay open when nobody asks: connections in their last moments.
FEW_FILES = 8
LINES = (ROOT / "server" / "engine" / "kv.py").read_text().splitlines(keepends=True)


@dataclass
class Tally:
    """What became of the requests, and how long `/health` took, in seconds."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    losses: collections.Counter[str] = field(default_factory=collections.Counter)
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)
    health_s: list[float] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.outcomes["lost"] + self.outcomes["stuck"]

    def lose(self, why: str) -> None:
        self.outcomes["lost"] += 1
        self.losses[why] += 1


def main() -> int:
    arguments = parse()
    if arguments.minutes:
        return mixed(arguments)
    with tempfile.TemporaryDirectory() as folder:
        [vocabulary] = pulled(["vocab-starcoder"], load_settings().model_store).values()
        model = tiny_model(vocabulary, Path(folder) / "starcoder-tiny.gguf")
        with serving(model, PARALLEL, QUEUE) as url:
            is_sound = asyncio.run(soak(url, arguments))
        with serving(model, 32, arguments.streams) as url:
            return 0 if asyncio.run(all_at_once(url, arguments.streams)) and is_sound else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, help="64; with --minutes 4 of each server")
    parser.add_argument("--requests", type=int, default=50, help="of each client")
    parser.add_argument("--streams", type=int, default=300, help="open at once, at the end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="of mixed traffic, and nothing else")
    parser.add_argument("--model", default="smollm2-135m", metavar="NAME|PATH", help="then served")
    arguments = parser.parse_args()
    arguments.clients = arguments.clients or (4 if arguments.minutes else 64)
    return arguments


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
        leaves_s = self._rng.expovariate(5) if self._rng.random() < 0.3 else None
        await asked_until(self._http, self.request(in_session), self._tally, leaves_s)

    def request(self, in_session: bool) -> Sent:
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
            body |= {"prompt": before, "max_tokens": n_tokens}
            judge = ends_with_done if body["stream"] else has('"finish_reason"')
            return sent("OpenAI", "/v1/completions", body, judge)
        if rng.random() < 0.3:
            body["t_max_predict_ms"] = rng.randint(1, 50)
        if rng.random() < 0.1:
            body["t_max_prompt_ms"] = rng.randint(1, 20)
        body |= {"input_prefix": before, "input_suffix": after, "n_predict": n_tokens}
        return sent("llama.cpp /infill", "/infill", body, ends_with_stop)


async def asked_until(
    http: httpx2.AsyncClient, asked: Sent, tally: Tally, leaves_s: float | None
) -> None:
    """One request, whose client leaves after `leaves_s` seconds, if it has no answer by then."""
    asking = asyncio.create_task(request(http, asked, tally))
    done, _ = await asyncio.wait({asking}, timeout=STUCK_S if leaves_s is None else leaves_s)
    if done:
        return
    tally.outcomes["stuck" if leaves_s is None else "left"] += 1
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def request(http: httpx2.AsyncClient, asked: Sent, tally: Tally) -> None:
    """One request, as often as it is refused, to a whole answer or a loss."""
    while True:
        try:
            response = await http.post(asked.path, content=asked.content)
        except httpx2.HTTPError as error:
            tally.lose(f"{asked.kind}: {type(error).__name__}")
            return
        if response.status_code != 503:
            break
        tally.outcomes["refused"] += 1
        await asyncio.sleep(int(response.headers["retry-after"]) * random.uniform(0.2, 1.0))
    if asked.is_whole(response.status_code, response.text):
        tally.outcomes["answered"] += 1
        tally.kinds[asked.kind] += 1
    elif response.status_code == 200:
        tally.lose(f"{asked.kind}: half an answer")
    else:
        tally.lose(f"{asked.kind}: status {response.status_code}")


async def long_stream(http: httpx2.AsyncClient, tally: Tally, n: int) -> None:
    body = {"prompt": f"{n} = ", "max_tokens": 40, "ignore_eos": True, "stream": True}
    await request(http, sent("OpenAI", "/v1/completions", body, ends_with_done), tally)


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
    return memory_of(pid).rss_mb


@dataclass
class Watched:
    """A server in mixed traffic, and what was seen of it, at last when nobody asked any more."""

    name: str
    url: str
    pid: int
    fills: bool
    tally: Tally = field(default_factory=Tally)
    seen: list[Held] = field(default_factory=list)
    end: dict[str, object] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        is_closed = self.seen[-1].n_files <= self.seen[0].n_files + FEW_FILES
        is_free = not self.end["sequences running"]
        return self.tally.is_sound and is_free and is_closed and bool(self.end["same worker"])


def mixed(arguments: argparse.Namespace) -> int:
    """Two servers in mixed traffic, for so many minutes."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        [vocabulary] = pulled(["vocab-starcoder"], load_settings().model_store).values()
        tiny = tiny_model(vocabulary, Path(folder) / "starcoder-tiny.gguf")
        paths = (model_path(arguments.model), tiny)
        watched = [met(running.enter_context(serving(path, PARALLEL, QUEUE))) for path in paths]
        asyncio.run(soak_mixed(watched, arguments))
    report(watched, arguments)
    return 0 if all(one.is_sound for one in watched) else 1


def met(url: str) -> Watched:
    """The server, once its model is loaded."""
    with httpx2.Client(base_url=url, trust_env=False, timeout=STUCK_S) as http:
        while http.get("/health").status_code != 200:
            time.sleep(POLL_S)
        status = http.get("/v1/status").json()
    model, pid = status["model"], status["pid"]
    return Watched(model["name"], url, pid, bool(model["fim"]), seen=[Held.by(pid)])


async def soak_mixed(watched: list[Watched], arguments: argparse.Namespace) -> None:
    deadline = time.monotonic() + 60 * arguments.minutes
    typing = [
        typist(one, random.Random(f"{arguments.seed} {one.name} {n}"), deadline)
        for one in watched
        for n in range(arguments.clients)
    ]
    with contextlib.ExitStack() as asking:
        for one in watched:
            asking.enter_context(asked_all_the_time(one.url, one.tally))
        await asyncio.gather(look(watched, deadline), *typing)
    for one in watched:
        async with many_connections(one.url) as http:
            one.end = await what_is_held(http)
            one.end["same worker"] = (await http.get("/v1/status")).json()["pid"] == one.pid
    # Connections of ours are closed only now.
    await asyncio.sleep(LOOK_S)
    for one in watched:
        one.seen.append(Held.by(one.pid))


async def typist(one: Watched, rng: random.Random, deadline: float) -> None:
    """One client, in every dialect, until the deadline."""
    traffic = Traffic(LINES, rng, one.fills)
    async with many_connections(one.url) as http:
        while time.monotonic() < deadline:
            asked = traffic.next()
            if rng.random() < 0.02:
                await leave_within_a_body(one, asked)
            else:
                leaves_s = rng.expovariate(5) if rng.random() < 0.3 else None
                await asked_until(http, asked, one.tally, leaves_s)
            await asyncio.sleep(rng.expovariate(3))


async def leave_within_a_body(one: Watched, asked: Sent) -> None:
    """Sends half of a request, and goes."""
    url = httpx2.URL(one.url)
    head = f"POST {asked.path} HTTP/1.1\r\nHost: {url.host}\r\n"
    half = asked.content[: len(asked.content) // 2]
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(f"{head}Content-Length: {len(asked.content)}\r\n\r\n".encode() + half)
        await asyncio.sleep(POLL_S)
    one.tally.outcomes["left"] += 1


async def look(watched: list[Watched], deadline: float) -> None:
    """Sees what the workers hold, until the deadline."""
    while (left_s := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(LOOK_S, left_s))
        for one in watched:
            one.seen.append(Held.by(one.pid))
        n_answered = sum(one.tally.outcomes["answered"] for one in watched)
        show_progress(f"{left_s / 60:.1f} minutes left, {n_answered} answered")
    show_progress("")


def report(watched: list[Watched], arguments: argparse.Namespace) -> None:
    print(f"{arguments.minutes:g} minutes, {arguments.clients} clients of each server")
    rows = [rows_of(one) for one in watched]
    titles = [f"{one.name}, {'holes too' if one.fills else 'left to right'}" for one in watched]
    print_table(["", *titles], [[name, *(each[name] for each in rows)] for name in rows[0]])
    kinds = sorted({kind for one in watched for kind in one.tally.kinds})
    print_table(
        ["answered", *(one.name for one in watched)],
        [[kind, *(one.tally.kinds[kind] for one in watched)] for kind in kinds],
    )


def rows_of(one: Watched) -> dict[str, object]:
    waits = [1000 * wait for wait in one.tally.health_s]
    half, most = percentile(waits, 50), percentile(waits, 99)
    rows = counted(one.tally) | one.end
    rows["same worker"] = "yes" if one.end["same worker"] else "no"
    rows["/health, ms"] = f"p50 {half:.1f}, p99 {most:.1f}, max {max(waits):.0f}"
    names = {"MB resident": "rss_mb", "MB not in files": "own_mb"}
    names |= {"open files": "n_files", "threads": "n_threads"}
    for title, name in names.items():
        rows[f"{title}: before, warm, half way, at the end, at rest; most"] = told(one, name)
    return rows


def told(one: Watched, name: str) -> str:
    """What the worker held of it at five moments, and at most."""
    values = [getattr(held, name) for held in one.seen]
    before, *traffic, at_rest = values
    warm, half_way = traffic[int(WARM_UP * len(traffic))], traffic[len(traffic) // 2]
    moments = (before, warm, half_way, traffic[-1], at_rest)
    return f"{', '.join(f'{value:.0f}' for value in moments)}; {max(values):.0f}"


if __name__ == "__main__":
    sys.exit(main())
