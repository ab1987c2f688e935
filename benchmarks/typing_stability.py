"""Does a prediction stand when one types it? Key by key, beside llama-server.

    python benchmarks/typing_stability.py --llama-server PATH [--n N]        half an hour

At places in this project's own sources a server is asked for a few tokens, greedily. What it says
is typed, a character at a time, and each time it is asked anew, outside any typing session, so that
no answer comes from memory. The prediction stands where the new one goes on with what was left of
the one before. Where it does not, the new one is typed from there on.

`--n` is how many keys each server is asked at; a place has at most ten. The goal is 98.5 %.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.servers import (
    AS_FOR_LLAMA_VIM,
    EQUAL_WINDOWS,
    Server,
    llama_server,
    model_path,
    parser_of,
    suture,
)
from harness.tables import print_table, show_progress
from harness.texts import Hole, source_files

GOAL = 0.985
N_PREDICT = 12
N_KEYS = 10
N_BEFORE, N_AFTER = 20, 10
LAYOUTS = ("anchor", "psm")
LEVELS = ("exact", "recursive", "off")
THEIRS = "llama-server"


@dataclass(frozen=True, slots=True)
class Variant:
    """A server, and what it is asked with."""

    name: str
    server: Server
    fields: dict[str, object]

    def predict(self, hole: Hole) -> str:
        return self.server.ask(hole.prefix, hole.suffix, N_PREDICT, **self.fields).text


@dataclass(slots=True)
class Score:
    """Keys typed, and at how many the prediction stood; what was left of those that fell."""

    n_keys: int = 0
    fallen: list[tuple[str, str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        return 1.0 - len(self.fallen) / self.n_keys

    @property
    def error(self) -> float:
        return math.sqrt(self.share * (1.0 - self.share) / self.n_keys)


def main() -> None:
    parser = parser_of(__doc__, 80, "keys")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    args = parser.parse_args()
    path = model_path(args.model)
    scores: dict[str, Score] = {}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(suture(path, *EQUAL_WINDOWS))
        variants = [
            Variant(f"{layout}, {level}", ours, {"layout": layout, "healing": level})
            for layout in args.layouts
            for level in LEVELS
        ]
        if args.llama_server is not None:
            theirs = llama_server(args.llama_server, path, *AS_FOR_LLAMA_VIM, name=THEIRS)
            variants.append(Variant(THEIRS, stack.enter_context(theirs), {}))
        scores = {variant.name: Score() for variant in variants}
        with contextlib.suppress(KeyboardInterrupt):
            for hole in holes():
                unfinished = [v for v in variants if scores[v.name].n_keys < args.n]
                if not unfinished:
                    break
                for variant in unfinished:
                    score = scores[variant.name]
                    show_progress(f"{variant.name}: {score.n_keys} of {args.n} keys")
                    type_through(variant, hole, score, args.n)
    show_progress("")
    report(scores)


def holes() -> Iterator[Hole]:
    """The rest of a line is to be written, from anywhere in it."""
    choose = random.Random(0)
    files = [lines for path in source_files() if len(lines := _lines(path.read_text())) > 60]
    while True:
        lines = choose.choice(files)
        at = choose.randrange(N_BEFORE, len(lines) - N_AFTER)
        if len(lines[at].strip()) < 10:
            continue
        indentation = len(lines[at]) - len(lines[at].lstrip())
        cut = choose.randrange(indentation + 1, len(lines[at]) - 4)
        before = "".join(lines[at - N_BEFORE : at]) + lines[at][:cut]
        yield Hole(before, "\n" + "".join(lines[at + 1 : at + 1 + N_AFTER]))


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def type_through(variant: Variant, hole: Hole, score: Score, n_most: int) -> None:
    prediction = variant.predict(hole)
    typed = ""
    for _ in range(min(N_KEYS, n_most - score.n_keys)):
        # At the last character nothing is left that could stand.
        if len(prediction) < 2:
            return
        typed, left = typed + prediction[0], prediction[1:]
        prediction = variant.predict(Hole(hole.prefix + typed, hole.suffix))
        score.n_keys += 1
        if not stands(left, prediction):
            score.fallen.append((left, prediction))


def stands(left: str, prediction: str) -> bool:
    """Whether one begins with the other: both are cut off by their number of tokens."""
    n_common = min(len(left), len(prediction))
    return n_common > 0 and left[:n_common] == prediction[:n_common]


def report(scores: dict[str, Score]) -> None:
    print_table(
        ("variant", "keys", "stood", f"of {GOAL:.1%}"),
        [(name, score.n_keys, *_judged(score)) for name, score in scores.items() if score.n_keys],
    )
    fallen: Sequence[tuple[str, str, str]] = [
        (name, repr(left), repr(prediction))
        for name, score in scores.items()
        for left, prediction in score.fallen
    ]
    if fallen:
        print_table(("variant", "was left", "said instead"), fallen)


def _judged(score: Score) -> tuple[str, str]:
    is_met = score.share + 2 * max(score.error, 1 / score.n_keys) >= GOAL
    return f"{score.share:.1%} ± {score.error:.1%}", "met" if is_met else "MISSED"


if __name__ == "__main__":
    main()
