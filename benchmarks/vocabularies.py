"""The healing package on every vocabulary that llama.cpp ships: how often right, and how fast.

    python benchmarks/vocabularies.py [NAME ...]

A cursor is right if the tokens that the cut keeps are the first tokens of the finished file, and
kept bytes and pending ones are the text. The files are those of HumanEval's random spans, with the
cursor of the task and 25 others in each, and this project's own sources. Beside ours stands the
rule that others follow, one token given back. "cases" are the texts and streams of
tests/support/cases.py that are right, cut after every byte and followed by all that may come.
"parity" says whether tiktoken makes llama.cpp's tokens of all these files, so that it may take its
place. Times are the medians of calls, without the tokenizer's own; the constraint is that of a
bare space.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from suture.healing import (
    Boundary,
    BoundaryError,
    Encode,
    TokenHealer,
    UnsupportedVocabulary,
    Vocabulary,
    first_difference,
    fixed_boundary,
    stable_boundary,
    tokenizer_of,
)
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.models.catalog import Catalog
from suture.server.models.download import pull_all
from suture.server.models.progress import progress_on
from suture.server.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.cases import (  # noqa: E402
    STREAMS,
    TYPED,
    boundary_faults,
    healing_faults,
    stream_faults,
)

TASKS = ROOT / "benchmarks" / "data" / "HumanEval-RandomSpanInfillingLight.jsonl.gz"
VOCABULARIES = ROOT / "tests" / "support" / "vocabularies.txt"
N_RANDOM = 25
ROUNDS = 30


Cut = Callable[[bytes, Encode, Vocabulary], Boundary]


@dataclass
class Score:
    """Of one vocabulary and one rule."""

    vocabulary: Vocabulary
    n_right: int = 0
    n_refused: int = 0
    n_wrong: int = 0
    dropped: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)

    @property
    def n(self) -> int:
        return self.n_right + self.n_wrong + self.n_refused

    def judge(self, cut: Cut, segment: bytes, encode: Encode, ids: tuple[int, ...]) -> None:
        """Count whether the cut is right; `ids` are the tokens of the whole text."""
        try:
            boundary = cut(segment, encode, self.vocabulary)
        except BoundaryError:
            self.n_refused += 1
            return
        spelled = b"".join(map(self.vocabulary.bytes_of, boundary.kept_ids)) + boundary.pending
        as_read = self.vocabulary.as_read(segment)
        is_text = spelled in (segment, as_read, b" " + as_read)
        is_right = is_text and boundary.kept_ids == ids[: len(boundary.kept_ids)]
        self.n_right += is_right
        self.n_wrong += not is_right
        self.dropped.append(boundary.dropped_tokens)
        self.pending.append(len(boundary.pending))


def main() -> None:
    catalog = Catalog.load(VOCABULARIES)
    known = [entry.name for entry in catalog.entries if "." not in entry.name]
    parser = argparse.ArgumentParser(description="How often healing's cut is right, and how fast.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    names = parser.parse_args().names or known
    if unknown := set(names) - set(known):
        parser.error(f"no such vocabulary: {', '.join(sorted(unknown))}")
    entries = [catalog.find(name) for name in names]
    paths = pull_all(entries, load_settings().model_store, progress_on(sys.stderr))
    files = list(cursors_of_files())
    n_cursors = sum(len(cursors) for _, cursors in files)
    print(f"{len(files)} files, {n_cursors} cursors\n")
    print(
        "| vocabulary | tokens | cursors right | refused | dropped, mean and max | pending bytes"
        " | one token right | cases | parity | load, ms | cut, us | constraint, us"
        " | its logits, us |"
    )
    print("| --- " * 13 + "|")
    for name, path in zip(names, paths, strict=True):
        print(row(name.removeprefix("vocab-"), path, files), flush=True)


def cursors_of_files() -> Iterator[tuple[bytes, list[int]]]:
    """Every file with its cursors, as byte offsets."""
    with gzip.open(TASKS, "rt", encoding="utf-8") as lines:
        for line in lines:
            task = json.loads(line)
            before = task["prompt"]
            text = before + task["canonical_solution"] + task["suffix"]
            chosen = random.Random(task["task_id"]).choices(range(len(text) + 1), k=N_RANDOM)
            yield text.encode(), [len(text[:at].encode()) for at in [len(before), *chosen]]
    for path in sorted(ROOT.glob("healing/*.py")) + sorted(ROOT.glob("server/**/*.py")):
        source = path.read_bytes()[:8000]
        source = source[: source.rfind(b"\n") + 1]
        yield source, random.Random(path.name).choices(range(len(source) + 1), k=N_RANDOM)


def row(name: str, path: Path, files: Sequence[tuple[bytes, list[int]]]) -> str:
    started = time.perf_counter()
    try:
        vocabulary = Vocabulary.from_gguf(path)
    except UnsupportedVocabulary as error:
        return f"| {name} | – | refused: {error} |" + " |" * 10
    load_ms = (time.perf_counter() - started) * 1000
    tokenizer = LlamaTokenizer(path)
    encode = Timed(tokenizer.encode)
    ours, one = Score(vocabulary), Score(vocabulary)
    times: list[float] = []
    for text, cursors in files:
        ids = tuple(tokenizer.encode(text))
        for cursor in cursors:
            segment = text[:cursor]
            before, started = encode.seconds, time.perf_counter()
            ours.judge(stable_boundary, segment, encode, ids)
            times.append(time.perf_counter() - started - (encode.seconds - before))
            one.judge(give_back_one, segment, encode, ids)
    cases = cases_of(vocabulary, tokenizer)
    parity = parity_of(vocabulary, tokenizer, [text.decode() for text, _ in files])
    tokenizer.close()
    return (
        f"| {name} | {vocabulary.n_vocab} | {ours.n_right} of {ours.n} | {ours.n_refused}"
        f" | {statistics.mean(ours.dropped):.2f}, {max(ours.dropped)}"
        f" | {statistics.mean(ours.pending):.2f}, {max(ours.pending)}"
        f" | {one.n_right / one.n:.1%} | {cases} | {parity} | {load_ms:.0f}"
        f" | {statistics.median(times) * 1e6:.0f} | {constraint_us(vocabulary)} |"
    )


class Timed:
    """A tokenizer, and how long it took in all."""

    def __init__(self, encode: Callable[[bytes], Sequence[int]]) -> None:
        self._encode = encode
        self.seconds = 0.0

    def __call__(self, text: bytes) -> Sequence[int]:
        started = time.perf_counter()
        ids = self._encode(text)
        self.seconds += time.perf_counter() - started
        return ids


def give_back_one(segment: bytes, encode: Encode, vocabulary: Vocabulary) -> Boundary:
    return fixed_boundary(segment, 1, encode, vocabulary)


def cases_of(vocabulary: Vocabulary, tokenizer: LlamaTokenizer) -> str:
    def encode(text: bytes) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text))

    n_cases = 2 * len(TYPED) + len(STREAMS)
    faults = [
        *boundary_faults(vocabulary, encode),
        *healing_faults(vocabulary, encode),
        *stream_faults(vocabulary),
    ]
    return f"{n_cases} of {n_cases}" if not faults else f"wrong: {faults[0]}"


def parity_of(vocabulary: Vocabulary, engine: LlamaTokenizer, texts: Sequence[str]) -> str:
    tokenizer = tokenizer_of(vocabulary)
    if tokenizer is None:
        return "not built"
    different = first_difference(tokenizer.encode, engine.encode, texts)
    return "yes" if different is None else f"no: {different[:20]!r}"


def constraint_us(vocabulary: Vocabulary) -> str:
    """Median times to what is allowed after a bare space, and to the logits of all that is."""
    row = np.random.default_rng(0).normal(size=vocabulary.n_vocab).astype(np.float32)
    to_constraint, to_logits = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        constraint = TokenHealer(vocabulary, b" ").constraint()
        ready = time.perf_counter()
        constraint.apply(row, vocabulary)
        to_constraint.append(ready - started)
        to_logits.append(time.perf_counter() - ready)
    medians = map(statistics.median, (to_constraint, to_logits))
    return " | ".join(f"{median * 1e6:.0f}" for median in medians)


if __name__ == "__main__":
    main()
