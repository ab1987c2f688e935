"""Streaming detokenizer and vocabulary loading against named peers, in one run.

    python benchmarks/detokenizer.py

The stream is this project's own source, tokenized by the default model, fed token by token. Peers:
`tokenizers`' DecodeStream, and the two-window rule that vLLM and TGI use, restated over the same
pieces. Each figure is the best of some rounds; the ratios are what to quote.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gguf import GGUFReader
from tokenizers import Tokenizer, decoders, models

from suture.healing import Detokenizer, TokenTransducer, Vocabulary, read_metadata
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.models.catalog import Catalog
from suture.server.models.progress import progress_on
from suture.server.models.resolve import resolve_model
from suture.server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 5
# Begun on every other line and never completed: the whole stream is read.
STOPS = ("\n\n\nZZ", "\nclass ZZ", "\nif __name__ZZ", "    return ZZ")


def main() -> None:
    path = resolve_model(
        None, Catalog.packaged(), load_settings().model_store, progress_on(sys.stderr)
    )
    vocabulary = report_loading(path)
    # What the peer's reader left behind must not be collected during somebody's round.
    gc.collect()
    gc.freeze()
    source = b"".join(file.read_bytes() for file in sorted((ROOT / "server").rglob("*.py")))
    ids = LlamaTokenizer(path).encode(source)
    print(
        f"\n{len(ids)} tokens, {len(source)} bytes; microseconds a token, and how many times ours"
    )
    times = best_of_rounds(
        {
            "suture, no stops": lambda: stream(vocabulary, ids, ()),
            "suture, 4 stops": lambda: stream(vocabulary, ids, STOPS),
            "tokenizers DecodeStream, no stops": decode_stream(path, ids),
            "two windows (vLLM, TGI), no stops": lambda: two_windows(vocabulary, ids),
        }
    )
    ours = times["suture, no stops"]
    for name, seconds in times.items():
        print(f"  {name:36s}{seconds / len(ids) * 1e6:8.3f}{seconds / ours:8.1f}")


def report_loading(path: Path) -> Vocabulary:
    """Print how long a vocabulary takes to read."""
    started = time.perf_counter()
    vocabulary = Vocabulary.from_gguf(path)
    ours = time.perf_counter() - started
    started = time.perf_counter()
    GGUFReader(path)
    theirs = time.perf_counter() - started
    print(f"reading {vocabulary.n_vocab} tokens of {path.name}")
    print(f"  suture, with its index      {ours:8.3f} s")
    print(f"  gguf.GGUFReader, no index   {theirs:8.3f} s  {theirs / ours:8.1f} times ours")
    return vocabulary


def best_of_rounds(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest time of each, in seconds. They take turns: a machine's speed drifts."""
    times = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name] = min(times[name], time.perf_counter() - started)
    return times


def stream(vocabulary: Vocabulary, ids: Sequence[int], stops: tuple[str, ...]) -> int:
    """All deltas of the product's own detokenizer, its transducer warm from the rounds before."""
    transducer = _TRANSDUCERS.setdefault(stops, TokenTransducer(vocabulary, stops))
    detokenizer = Detokenizer(transducer)
    feed = detokenizer.feed
    n = sum(len(feed(token_id)) for token_id in ids)
    assert not detokenizer.stopped
    return n + len(detokenizer.flush())


_TRANSDUCERS: dict[tuple[str, ...], TokenTransducer] = {}


def decode_stream(path: Path, ids: Sequence[int]) -> Callable[[], object]:
    """The same with `tokenizers`, its tokenizer made from the same file."""
    metadata = read_metadata(path)
    texts = [text.decode() for text in metadata["tokenizer.ggml.tokens"]]  # type: ignore[attr-defined]
    merges = [
        tuple(merge.decode().split(" "))
        for merge in metadata["tokenizer.ggml.merges"]  # type: ignore[attr-defined]
    ]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    tokenizer.decoder = decoders.ByteLevel()

    def run() -> int:
        decoding = decoders.DecodeStream(skip_special_tokens=True)
        return sum(len(decoding.step(tokenizer, token_id) or "") for token_id in ids)

    return run


def two_windows(vocabulary: Vocabulary, ids: Sequence[int]) -> int:
    """Decode a short window twice a token and send the difference unless it ends in U+FFFD."""
    prefix, read, sent = 0, 0, 0
    for n in range(1, len(ids) + 1):
        before = b"".join(map(vocabulary.bytes_of, ids[prefix:read])).decode("utf-8", "replace")
        after = b"".join(map(vocabulary.bytes_of, ids[prefix:n])).decode("utf-8", "replace")
        if len(after) > len(before) and not after.endswith("\ufffd"):
            sent += len(after) - len(before)
            prefix, read = read, n
    return sent


if __name__ == "__main__":
    main()
