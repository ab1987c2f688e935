"""Streaming detokenization against named peers, in one run.

    python benchmarks/detokenizing.py [--only streams|stops|held|batches]

Every peer is fed the same tokens by the same plain loop, and they take turns; each figure is the
best of some rounds. Quote the ratios: microseconds are this machine's.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Mapping, Sequence

from harness import peers
from harness.peers import New
from harness.streams import STOPS, Streams, read_streams
from harness.timing import Timing, best_seconds, time_streams

from suture.healing import Detokenizer, OnStop, TokenTransducer, reference
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.tree import TokenTree
from suture.server.request import CompletionChunk
from suture.server.routes.openai import CompletionsAnswer, CompletionsBody

BATCHES = (1, 8, 64, 256)
# TextStreamer decodes a whole line for each token, and code has lines that never end for it.
N_TEXT_STREAMER = 4_000
OURS = "suture"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(TABLES))
    only = parser.parse_args().only
    streams = read_streams()
    for name, table in TABLES.items():
        if only in (None, name):
            table(streams)


def print_streams(streams: Streams) -> None:
    """Each stream without stop strings."""
    pieces = [streams.vocabulary.bytes_of(i) for i in range(streams.vocabulary.n_vocab)]
    rivals = {
        OURS: peers.suture(streams.vocabulary),
        "tokenizers DecodeStream": peers.decode_stream(streams.path, streams.vocabulary),
        "two windows (vLLM, TGI)": peers.two_windows(pieces),
        "TextStreamer rule": peers.text_streamer(pieces),
        "token_to_piece by ctypes": peers.piece_calls(streams.path),
    }
    for title, ids, rounds in (
        ("Python code", streams.code, 30),
        ("mixed scripts, split emoji", streams.mixed, 30),
        ("invalid bytes", streams.invalid, 2),
        ("special tokens without text", streams.silent, 2),
    ):
        runs = {name: (new, ids) for name, new in rivals.items()}
        if title == "Python code":
            runs["TextStreamer rule"] = (rivals["TextStreamer rule"], ids[:N_TEXT_STREAMER])
        print(f"\n{title}: {len(ids)} tokens, no stop strings")
        print_timings(time_streams(runs, rounds), runs, streams)
    print_steps_of_eight(streams)


def print_timings(
    timings: Mapping[str, Timing],
    runs: Mapping[str, tuple[New, list[int]]],
    streams: Streams,
) -> None:
    print(f"  {'':34s} us/token   x ours   last/first quarter   unsent at the end")
    for name, timing in timings.items():
        new, ids = runs[name]
        n_unsent = len(streams.text(ids)) - sum(len(text or "") for text in map(new(), ids))
        ratio = timing.all / timings[OURS].all
        print(f"  {name:34s}{timing.all:9.3f}{ratio:9.1f}{timing.growth:21.1f}{n_unsent:20d}")


def print_steps_of_eight(streams: Streams) -> None:
    """Code in steps of eight tokens, as a speculating engine accepts them."""
    ids = streams.code
    steps = [ids[start : start + 8] for start in range(0, len(ids), 8)]
    transducers = {n: TokenTransducer(streams.vocabulary, STOPS[n]) for n in ("none", "4 stops")}

    def by_step(stops: str) -> None:
        feed_all = Detokenizer(transducers[stops]).feed_all
        for step in steps:
            feed_all(step)  # Returns one text, and so must the other.

    def by_token(stops: str) -> None:
        feed = Detokenizer(transducers[stops]).feed
        for step in steps:
            "".join(map(feed, step))

    runs: dict[str, Callable[[], object]] = {}
    for stops in transducers:
        runs[f"{OURS}, feed_all of 8, {stops}"] = lambda stops=stops: by_step(stops)  # type: ignore[misc]
        runs[f"{OURS}, feed and join, {stops}"] = lambda stops=stops: by_token(stops)  # type: ignore[misc]
    print(f"\nPython code, 8 tokens a step: {len(ids)} tokens; us/token")
    for name, seconds in best_seconds(runs, 40).items():
        print(f"  {name:34s}{seconds / len(ids) * 1e6:9.3f}")


def print_stops(streams: Streams) -> None:
    """Code with more and more stop strings."""
    pieces = [streams.vocabulary.bytes_of(i) for i in range(streams.vocabulary.n_vocab)]
    step = peers.decode_stream(streams.path, streams.vocabulary)
    windows = peers.two_windows(pieces)
    for title, stops in STOPS.items():
        runs: dict[str, tuple[New, list[int]]] = {
            OURS: (peers.suture(streams.vocabulary, stops), streams.code),
            "DecodeStream, finds": (peers.with_finds(step, stops), streams.code),
            "two windows, finds": (peers.with_finds(windows, stops), streams.code),
        }
        print(f"\nPython code: {len(streams.code)} tokens, {title}")
        print_timings(time_streams(runs, 30 if len(stops) < 64 else 5), runs, streams)


def print_held(streams: Streams) -> None:
    """What is held after each token, in characters, beside what must be and what vLLM holds."""
    print("\nCharacters held after a token of Python code: mean, most")
    print(f"  {'':12s}{OURS:>16s}{'exact minimum':>18s}{'always max - 1':>18s}")
    for title, stops in STOPS.items():
        ours, least = held_characters(streams, stops)
        always = [max(map(len, stops), default=1) - 1]
        rows = "".join(f"{statistics.mean(n):12.3f}{max(n):5d} " for n in (ours, least, always))
        print(f"  {title:12s}{rows}")
        assert ours == least


def held_characters(streams: Streams, stops: Sequence[str]) -> tuple[list[int], list[int]]:
    """Per token what the detokenizer holds, and what trying every tail says it must."""
    detokenizer = Detokenizer(TokenTransducer(streams.vocabulary, stops))
    ours, least = [], []
    # No tail longer than this can begin a stop string.
    n_tail = max((len(stop.encode()) for stop in stops), default=0) + 4
    tail = b""
    for token_id in streams.code[:4_000]:
        detokenizer.feed(token_id)
        tail = (tail + streams.vocabulary.bytes_of(token_id))[-n_tail:]
        ours.append(n_last_characters(tail, detokenizer.held_bytes))
        least.append(n_last_characters(tail, reference.held_bytes(tail, stops, OnStop.EXCLUDE)))
    return ours, least


def n_last_characters(data: bytes, n_bytes: int) -> int:
    return len(data[len(data) - n_bytes :].decode("utf-8", "replace"))


def print_batches(streams: Streams) -> None:
    """Host time a step of many streams, beside the time that the model takes for that step."""
    decode = decode_seconds(streams)
    print(
        "\nA step of many streams of Python code, milliseconds: detokenizing; with events; decode"
    )
    print(f"  {'':10s}" + "".join(f"{f'{n} streams':>28s}" for n in BATCHES))
    for title in ("none", "4 stops"):
        cells, framed = "", 0.0
        for n_streams in BATCHES:
            plain, framed = step_seconds(streams, STOPS[title], n_streams)
            model = f"{decode[n_streams] * 1e3:.0f}" if n_streams in decode else "-"
            cells += f"{plain * 1e3:12.4f};{framed * 1e3:8.3f};{model:>6s}"
        print(f"  {title:10s}{cells}")
        print_meeting(framed / BATCHES[-1], decode)


def print_meeting(host: float, decode: Mapping[int, float]) -> None:
    """At which batch the host takes as long as the model, whose step grows with the batch too."""
    small, large = min(decode), max(decode)
    growth = (decode[large] - decode[small]) / (large - small)
    fixed = decode[small] - growth * small
    if growth < 0:
        end = "of that batch nobody knows: the machine was busy, measure again"
    elif host <= growth:
        end = f"of that batch never: a stream adds {growth / host:,.0f} times as much to the decode"
    else:
        end = f"of that batch at {fixed / (host - growth):,.0f}"
    print(f"    the host takes as long as the decode of one stream at {decode[small] / host:,.0f},")
    print(f"    as one of 10 ms at {0.01 / host:,.0f},")
    print(f"    as one {end}")


def step_seconds(streams: Streams, stops: Sequence[str], n_streams: int) -> tuple[float, float]:
    """Seconds a step of all streams, each elsewhere in the code; and with their events written."""
    transducer = TokenTransducer(streams.vocabulary, stops)
    ids = streams.code
    n_steps = max(20, 4_000 // n_streams)
    starts = [len(ids) * n // n_streams for n in range(n_streams)]
    steps = [[ids[(s + n) % len(ids)] for s in starts] for n in range(n_steps)]
    answer = CompletionsAnswer(CompletionsBody.model_validate({"prompt": ""}), "model")

    def plain() -> None:
        feeds = [Detokenizer(transducer).feed for _ in starts]
        for step in steps:
            for feed, token_id in zip(feeds, step, strict=True):
                feed(token_id)

    def framed() -> None:
        feeds = [Detokenizer(transducer).feed for _ in starts]
        for step in steps:
            for feed, token_id in zip(feeds, step, strict=True):
                text = feed(token_id)
                if text:
                    answer.delta(CompletionChunk(text, (token_id,)))

    times = best_seconds({"plain": plain, "framed": framed}, 10)
    return times["plain"] / n_steps, times["framed"] / n_steps


def decode_seconds(streams: Streams) -> dict[int, float]:
    """Seconds of one decode with one token for each of so many sequences, up to what the engine
    takes at once."""
    engine = LlamaEngine(streams.path, n_threads=os.cpu_count() or 1)
    try:
        sizes = [n for n in BATCHES if n <= engine.n_rows]
        sequences = [engine.open() for _ in range(max(sizes))]
        token = TokenTree.chain(streams.code[:1])
        seconds = {}
        for n in sizes:
            batch = [(sequence, token) for sequence in sequences[:n]]
            runs = {"": lambda batch=batch: engine.evaluate(batch)}
            seconds[n] = best_seconds(runs, 20 if n == 1 else 5)[""]
        return seconds
    finally:
        engine.close()


TABLES: dict[str, Callable[[Streams], None]] = {
    "streams": print_streams,
    "stops": print_stops,
    "held": print_held,
    "batches": print_batches,
}

if __name__ == "__main__":
    main()
