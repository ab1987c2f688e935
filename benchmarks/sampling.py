"""Microseconds a draw: ours in numpy, llama.cpp's C samplers by ctypes.

    python benchmarks/sampling.py [--model NAME]

The rows are those of a model that reads this script, after each of some tokens. llama.cpp's
samplers take an array of structs that is filled from the row for each draw, as its own server
fills it, and that is counted. All take turns; each figure is the mean over the rows of the best of
some rounds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

# The binding of llama.cpp's samplers that the tests use.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support import llama_samplers
from support.llama_samplers import Row
from suture.server.decoding.json_schema import schema_grammar
from suture.server.decoding.repetition import Breakers, sequence_breakers
from suture.server.decoding.sampling import Sampler
from suture.server.engine import libllama
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.threads import best_thread_count
from suture.server.engine.tree import TokenTree
from suture.server.models.catalog import Catalog
from suture.server.models.progress import progress_on
from suture.server.models.resolve import resolve_model
from suture.server.request import SamplingParams
from suture.server.settings import load_settings

N_ROWS = 24
ROUNDS = 12
OFF = SamplingParams(temperature=1.0, seed=1)
SERVER = replace(OFF, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
DRAWS: dict[str, tuple[SamplingParams, Sequence[str]]] = {
    "greedy": (SamplingParams(), ("greedy",)),
    "llama-server's default": (SERVER, ("top_k", "top_p", "min_p", "temperature", "dist")),
    "temperature 1 (OpenAI's default)": (OFF, ("dist",)),
    "top-p 0.95": (replace(OFF, top_p=0.95), ("top_p", "dist")),
    "min-p 0.05": (replace(OFF, min_p=0.05), ("min_p", "dist")),
    "typical 0.9": (replace(OFF, typical_p=0.9), ("typ_p", "dist")),
    "top-n-sigma 1": (replace(OFF, top_n_sigma=1.0), ("top_n_sigma", "dist")),
    "default and penalties": (
        replace(SERVER, repeat_penalty=1.1, frequency_penalty=0.1),
        ("penalties", "top_k", "top_p", "min_p", "temperature", "dist"),
    ),
    "default and DRY over 512 tokens": (
        replace(SERVER, dry_multiplier=0.8, dry_penalty_last_n=512),
        ("dry", "top_k", "top_p", "min_p", "temperature", "dist"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    name = parser.parse_args().model
    store = load_settings().model_store
    path = resolve_model(name, Catalog.packaged(), store, progress_on(sys.stderr))
    engine = LlamaEngine(path, n_threads=best_thread_count(), n_ctx=2048)
    try:
        history = engine.encode(Path(__file__).read_bytes())[:600]
        rows = read_rows(engine, history)
        print(f"{name}, rows of {rows.shape[1]} logits: microseconds a draw\n")
        print(f"  {'':34s}{'numpy':>9s}{'llama.cpp':>12s}{'ratio':>8s}")
        for title, (params, names) in DRAWS.items():
            print_draws(title, params, names, engine, rows, history)
        print_bias(engine, rows)
        print_grammar(engine, rows)
    finally:
        engine.close()


def read_rows(engine: LlamaEngine, text: Sequence[int]) -> Any:
    """The logits after each of the last tokens of a text."""
    sequence = engine.open()
    for start in range(0, len(text) - N_ROWS, 256):
        chunk = TokenTree.chain(text[start : min(start + 256, len(text) - N_ROWS)], wants=())
        engine.evaluate([(sequence, chunk)])
        engine.commit(sequence, len(chunk) - 1)
    last = TokenTree.chain(text[len(text) - N_ROWS :], wants=range(N_ROWS))
    return engine.evaluate([(sequence, last)])[0].copy()


def print_draws(
    title: str,
    params: SamplingParams,
    names: Sequence[str],
    engine: LlamaEngine,
    rows: Any,
    history: Sequence[int],
) -> None:
    breakers: Breakers = {}
    if "dry" in names:
        breakers = sequence_breakers(params.dry_sequence_breakers, engine.vocabulary, engine.encode)
    sampler, theirs = Sampler(params, (), breakers), Row(rows.shape[1])
    with llama_samplers.chain(names, params, engine.vocab, rows.shape[1]) as chain:
        for token in history[-512:]:
            libllama.load().llama_sampler_accept(chain, token)
        ours, other = best_us(
            lambda row: sampler.pick(row, history=history),
            lambda row: theirs.draw(chain, row),
            rows,
        )
    print(f"  {title:34s}{ours:9.0f}{other:12.0f}{ours / other:8.2f}")


def print_bias(engine: LlamaEngine, rows: Any) -> None:
    """Biases and bans, which every request has: the rows that mean nothing."""
    banned = engine.vocabulary.silent_ids
    sampler = Sampler(replace(OFF, logit_bias=tuple((i, 0.5) for i in range(20))), banned)
    ours, _ = best_us(sampler.adjust, lambda row: None, rows)
    print(f"  {f'20 biases and {len(banned)} bans':34s}{ours:9.0f}")


def print_grammar(engine: LlamaEngine, rows: Any) -> None:
    """What a grammar costs each token, and what the row costs where the drawn one is refused."""
    grammar = engine.grammar(schema_grammar({}))
    permits, mask = best_us(lambda row: grammar.permits(int(row.argmax())), grammar.mask, rows)
    grammar.close()
    print(f"  {'grammar, a token asked about':34s}{permits:9.0f}")
    print(f"  {'grammar, a row masked':34s}{mask:9.0f}")


def best_us(
    ours: Callable[[Any], object], theirs: Callable[[Any], object], rows: Any
) -> list[float]:
    """Microseconds of each: the mean over the rows of the best of the rounds."""
    best = np.full((2, len(rows)), np.inf)
    for _ in range(ROUNDS):
        for i, row in enumerate(rows):
            for j, run in enumerate((ours, theirs)):
                fresh = row.copy()
                started = time.perf_counter()
                run(fresh)
                best[j, i] = min(best[j, i], time.perf_counter() - started)
    return [float(us) for us in best.mean(axis=1) * 1e6]


if __name__ == "__main__":
    main()
