"""What a least confidence costs and what it is worth: fewer answers, and more of them right.

    python benchmarks/confidence.py [--n N] [--model NAME|PATH]     ten minutes

Holes whose text is known are filled once each, greedily: HumanEval's random spans, and single lines
of its programs, for which a line is asked for. Every line of an answer has its confidence, so what
`min_confidence` would have left of it follows for all thresholds from that one run, by the server's
own rule. A model that fills no holes goes on left to right.

*right* is an answer that is the missing text, but for blanks at its end, and a line that is the
missing text's line in its place.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
from harness.servers import EQUAL_WINDOWS, model_path, suture
from harness.tables import print_table, show_progress
from harness.texts import HOLES, human_eval_programs, spread

from suture.server.calibration.holes import Hole
from suture.server.shaping.confidence import Unsure

THRESHOLDS = [n / 10 for n in range(10)]
N_PREDICT = 96
TIMEOUT_S = 600.0
SHAPES = {"random spans": "auto", "single lines": "line"}


@dataclass(frozen=True, slots=True)
class Filled:
    """A hole and the answer to it, with the place and the log probability of each token."""

    hole: Hole
    text: str
    offsets: Sequence[int]
    logprobs: Sequence[float]

    def left(self, min_confidence: float) -> str:
        """What the server would have left of the answer."""
        rule = Unsure(min_confidence)
        for offset, logprob in zip(self.offsets, self.logprobs, strict=True):
            rule.note(offset, logprob)
        return rule.feed(self.text) + rule.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", metavar="NAME|PATH", help="the default one of models.txt")
    parser.add_argument("--n", type=int, default=100, metavar="N", help="holes of each kind")
    args = parser.parse_args()
    kinds = {"random spans": random_spans(), "single lines": list(single_lines())}
    filled: dict[str, list[Filled]] = {kind: [] for kind in kinds}
    with (
        suture(model_path(args.model), *EQUAL_WINDOWS) as server,
        httpx2.Client(base_url=server.url, timeout=TIMEOUT_S) as client,
    ):
        fills_holes = client.get("/v1/models").json()["data"][0]["fim"]["supported"]
        for kind, holes in kinds.items():
            chosen = spread(holes, args.n)
            for number, hole in enumerate(chosen, 1):
                shown = hole if fills_holes else Hole(hole.prefix, hole.middle, "")
                filled[kind].append(fill(shown, SHAPES[kind], client))
                show_progress(f"{kind}: {number} of {len(chosen)}")
    show_progress("")
    for kind, answers in filled.items():
        report(kind, answers)


def random_spans() -> list[Hole]:
    with gzip.open(HOLES, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [Hole(row["prompt"], row["canonical_solution"], row["suffix"]) for row in rows]


def single_lines() -> Iterator[Hole]:
    """A line of each program's body, without its line end; the cursor stands at its indentation."""
    choose = random.Random(0)
    for header, body in human_eval_programs():
        lines = body.splitlines(keepends=True)
        at = choose.choice([n for n, line in enumerate(lines) if line.strip()])
        line = lines[at].rstrip("\n")
        code = line.lstrip()
        before = header + "".join(lines[:at]) + line[: len(line) - len(code)]
        yield Hole(before, code, lines[at][len(line) :] + "".join(lines[at + 1 :]))


def fill(hole: Hole, shape: str, client: httpx2.Client) -> Filled:
    response = client.post(
        "/v1/completions",
        json={
            "prompt": hole.prefix,
            "suffix": hole.suffix,
            "max_tokens": N_PREDICT,
            "temperature": 0,
            "shape": shape,
            "logprobs": 0,
        },
    )
    answer: dict[str, Any] = response.json()
    if response.status_code != 200:
        raise SystemExit(f"suture answered with {answer}")
    [choice] = answer["choices"]
    lists = choice["logprobs"] or {"text_offset": [], "token_logprobs": []}
    return Filled(hole, choice["text"], lists["text_offset"], lists["token_logprobs"])


def report(kind: str, answers: Sequence[Filled]) -> None:
    print(f"\n{kind}: {len(answers)} holes, {sum(map(has_text, answers))} answers with text")
    print_table(
        (
            "min_confidence",
            "shown",
            "right of shown",
            "right of all",
            "lines kept",
            "right of kept",
        ),
        [(threshold, *row(answers, threshold)) for threshold in THRESHOLDS],
    )


def has_text(answer: Filled) -> bool:
    return bool(answer.text)


def row(answers: Sequence[Filled], threshold: float) -> tuple[str, ...]:
    left = [answer.left(threshold) for answer in answers]
    n_shown = sum(map(bool, left))
    n_right = sum(
        text.rstrip() == answer.hole.middle.rstrip() and bool(text)
        for text, answer in zip(left, answers, strict=True)
    )
    n_lines = sum(len(answer.text.splitlines()) for answer in answers)
    n_kept = sum(len(text.splitlines()) for text in left)
    n_right_lines = sum(
        line.rstrip() == true.rstrip()
        for text, answer in zip(left, answers, strict=True)
        for line, true in zip(text.splitlines(), answer.hole.middle.splitlines(), strict=False)
    )
    return (
        percent(n_shown, len(answers)),
        percent(n_right, n_shown),
        percent(n_right, len(answers)),
        percent(n_kept, n_lines),
        percent(n_right_lines, n_kept),
    )


def percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


if __name__ == "__main__":
    main()
