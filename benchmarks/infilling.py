"""How well a model fills holes under each layout, boundary and healing.

    python benchmarks/infilling.py --model PATH --csv FILE [--n N] [--match]     5 s a hole and more
    python benchmarks/infilling.py --csv FILE --report

HumanEval's random spans, and more cursors cut into words of the spans, which is where tokens break.
At each hole every variant is asked for the probability of the true text (`scoring.py` says of what
exactly), on the same bytes, and with `--match` for its greedy answer, too. Holes stand in an order
that is shuffled once and for all by tasks: mid-token holes first, those at a token's end behind
them. Each hole's rows are appended when it is done, so a run that was broken off goes on with the
next one; a line that was torn is left aside.

The report: means with standard errors that allow for the cursors of one task being alike, and
paired regrets against the best variant. *tokens needed* is how many of the tokens typed are others
in the finished text. *psm mix (bound)* is no variant: at each hole the better one of psm's two
boundaries in hindsight, which weighing the two against each other cannot beat.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.tables import print_table, show_progress
from harness.texts import HOLES

from suture.healing import Encode
from suture.server.calibration.choice import MARGIN, Mean, choose
from suture.server.calibration.holes import Hole, cut_hole, word_cursor
from suture.server.calibration.profile import fingerprint
from suture.server.calibration.scoring import Score, Scorer, UnspelledHole
from suture.server.calibration.variants import Variant
from suture.server.completion import LoadedModel
from suture.server.engine.kv import common_length
from suture.server.local import load_model
from suture.server.settings import load_settings

COLUMNS = ("model", "hole", "needed", "variant", "word", "line", "match")
MIX_BOUND = "psm mix (bound)"
MIXED = ("psm keep off", "psm move exact")
N_TRIES = 6
N_A_TASK = 3


@dataclass(frozen=True, slots=True)
class Cursor:
    """A hole by its name; `needed` typed tokens are others in the finished text."""

    name: str
    needed: int
    hole: Hole

    @property
    def task(self) -> str:
        return self.name.rpartition("@")[0]


@dataclass
class Row:
    """What is known of a variant at a hole; a stratum is by tokens needed."""

    needed: int
    score: Score | None = None
    match: bool | None = None


Found = dict[str, dict[str, Row]]
"""By variant, and by hole."""


def main() -> None:
    parser = argparse.ArgumentParser(description="How well a model fills holes.")
    parser.add_argument("--model", type=Path, metavar="PATH", help="a GGUF file")
    parser.add_argument("--csv", type=Path, required=True, metavar="FILE", help="results")
    parser.add_argument("--n", type=int, default=100_000, metavar="N", help="holes (default: all)")
    parser.add_argument("--match", action="store_true", help="measure exact matches, in their turn")
    parser.add_argument("--report", action="store_true", help="print what the results say")
    args = parser.parse_args()
    if args.model is not None:
        with_model(args.model, args.csv, args.n, args.match)
    if args.report or args.model is None:
        report(read(args.csv))


def with_model(path: Path, results: Path, n_holes: int, with_matches: bool) -> None:
    name = fingerprint(path)[:8]
    found = read(results, name)
    engine, model = load_model(path, path.stem, load_settings(), lambda: True)
    try:
        scorer = Scorer(model)
        chosen = cursors(model)[:n_holes]
        for number, cursor in enumerate(chosen, 1):
            started = time.perf_counter()
            try:
                rows = measured(cursor, scorer, found, with_matches)
            except UnspelledHole as error:
                print(f"\n{cursor.name}: {error}", file=sys.stderr)
                continue
            if rows:
                append(results, [(name, cursor.name, cursor.needed, *row) for row in rows])
                elapsed = time.perf_counter() - started
                show_progress(f"{number} of {len(chosen)}: {cursor.name}, {elapsed:.1f} s a hole")
    finally:
        engine.close()
        print(file=sys.stderr)


def measured(
    cursor: Cursor, scorer: Scorer, found: Found, with_matches: bool
) -> list[tuple[object, ...]]:
    """The rows of what is not known yet of a hole: variant, word, line, match."""
    known = [found.get(str(v), {}).get(cursor.name, Row(cursor.needed)) for v in scorer.variants]
    rows: list[tuple[object, ...]] = []
    if any(row.score is None for row in known):
        scores = scorer.score(cursor.hole)
        rows += [(v, f"{s.word:.4f}", f"{s.line:.4f}", "") for v, s in scores.items()]
    if with_matches and any(row.match is None for row in known):
        rows += [(v, "", "", int(is_same)) for v, is_same in scorer.matches(cursor.hole).items()]
    return rows


def cursors(model: LoadedModel) -> list[Cursor]:
    """All holes, mid-token ones first, each task's one after the other."""
    encode = model.codec.encode
    with gzip.open(HOLES, "rt", encoding="utf-8") as file:
        tasks = [json.loads(line) for line in file]
    random.Random(0).shuffle(tasks)
    found = [cursor for task in tasks for cursor in of_task(task, encode)]
    return sorted(found, key=lambda cursor: cursor.needed == 0)


def of_task(task: Mapping[str, str], encode: Encode) -> Iterator[Cursor]:
    """The task's own hole, and up to `N_A_TASK` cut into its words where tokens break."""
    text = task["prompt"] + task["canonical_solution"] + task["suffix"]
    start = len(task["prompt"])
    end = start + len(task["canonical_solution"])
    name = task["task_id"].removeprefix("RandomSpanInfillingLight/")
    places = {start}
    choose_from = random.Random(name)
    for _ in range(N_TRIES):
        if (at := word_cursor(text[start:end], choose_from)) is not None:
            places.add(start + at)
    n_cut = 0
    for place in sorted(places):
        needed = n_needed(text[:place], text[place:end], encode)
        if place == start:
            yield Cursor(f"{name}@{place}", needed, cut_hole(text, place, end))
        elif needed and n_cut < N_A_TASK:
            n_cut += 1
            yield Cursor(f"{name}@{place}", needed, cut_hole(text, place, end))


def n_needed(prefix: str, middle: str, encode: Encode) -> int:
    typed, finished = encode(prefix.encode()), encode((prefix + middle).encode())
    return len(typed) - common_length(typed, finished)


def append(path: Path, rows: Sequence[Sequence[object]]) -> None:
    """All rows of a hole at once."""
    is_new = not path.exists() or not path.stat().st_size
    is_torn = not is_new and path.read_bytes()[-1:] != b"\n"
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write("\n" if is_torn else "")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *rows] if is_new else rows)


def read(path: Path, model: str | None = None) -> Found:
    """What is known; of one model only, or the run ends."""
    found: Found = defaultdict(dict)
    models = {model} if model else set()
    if not path.exists():
        return found
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.reader(file):
            if len(line) != len(COLUMNS) or line[0] == COLUMNS[0]:
                continue
            models.add(line[0])
            _, hole, needed, variant, word, of_line, match = line
            row = found[variant].setdefault(hole, Row(int(needed)))
            if word:
                row.score = Score(float(word), float(of_line))
            if match:
                row.match = match == "1"
    if len(models) > 1:
        raise SystemExit(f"{path}: results of several models: {', '.join(sorted(models))}")
    return found


def report(found: Found) -> None:
    everywhere = holes_of(found)
    strata = {
        "mid-token": [hole for hole in everywhere if needed_at(found, hole) > 0],
        "1 token needed": [hole for hole in everywhere if needed_at(found, hole) == 1],
        "2 and more": [hole for hole in everywhere if needed_at(found, hole) > 1],
        "0 needed": [hole for hole in everywhere if needed_at(found, hole) == 0],
    }
    for name, holes in strata.items():
        if len(holes) > 1:
            print(f"\n{name}: {len(holes)} holes")
            print_table(
                ("variant", "word, bits", "line, bits", "regret, word", "regret, line", "match"),
                table(found, holes),
            )
    if strata["mid-token"]:
        print(f"\nThe rule takes, by mid-token holes and {MARGIN} bit: {taken(found, strata)}")


def holes_of(found: Found) -> list[str]:
    """Those that all variants are known at."""
    scored = ({hole for hole, row in of.items() if row.score} for of in found.values())
    return sorted(set.intersection(*scored)) if found else []


def needed_at(found: Found, hole: str) -> int:
    return next(iter(found.values()))[hole].needed


def table(found: Found, holes: Sequence[str]) -> list[tuple[str, ...]]:
    scores = {variant: scores_at(found, variant, holes) for variant in found}
    best_word = max(scores, key=lambda variant: sum(s.word for s in scores[variant]))
    best_line = max(scores, key=lambda variant: sum(s.line for s in scores[variant]))
    tasks = [hole.rpartition("@")[0] for hole in holes]
    if all(variant in scores for variant in MIXED):
        scores[MIX_BOUND] = [
            Score(max(keep.word, move.word), max(keep.line, move.line))
            for keep, move in zip(*(scores[variant] for variant in MIXED), strict=True)
        ]
    rows = []
    for variant, of in scores.items():
        known = [found[variant][hole].match for hole in holes] if variant in found else []
        matches = [float(match) for match in known if match is not None]
        figures = (
            [s.word for s in of],
            [s.line for s in of],
            [best.word - s.word for best, s in zip(scores[best_word], of, strict=True)],
            [best.line - s.line for best, s in zip(scores[best_line], of, strict=True)],
        )
        share = f"{sum(matches) / len(matches):.1%} of {len(matches)}" if matches else "-"
        rows.append((variant, *(shown(clustered(f, tasks)) for f in figures), share))
    return rows


def scores_at(found: Found, variant: str, holes: Sequence[str]) -> list[Score]:
    scores = (found[variant][hole].score for hole in holes)
    return [score for score in scores if score is not None]


def clustered(values: Sequence[float], clusters: Sequence[str]) -> Mean:
    """The mean; its standard error takes the values of one cluster for alike."""
    mean = sum(values) / len(values)
    sums: dict[str, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] += value - mean
    n = len(sums)
    if n < 2:
        return Mean(mean, math.inf)
    spread = math.sqrt(sum(total * total for total in sums.values()) * n / (n - 1))
    return Mean(mean, spread / len(values))


def shown(figure: Mean) -> str:
    """A mean with its error, where there is one to be had."""
    error = f" ± {figure.error:.3f}" if math.isfinite(figure.error) else ""
    return f"{figure.mean:.3f}{error}"


def taken(found: Found, strata: Mapping[str, Sequence[str]]) -> Variant:
    holes = strata["mid-token"]
    return choose({variant_of(name): scores_at(found, name, holes) for name in found}).taken


def variant_of(name: str) -> Variant:
    return next(variant for variant in Variant.all() if str(variant) == name)


if __name__ == "__main__":
    main()
