"""Four small experiments about streaming, each a table and what it shows.

python benchmarks/experiments.py [cost|held|stop|windows]
"""

from __future__ import annotations

import argparse
import codecs
import os
import statistics
from collections.abc import Callable, Sequence

from harness import peers
from harness.streams import Streams, read_streams
from harness.timing import best_seconds, time_streams

from suture.healing import (
    Decoding,
    Detokenizer,
    TokenTransducer,
    WindowDetokenizer,
    feed_batch,
)
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.engine.tree import TokenTree

THANKS = "我很感谢你的热情"
HUMAN = "\n\nHuman:"
N_WINDOW_STEPS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", choices=sorted(EXPERIMENTS))
    only = parser.parse_args().only
    streams = read_streams()
    for name, experiment in EXPERIMENTS.items():
        if only in (None, name):
            experiment(streams)


def run_cost(streams: Streams) -> None:
    """The cost c of one token of one stream, which a batch pays once for each of its streams."""
    pieces = [streams.vocabulary.bytes_of(i) for i in range(streams.vocabulary.n_vocab)]
    ids = streams.code
    timings = time_streams(
        {
            "suture": (peers.suture(streams.vocabulary), ids),
            "suture, nothing remembered": (_forgetful(streams), ids[:4_000]),
            "tokenizers DecodeStream": (peers.decode_stream(streams.path, streams.vocabulary), ids),
            "two windows": (peers.two_windows(pieces), ids),
            "token_to_piece by ctypes": (peers.piece_calls(streams.path), ids),
        },
        20,
    )
    decode = _decode_step(streams)
    print(f"\nThe cost c of a token, and c x 256 as a share of a {decode * 1e3:.0f} ms decode step")
    for name, timing in timings.items():
        print(f"  {name:32s}{timing.all:8.3f} us{timing.all * 256 / decode / 1e6:12.4%}")
    print(
        "  It shows that c is far below a step of this model with any of them; it counts where a\n"
        "  step takes a millisecond and batches are large, and where c grows with the text."
    )


def _forgetful(streams: Streams) -> peers.New:
    """Every step is taken anew: what the first request of a server pays."""
    transducer = TokenTransducer(streams.vocabulary, memo_entries=0)
    return lambda: Detokenizer(transducer).feed


def _decode_step(streams: Streams) -> float:
    engine = LlamaEngine(streams.path, n_threads=os.cpu_count() or 1)
    try:
        sequence, token = engine.open(), TokenTree.chain(streams.code[:1])
        return best_seconds({"": lambda: engine.evaluate([(sequence, token)])}, 5)[""]
    finally:
        engine.close()


def run_held(streams: Streams) -> None:
    """Which steps of a text hold something, in tokens and in bytes."""
    in_tokens = LlamaTokenizer(streams.path).encode(THANKS.encode())
    in_bytes = [streams.vocabulary.ids_of(bytes([byte]))[0] for byte in THANKS.encode()]
    print(f"\nWhat each step of {THANKS} sends, and how many bytes it holds")
    shares = []
    for name, ids in (("its tokens", in_tokens), ("its bytes", in_bytes)):
        detokenizer = Detokenizer(TokenTransducer(streams.vocabulary))
        steps = [(detokenizer.feed(token_id), detokenizer.held_bytes) for token_id in ids]
        print(f"  {name}: " + " ".join(f"{text or '·'}{held or ''}" for text, held in steps))
        shares.append(f"{sum(held > 0 for _, held in steps)} of {len(steps)} steps of {name}")
    held = " and ".join(shares)
    print(f"  It shows that {held} hold something, never more than a character's bytes.")


def run_stop(streams: Streams) -> None:
    """One stop string that chat models have, against none, and against always holding."""
    ids, step = streams.code, peers.suture(streams.vocabulary)
    runs = {
        "none": (step, ids),
        "held as long as it must": (peers.suture(streams.vocabulary, [HUMAN]), ids),
        f"always {len(HUMAN) - 1} characters": (peers.with_finds(step, [HUMAN]), ids),
    }
    timings = time_streams(runs, 30)
    print(f"\nThe stop string {HUMAN!r} on {len(ids)} tokens of Python code")
    print(f"  {'':28s}{'us/token':>10s}{'mean characters held':>22s}{'steps that hold none':>22s}")
    for name, (new, _) in runs.items():
        held = _held_characters(streams, new)
        none = sum(not n for n in held) / len(held)
        print(f"  {name:28s}{timings[name].all:10.3f}{statistics.mean(held):22.3f}{none:22.1%}")
    print("  It shows that a stop string costs text only where the text looks like it.")


def _held_characters(streams: Streams, new: peers.New) -> list[int]:
    """What was read and not sent after each token; an unfinished character counts as one."""
    feed, held, n_sent, n_whole = new(), [], 0, 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token_id in streams.code:
        n_whole += len(decoder.decode(streams.vocabulary.bytes_of(token_id)))
        n_sent += len(feed(token_id) or "")
        held.append(n_whole + bool(decoder.getstate()[0]) - n_sent)
    return held


def run_windows(streams: Streams) -> None:
    """The window path, many texts in a call to the tokenizer against one."""
    tokenizer = peers.tokenizer_of(streams.path, streams.vocabulary)
    decoding = Decoding(
        tokenizer.decode,
        streams.vocabulary.n_vocab,
        special_ids=streams.vocabulary.control_ids,
        decode_batch=lambda rows: tokenizer.decode_batch([list(row) for row in rows]),
    )
    print("\nThe window path over tokenizers, microseconds a token: row by row, and batched")
    gains = []
    for n_rows in (1, 8, 64):
        starts = [len(streams.code) * n // n_rows for n in range(n_rows)]
        steps = [
            [streams.code[(start + n) % len(streams.code)] for start in starts]
            for n in range(N_WINDOW_STEPS)
        ]
        times = best_seconds(
            {"rows": _by_row(decoding, steps), "batch": _by_batch(decoding, steps)}, 5
        )
        rows, batch = (t / N_WINDOW_STEPS / n_rows * 1e6 for t in times.values())
        gains.append(rows / batch)
        print(f"  {n_rows:3d} texts{rows:10.2f}{batch:10.2f}")
    verdict = "gains" if gains[-1] > 1.1 else "does not gain"
    print(
        f"  It shows that batching {verdict} with this tokenizer on {os.cpu_count()} cores: "
        f"{gains[-1]:.2f} times at 64 texts."
    )


def _by_row(decoding: Decoding, steps: Sequence[Sequence[int]]) -> Callable[[], None]:
    def run() -> None:
        feeds = [WindowDetokenizer(decoding).feed for _ in steps[0]]
        for step in steps:
            for feed, token_id in zip(feeds, step, strict=True):
                feed(token_id)

    return run


def _by_batch(decoding: Decoding, steps: Sequence[Sequence[int]]) -> Callable[[], None]:
    def run() -> None:
        texts = [WindowDetokenizer(decoding) for _ in steps[0]]
        for step in steps:
            feed_batch(texts, step)

    return run


EXPERIMENTS: dict[str, Callable[[Streams], None]] = {
    "cost": run_cost,
    "held": run_held,
    "stop": run_stop,
    "windows": run_windows,
}

if __name__ == "__main__":
    main()
