"""What the exact boundary costs the CPU at a key, on a vocabulary of 152 thousand tokens.

    python benchmarks/covers.py [--n N]        half a minute

Cursors stand anywhere in this project's sources. At each the tree of covers is grown, a row of
log probabilities is made for each node out of random logits, and the covers are weighed and the
best of them asked whether they are canonical. "new" is the first time that the vocabulary's pairs
are asked at all, "known" the second time, which is what all keys but the first of a line are like.
Before the table stands what the first cursor in an indentation waits for, with what a server learns
of blanks while it loads a model and without: a tree by pairs that were never asked.

Read `tree` and `weigh` of the row "known": ranges and candidates should take 50 us at p50. The
normalisers are apart: their time is that of the rows, one for each node.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from harness.tables import percentile, print_table
from harness.texts import source_files, spread

from suture.healing import (
    Boundary,
    CanonicalPairs,
    Encode,
    Posterior,
    Vocabulary,
    cover_tree,
    log_softmax_row,
    stable_boundary,
    tokenizer_of,
)
from suture.server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.vocabularies import pulled  # noqa: E402

NAME = "vocab-qwen2"
N_LEFT = 16
N_RUN, N_BLANKS = 4, 40
PARTS = ("tree", "rows", "weigh", "ask", "greedy")

T = TypeVar("T")


@dataclass
class Costs:
    """Microseconds of each part at every cursor, and how large the trees were."""

    us: dict[str, list[float]] = field(default_factory=lambda: {part: [] for part in PARTS})
    n_nodes: list[int] = field(default_factory=list)
    n_candidates: list[int] = field(default_factory=list)

    def timed(self, part: str, run: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = run()
        self.us[part].append((time.perf_counter() - started) * 1e6)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description="What the exact boundary costs the CPU at a key.")
    parser.add_argument("--n", type=int, default=400, metavar="N", help="cursors")
    n_cursors = parser.parse_args().n
    vocabulary = Vocabulary.from_gguf(pulled([NAME], load_settings().model_store)[NAME])
    tokenizer = tokenizer_of(vocabulary)
    assert tokenizer is not None  # it has merges and its splits are known
    encode = tokenizer.encode
    boundaries = [stable_boundary(text, encode, vocabulary) for text in segments(n_cursors)]
    pairs = CanonicalPairs(vocabulary, encode)
    rng = np.random.default_rng(0)
    logits = [logits_row(rng, vocabulary.n_vocab) for _ in range(32)]
    rows = []
    for name in ("new", "known"):
        costs = measure(boundaries, vocabulary, pairs, logits)
        rows += [row(name, part, costs.us[part]) for part in PARTS]
    n_pending = statistics.mean(len(boundary.pending) for boundary in boundaries)
    print(f"{NAME}, {vocabulary.n_vocab} tokens, {len(boundaries)} cursors")
    print(
        f"pending bytes {n_pending:.1f} on average, nodes {statistics.mean(costs.n_nodes):.2f}"
        f" (at most {max(costs.n_nodes)}) and the root, candidates"
        f" {percentile(costs.n_candidates, 50)} (p50) and {percentile(costs.n_candidates, 99)}"
        f" (p99)"
    )
    blanks = [b for b in boundaries if b.pending.isspace() and len(b.pending) >= N_RUN]
    for is_learnt in (False, True):
        tree_ms, learning_ms = first_blanks(blanks, vocabulary, encode, is_learnt)
        told = f", {learning_ms:.0f} ms learnt while loading" if is_learnt else ""
        print(f"blanks, the first tree: {tree_ms:.1f} ms (p50){told}")
    print_table(("pairs", "part", "p50, us", "p99, us", "mean, us"), rows)


def first_blanks(
    boundaries: Sequence[Boundary], vocabulary: Vocabulary, encode: Encode, is_learnt: bool
) -> tuple[float, float]:
    """Milliseconds of this process for a tree, and for learning blanks before it; medians."""
    trees, learning = [], []
    for boundary in boundaries[:N_BLANKS]:
        pairs = CanonicalPairs(vocabulary, encode)
        started = time.process_time()
        if is_learnt:
            pairs.learn_blanks()
        learnt = time.process_time()
        cover_tree(boundary.pending, boundary.kept_ids[-N_LEFT:], vocabulary, pairs)
        trees.append((time.process_time() - learnt) * 1e3)
        learning.append((learnt - started) * 1e3)
    return statistics.median(trees), statistics.median(learning)


def segments(n_cursors: int) -> list[bytes]:
    """What stands before each cursor, from a line's beginning on."""
    files = [text for path in source_files() if len(text := path.read_bytes()) > 2000]
    choose = random.Random(0)
    chosen = [(text, choose.randrange(1000, len(text))) for text in spread(files, n_cursors)]
    while len(chosen) < n_cursors:
        text = choose.choice(files)
        chosen.append((text, choose.randrange(1000, len(text))))
    return [text[text.rfind(b"\n", 0, at - 400) + 1 : at] for text, at in chosen]


def logits_row(rng: np.random.Generator, n_vocab: int) -> npt.NDArray[np.float32]:
    """As peaked as those of a model: a few tokens have nearly all of the probability."""
    logits = rng.normal(size=n_vocab) * 2.5
    logits[rng.integers(0, n_vocab, 40)] += rng.gamma(4.0, 3.0, 40)
    return logits.astype(np.float32)


def measure(
    boundaries: Sequence[Boundary],
    vocabulary: Vocabulary,
    pairs: CanonicalPairs,
    logits: Sequence[npt.NDArray[np.float32]],
) -> Costs:
    costs = Costs()
    for boundary in boundaries:
        measure_one(costs, boundary, vocabulary, pairs, logits)
    return costs


def measure_one(
    costs: Costs,
    boundary: Boundary,
    vocabulary: Vocabulary,
    pairs: CanonicalPairs,
    logits: Sequence[npt.NDArray[np.float32]],
) -> None:
    left, pending = boundary.kept_ids[-N_LEFT:], boundary.pending
    tree = costs.timed("tree", lambda: cover_tree(pending, left, vocabulary, pairs))
    rows = costs.timed(
        "rows", lambda: {n: log_softmax_row(logits[n % len(logits)]) for n in tree.wants}
    )
    posterior = costs.timed(
        "weigh", lambda: Posterior(tree, rows, vocabulary, pairs, vocabulary.eog_ids)
    )
    costs.timed("ask", lambda: posterior.ask_best(40))
    costs.timed("greedy", lambda: next(posterior.best_groups()))
    costs.n_nodes.append(len(tree.tokens))
    costs.n_candidates.append(len(posterior))


def row(name: str, part: str, us: Sequence[float]) -> tuple[str, ...]:
    p50, p99 = percentile(us, 50), percentile(us, 99)
    return name, part, f"{p50:.0f}", f"{p99:.0f}", f"{statistics.mean(us):.0f}"


if __name__ == "__main__":
    main()
