"""Planning prompts of code for many clients: on their event loop, on one thread, and in batches.

    python benchmarks/encoding.py [--clients 1 64] [--rounds 3] [--seconds 3] [--busy] [--long]

Each client plans one prompt of some 8,000 tokens after the other, always another text. No model is
evaluated; with `--busy`, as many threads as there are cores compute without Python beside it, as a
model would. With `--long` there is one client more, which nobody measures and which has a text of
10 MB encoded, again and again; a plan's own texts are never as long.

The ways take turns, and a figure is the best of the rounds: requests a second, how long a request
waited for its plan, the longest time in which the event loop did nothing else, and the time of all
cores that a request took, which others on the machine hardly change.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from harness.streams import ROOT, model_path

from suture.healing import Encode, Vocabulary, tokenizer_of
from suture.server.codec import Encoder, choose_codec
from suture.server.encoding import BatchedEncoding, EncodingThread
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.plan import PromptPlan, plan_prompt
from suture.server.request import CompletionRequest

T = TypeVar("T")

N_CHARACTERS = 33_000
BUDGET = PromptBudget(n_ctx=16_384, prefill_tokens_per_s=1e6)
MAX_TEXTS, WAIT_S = 32, 0.002
BEAT_S = 0.005
LONG = b"def f(x):\n    return x\n" * 440_000
# Prime, so that no two prompts begin alike.
STRIDE = 7_919


class Way(Protocol):
    """What plans a prompt."""

    async def run(self, work: Callable[[Encode], T], encoder: Encoder) -> T: ...

    def close(self) -> None: ...


class Inline:
    """The caller's event loop."""

    async def run(self, work: Callable[[Encode], T], encoder: Encoder) -> T:
        return work(encoder.encode)

    def close(self) -> None:
        """There is nothing to wait for."""


WAYS: dict[str, Callable[[], Way]] = {
    "inline": Inline,
    "off: one thread": EncodingThread,
    f"on: N={MAX_TEXTS}, T={WAIT_S * 1e3:.0f} ms": partial(BatchedEncoding, MAX_TEXTS, WAIT_S),
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """Of one round, in seconds; `waits` of each request, `blocked` the loop's longest silence."""

    elapsed: float
    cpu: float
    waits: list[float]
    blocked: float
    n_tokens: int

    @property
    def requests_per_s(self) -> float:
        return len(self.waits) / self.elapsed

    def wait_at(self, share: float) -> float:
        return sorted(self.waits)[int(share * (len(self.waits) - 1))]


class Prompts:
    """Requests for texts of our own sources, each another one, and how they are planned."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        sources = sorted((ROOT / "server").rglob("*.py"))
        self._text = "".join(file.read_text("utf-8") for file in sources)
        self._vocabulary = vocabulary
        self._starts = itertools.count(0, STRIDE)

    def next_plan(self) -> Callable[[Encode], PromptPlan]:
        start = next(self._starts) % (len(self._text) - N_CHARACTERS)
        request = CompletionRequest(self._text[start : start + N_CHARACTERS])
        return lambda encode: plan_prompt(request, self._vocabulary, None, encode, BUDGET)


async def measure(
    way: Way, encoder: Encoder, prompts: Prompts, n_clients: int, seconds: float, long: bytes
) -> Measurement:
    """Clients that each ask again as soon as they are answered, for so many seconds.

    `long` is encoded beside them all the time, if there is any of it.
    """
    waits: list[float] = []
    sizes: list[int] = []
    began, began_cpu = time.perf_counter(), time.process_time()

    async def ask_on() -> None:
        asked = began
        while asked == began or asked - began < seconds:
            plan = await way.run(prompts.next_plan(), encoder)
            answered = time.perf_counter()
            waits.append(answered - asked)
            sizes.append(len(plan.kept_ids))
            asked = answered
            await asyncio.sleep(0)  # where others have their turn

    async def encode_on() -> None:
        while long and time.perf_counter() - began < seconds:
            await way.run(lambda encode: len(encode(long)), encoder)

    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    await asyncio.gather(encode_on(), *(ask_on() for _ in range(n_clients)))
    elapsed, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    beating.cancel()
    return Measurement(elapsed, cpu, waits, heart.longest_s, sum(sizes) // len(sizes))


class Heart:
    """Beats on the event loop, and knows how late it was at worst."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def beat(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(BEAT_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - before - BEAT_S)


@contextlib.contextmanager
def computing(n_threads: int) -> Iterator[None]:
    """So many threads that compute without holding Python's lock."""
    ended = threading.Event()
    data = bytes(1 << 24)

    def compute() -> None:
        while not ended.is_set():
            hashlib.sha256(data)

    threads = [threading.Thread(target=compute) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def encoders(vocabulary: Vocabulary, own: LlamaTokenizer) -> dict[str, Encoder]:
    fast = tokenizer_of(vocabulary)
    return {
        "tiktoken": choose_codec("tiktoken", "auto", vocabulary, own, fast).encoder,
        "llama.cpp": choose_codec("llama", "auto", vocabulary, own, None).encoder,
    }


def row(measurements: list[Measurement]) -> str:
    """The best of the rounds, seconds as milliseconds."""
    seconds = (
        min(each.wait_at(0.5) for each in measurements),
        min(each.wait_at(0.99) for each in measurements),
        min(each.blocked for each in measurements),
        min(each.cpu / len(each.waits) for each in measurements),
    )
    per_s = max(each.requests_per_s for each in measurements)
    return " | ".join((f"{per_s:.0f}", *(f"{value * 1e3:,.0f}" for value in seconds)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--long", action="store_true")
    args = parser.parse_args()
    long = LONG if args.long else b""
    path = model_path()
    vocabulary, own = Vocabulary.from_gguf(path), LlamaTokenizer(path)
    prompts = Prompts(vocabulary)
    print("| tokenizer | clients | way | requests/s | wait p50, ms | p99 | loop blocked | CPU |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with computing(os.cpu_count() or 1) if args.busy else contextlib.nullcontext():
        for (name, encoder), n_clients in itertools.product(
            encoders(vocabulary, own).items(), args.clients
        ):
            rounds: dict[str, list[Measurement]] = {title: [] for title in WAYS}
            for _ in range(args.rounds):
                for title, new in WAYS.items():
                    way = new()
                    measuring = measure(way, encoder, prompts, n_clients, args.seconds, long)
                    rounds[title].append(asyncio.run(measuring))
                    way.close()
            for title, measurements in rounds.items():
                print(f"| {name} | {n_clients} | {title} | {row(measurements)} |", flush=True)
    n_tokens = statistics.mean(each.n_tokens for each in measurements)
    print(f"\n{n_tokens:,.0f} tokens a prompt; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
