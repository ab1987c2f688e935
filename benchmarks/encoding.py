"""Planning prompts of code for many clients: on their event loop, on one thread, and in batches.

    python benchmarks/encoding.py [--clients 1 64] [--rounds 3] [--seconds 3] [--busy]

Each client plans one prompt of some 8,000 tokens after the other, always another text. No model is
evaluated; with `--busy`, as many threads as there are cores compute without Python beside it, as a
model would. The ways take turns, and a figure is the median of the rounds: requests a second, how
long a request waited for its plan, and the longest time in which the event loop did nothing else.
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
BEAT_S = 0.001
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
    """Of one round: seconds that each request waited, and the loop's longest silence."""

    seconds: float
    waits: list[float]
    blocked_s: float
    n_tokens: int

    def figures(self) -> tuple[float, float, float, float]:
        """Requests a second, waits at p50 and p99, and the silence; the latter in milliseconds."""
        waits = sorted(self.waits)
        p50, p99 = (waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99))
        return len(waits) / self.seconds, p50 * 1e3, p99 * 1e3, self.blocked_s * 1e3


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
    way: Way, encoder: Encoder, prompts: Prompts, n_clients: int, seconds: float
) -> Measurement:
    """Clients that each ask again as soon as they are answered, for so many seconds."""
    waits: list[float] = []
    sizes: list[int] = []
    began = time.perf_counter()

    async def ask_on() -> None:
        asked = time.perf_counter()
        while asked - began < seconds:
            plan = await way.run(prompts.next_plan(), encoder)
            answered = time.perf_counter()
            waits.append(answered - asked)
            sizes.append(len(plan.kept_ids))
            asked = answered
            await asyncio.sleep(0)  # where others have their turn

    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    await asyncio.gather(*(ask_on() for _ in range(n_clients)))
    elapsed = time.perf_counter() - began
    beating.cancel()
    return Measurement(elapsed, waits, heart.longest_s, sum(sizes) // len(sizes))


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
    """The medians of the rounds."""
    figures = zip(*(each.figures() for each in measurements), strict=True)
    return " | ".join(f"{statistics.median(values):,.1f}" for values in figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--busy", action="store_true")
    args = parser.parse_args()
    path = model_path()
    vocabulary, own = Vocabulary.from_gguf(path), LlamaTokenizer(path)
    prompts = Prompts(vocabulary)
    print("| tokenizer | clients | way | requests/s | wait p50, ms | p99, ms | loop blocked, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with computing(os.cpu_count() or 1) if args.busy else contextlib.nullcontext():
        for (name, encoder), n_clients in itertools.product(
            encoders(vocabulary, own).items(), args.clients
        ):
            rounds: dict[str, list[Measurement]] = {title: [] for title in WAYS}
            for _ in range(args.rounds):
                for title, new in WAYS.items():
                    way = new()
                    measuring = measure(way, encoder, prompts, n_clients, args.seconds)
                    rounds[title].append(asyncio.run(measuring))
                    way.close()
            for title, measurements in rounds.items():
                print(f"| {name} | {n_clients} | {title} | {row(measurements)} |", flush=True)
    n_tokens = statistics.mean(each.n_tokens for each in measurements)
    print(f"\n{n_tokens:,.0f} tokens a prompt; {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
