"""Drafts from the text at hand: where text repeats itself, and where it does not.

    python benchmarks/drafting.py --llama-server PATH [--n N] [--ordinary N]        9 minutes

Two kinds of holes, greedily, in `psm` without healing, so that all servers get the same prompt:

- *repeating*: a function of this project's sources stands in the file, and below it one with
  another name is begun, as who copies and changes does. Only holes count whose text, as our server
  without drafts writes it, has 16 tokens in a row that stand in the prompt.
- *ordinary*: HumanEval's random spans.

Ours with drafts and without (taken out of the same server), llama-server without, and with its
n-gram drafts (`--spec-type ngram-simple`) as they come and set as ours are: 3 tokens matched, 15
drafted. Speeds are tokens after the first over the servers' own time for them. `against none` is
the same server's speed without drafts; for ours it should be at least 1.3 where text repeats and
0.97 elsewhere. `same text` counts the holes where the text is that of ours without drafts.

The second table is what evaluations of so many tokens cost in our engine, measured in the same run.
The *ceiling* is what an oracle would gain that drafts the very text that comes, always, at the best
width: width x cost(1) / cost(width).
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.servers import (
    EQUAL_WINDOWS,
    N_THREADS,
    UNDRAFTED,
    Reply,
    Server,
    in_turn,
    llama_server,
    model_path,
    parser_of,
    suture,
)
from harness.steps import step_costs
from harness.tables import print_table, ratio_with_error, show_progress
from harness.texts import Hole, functions, human_eval_holes, spread

from suture.server.engine.tokenizer import LlamaTokenizer

N_REPEATED = 16
N_PREDICT = 96
WIDEST = 16
N_ROUNDS = 5
OURS, OURS_PLAIN = "suture", "suture, no drafts"
THEIRS_PLAIN = "llama-server"
THEIR_DRAFTS = {
    "llama-server, ngram-simple": ("--spec-type", "ngram-simple"),
    "llama-server, ngram-simple 3/15": (
        *("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"),
        *("--spec-ngram-simple-size-m", "15"),
    ),
}


@dataclass(slots=True)
class Sums:
    """Of one server's replies to holes of one kind. `ms` is each hole's, a token."""

    n_steps: int = 0
    n_drafted: int = 0
    predicted_ms: float = 0.0
    n_same: int = 0
    ms: list[float] = field(default_factory=list)

    def add(self, reply: Reply, text: str) -> None:
        self.n_steps += reply.n_steps
        self.n_drafted += reply.n_drafted
        self.predicted_ms += reply.predicted_ms if reply.n_steps else 0.0
        self.n_same += reply.text == text
        self.ms.append(reply.predicted_ms / reply.n_steps if reply.n_steps else 0.0)

    @property
    def speed(self) -> float:
        return self.n_steps / self.predicted_ms * 1e3 if self.predicted_ms else 0.0

    def against(self, other: Sums) -> str:
        """How many times as fast this is, a hole counting as much as another."""
        return ratio_with_error(list(zip(other.ms, self.ms, strict=True)))


def main() -> None:
    parser = parser_of(__doc__, 10, "holes that repeat")
    parser.add_argument("--ordinary", type=int, default=16, metavar="N", help="holes of HumanEval")
    args = parser.parse_args()
    path = model_path(args.model)
    show_progress("step costs")
    costs = step_costs(path, N_THREADS, WIDEST, N_ROUNDS)
    rows = []
    with started(path, args.llama_server) as servers:
        for server in servers:
            server.ask("def add(a, b):\n", "\n", 8)
        kinds = {"repeating": repeating(), "ordinary": human_eval_holes()}
        for kind, n in (("repeating", args.n), ("ordinary", args.ordinary)):
            rows += compare(servers, kind, spread(kinds[kind], n), LlamaTokenizer(path))
    show_progress("")
    print(f"{path.name}, at most {N_PREDICT} tokens a hole")
    columns = ("holes", "n", "server", "tokens", "drafted", "tokens/s", "against none")
    print_table((*columns, "against llama-server", "same text"), rows)
    report_ceiling(costs)


@contextlib.contextmanager
def started(path: Path, program: Path | None) -> Iterator[list[Server]]:
    with contextlib.ExitStack() as stack:
        flags = ("--layout", "psm", "--healing", "off", *EQUAL_WINDOWS)
        servers = [
            stack.enter_context(suture(path, *flags, name=OURS_PLAIN, program=UNDRAFTED)),
            stack.enter_context(suture(path, *flags, name=OURS)),
        ]
        if program is not None:
            for name, spec in {THEIRS_PLAIN: (), **THEIR_DRAFTS}.items():
                servers.append(stack.enter_context(llama_server(program, path, *spec, name=name)))
        yield servers


def repeating() -> list[Hole]:
    """A function, and the beginning of its like: name and arguments are written already."""
    holes = []
    for source in functions(range(7, 15)):
        header = source.splitlines(keepends=True)[0]
        name = header.removeprefix("def ").partition("(")[0]
        if header.rstrip().endswith(":"):
            again = header.replace(name, f"{name.strip('_')}_again", 1)
            holes.append(Hole(f"{source}\n\n{again}", "\n"))
    return holes


def compare(
    servers: list[Server], kind: str, holes: Sequence[Hole], tokenizer: LlamaTokenizer
) -> list[tuple[object, ...]]:
    sums = {server.name: Sums() for server in servers}
    n_counted = 0
    for turn, hole in enumerate(holes):
        show_progress(f"{kind} holes: {turn + 1} of {len(holes)}")
        replies = {
            server.name: server.ask(hole.prefix, hole.suffix, N_PREDICT)
            for server in in_turn(servers, turn)
        }
        text = replies[OURS_PLAIN].text
        if kind == "repeating" and longest_repeat(tokenizer, hole, text) < N_REPEATED:
            continue
        n_counted += 1
        for name, reply in replies.items():
            sums[name].add(reply, text)
    return [row_of(kind, n_counted, name, sums) for name in sums]


def longest_repeat(tokenizer: LlamaTokenizer, hole: Hole, text: str) -> int:
    """The most tokens in a row of the text that stand in the prompt too."""
    known = tokenizer.encode((hole.prefix + hole.suffix).encode())
    said = tokenizer.encode(text.encode())
    matcher = difflib.SequenceMatcher(None, known, said, autojunk=False)
    return matcher.find_longest_match().size


def row_of(kind: str, n_holes: int, name: str, sums: dict[str, Sums]) -> tuple[object, ...]:
    own = sums[name]
    plain = sums[OURS_PLAIN if name.startswith(OURS) else THEIRS_PLAIN]
    theirs = sums.get(THEIRS_PLAIN)
    return (
        kind,
        n_holes,
        name,
        own.n_steps,
        own.n_drafted,
        f"{own.speed:.1f}",
        "" if own is plain else own.against(plain),
        "" if theirs in (None, own) else own.against(theirs),
        f"{own.n_same} of {n_holes}",
    )


def report_ceiling(costs: dict[int, float]) -> None:
    gains = {n: n * costs[1] / cost for n, cost in costs.items()}
    best = max(gains, key=gains.__getitem__)
    print_table(
        ("tokens in an evaluation", *map(str, costs)),
        [
            ("ms", *(f"{cost * 1e3:.0f}" for cost in costs.values())),
            ("gain of an oracle", *(f"{gain:.2f}" for gain in gains.values())),
        ],
    )
    print(
        f"\nThe ceiling: {gains[best]:.2f} times as fast, {best / costs[best]:.1f} tokens/s, "
        f"with {best - 1} tokens drafted."
    )


if __name__ == "__main__":
    main()
