"""What shaping does to answers: exact matches, and programs that pass their tests.

    python benchmarks/passing.py [--model NAME|PATH] [--n N] [--answers FILE]        half an hour

HumanEval's random spans, whose holes may be several lines, and single lines. Each hole is asked
greedily in every shape, all of it through the pipeline that serves requests. *Match* counts the
answers that are the true text but for blanks at the end; *pass@1* the programs that pass their
tests with the answer in the hole, each in a process of its own with limits. *Against
raw* counts the holes where only one of raw and the shape passes. Shaping must not lower pass@1 of
what a shape is for: `block` everywhere, `line` in single lines.

The last table is about how a file is written: block answers to random spans in CRLF, and indented
with tabs, beside that in LF and spaces. *Same* counts the answers that are the same up to those.

With `--answers`, results are kept there, and a run that was broken off goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.servers import model_path
from harness.tables import print_table, show_progress
from harness.texts import HOLES, spread

from suture.server.local import LocalCompleter, local_completer
from suture.server.request import CompletionRequest, Shape
from suture.server.settings import load_settings

SETS = {
    "random spans": HOLES,
    "single lines": HOLES.with_name("HumanEval-SingleLineInfilling.jsonl.gz"),
}
SHAPES: tuple[Shape, ...] = ("raw", "line", "block")
STYLED = "random spans"
STYLES = ("CRLF", "tabs")
MAX_TOKENS = 128
LIMIT_S = 5
LIMIT_BYTES = 1 << 30

Task = Mapping[str, str]
Answers = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", metavar="NAME|PATH", help="the default one of models.txt")
    parser.add_argument("--n", type=int, default=100, metavar="N", help="holes of each set")
    parser.add_argument("--answers", type=Path, metavar="FILE", help="answers by hole and shape")
    args = parser.parse_args()
    sets = {name: spread(tasks(path), args.n) for name, path in SETS.items()}
    answers = read(args.answers)
    asked = [
        (key, request)
        for name, of_set in sets.items()
        for task in of_set
        for key, request in requests(task, STYLES if name == STYLED else ())
        if key not in answers
    ]
    if asked:
        settings = load_settings({"model": str(model_path(args.model))})
        with local_completer(settings) as completer:
            asyncio.run(ask(completer, asked, answers, args.answers))
    for name, of_set in sets.items():
        print(f"\n{name}: {len(of_set)} holes")
        report(of_set, answers)
    print("\nhow the file is written")
    report_styles(sets[STYLED], answers)


def tasks(path: Path) -> list[Task]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def requests(task: Task, styles: Sequence[str]) -> list[tuple[str, CompletionRequest]]:
    """Each shape, then block in each style; the texts of all are those of one session, so that
    one answer is the draft of the next."""
    name = task["task_id"]
    request = CompletionRequest(
        task["prompt"],
        task["suffix"],
        infill=True,
        path="solution.py",
        language="python",
        max_tokens=MAX_TOKENS,
        session=name,
    )
    shaped = [(f"{name} {shape}", replace(request, shape=shape)) for shape in SHAPES]
    block = replace(request, shape="block")
    styled = [
        (
            f"{name} {style}",
            replace(
                block, prefix=written(block.prefix, style), suffix=written(block.suffix, style)
            ),
        )
        for style in styles
    ]
    return shaped + styled


def written(text: str, style: str) -> str:
    if style == "CRLF":
        return text.replace("\n", "\r\n")
    return re.sub(r"^( {4})+", lambda blanks: "\t" * (len(blanks[0]) // 4), text, flags=re.M)


async def ask(
    completer: LocalCompleter,
    asked: Sequence[tuple[str, CompletionRequest]],
    answers: Answers,
    path: Path | None,
) -> None:
    for number, (key, request) in enumerate(asked, 1):
        text = ""
        async for chunk in completer.complete(request):
            text += chunk.text
            if chunk.result is not None:
                edit = chunk.result.edit
        answers[key] = text if edit is None else f"{edit.text}\0{edit.delete_after}"
        if path is not None:
            path.write_text(json.dumps(answers, indent=0), "utf-8")
        show_progress(f"{number} of {len(asked)}: {key}")
    print(file=sys.stderr)


def read(path: Path | None) -> Answers:
    if path is None or not path.exists():
        return {}
    known: Answers = json.loads(path.read_text("utf-8"))
    return known


def report(of_set: Sequence[Task], answers: Answers) -> None:
    passed: dict[str, list[bool]] = {}
    n_true = sum(passes(task, task["canonical_solution"]) for task in of_set)
    rows: list[tuple[object, ...]] = [("the true text", len(of_set), n_true, "")]
    for shape in SHAPES:
        matches = [is_match(task, answers[f"{task['task_id']} {shape}"]) for task in of_set]
        passed[shape] = [passes(task, answers[f"{task['task_id']} {shape}"]) for task in of_set]
        pairs = list(zip(passed["raw"], passed[shape], strict=True))
        lost, won = pairs.count((True, False)), pairs.count((False, True))
        rows.append((shape, sum(matches), sum(passed[shape]), f"{lost} lost, {won} won"))
    print_table(("shape", "match", "pass@1", "against raw"), rows)


def report_styles(of_all: Sequence[Task], answers: Answers) -> None:
    rows = []
    for style in STYLES:
        n_same = sum(
            written(answers[f"{task['task_id']} block"], style)
            == answers[f"{task['task_id']} {style}"]
            for task in of_all
        )
        rows.append((style, f"{n_same} of {len(of_all)}"))
    print_table(("style", "same"), rows)


def is_match(task: Task, answer: str) -> bool:
    text, _, n_over = answer.partition("\0")
    suffix = task["suffix"]
    over = suffix[: int(n_over or 0)]
    return text.rstrip() == (task["canonical_solution"] + over).rstrip()


def passes(task: Task, answer: str) -> bool:
    """Whether the program passes its tests within the limits."""
    text, _, n_over = answer.partition("\0")
    program = (
        task["prompt"]
        + text
        + task["suffix"][int(n_over or 0) :]
        + task["test"]
        + f"\ncheck({task['entry_point']})\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", program],
                cwd=folder,
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=4 * LIMIT_S,
                preexec_fn=_limit,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


if __name__ == "__main__":
    main()
