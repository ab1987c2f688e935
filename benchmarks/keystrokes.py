"""A completion at every key: evaluated tokens and time, beside llama-server.

    python benchmarks/keystrokes.py --llama-server PATH --csv FILE [--plot FILE]        8 minutes
    python benchmarks/keystrokes.py --llama-server PATH --csv FILE --n 1000             15 minutes
    python benchmarks/keystrokes.py --csv FILE --report [--plot FILE]

Twenty lines of this project's own sources are typed into their files, key by key, with Enter and
indentation, brackets in pairs, what is typed over, mistakes taken back and a jump; 60 lines stand
below. At a key a server is asked for 12 tokens, greedily, on two threads, with the whole text
before and after the cursor. llama-server is asked as llama.vim asks it, and started as its
documentation says. `--n` is how many keys of each file are typed; 1000 is all.

llama-server takes seconds at each key, so it is asked at a sample: runs of consecutive keys, evenly
spread. Its cache then needs the key before a run, which is sent first and not measured; ours gets
the same wherever it did not answer the key before (`--their-keys 1000000` asks it at all keys).
Everything in `ours / theirs` is over the keys that both have answered, one after the other and
each first in turn.

With `--csv` every answer is appended as it comes, and a run that was broken off goes on where it
stopped; `--report` only prints what the file has.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import statistics
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from harness.plot import plot_keys
from harness.servers import (
    AS_FOR_LLAMA_VIM,
    EQUAL_WINDOWS,
    Reply,
    Server,
    llama_server,
    model_path,
    parser_of,
    suture,
)
from harness.tables import percentile, print_table, ratio, show_progress
from harness.trace import Key, all_traces

from suture.server.engine.tokenizer import LlamaTokenizer

N_BEFORE, N_AFTER = 40, 60
N_PREDICT = 12
OURS, THEIRS = "suture", "llama-server"
LONG_SUFFIX = 200


@dataclass(frozen=True, slots=True)
class Row:
    """Of one server to one key. `trace` names what was typed, `suffix` counts tokens below."""

    trace: str
    key: int
    action: str
    server: str
    prompt: int
    suffix: int
    evaluated: int
    first_ms: float
    total_ms: float


def main() -> None:
    parser = parser_of(__doc__, 40, "keys of each file")
    parser.add_argument("--layout", default="anchor")
    parser.add_argument("--their-keys", type=int, default=30, metavar="N", help="llama-server's")
    parser.add_argument("--run-length", type=int, default=6, metavar="N", help="of its keys")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a row for each answer")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.report and args.csv is None:
        parser.error("--report needs --csv")
    rows = read_rows(args.csv) if args.report else measure(args)
    if not rows:
        parser.error("there is nothing to report")
    report(rows)
    if args.plot is not None:
        args.plot.write_text(plot(rows), "utf-8")


def measure(args: argparse.Namespace) -> list[Row]:
    path = model_path(args.model)
    traces = [trace[: args.n] for trace in all_traces(N_BEFORE, N_AFTER)]
    typing = Typing(traces, LlamaTokenizer(path), f"{path.name} {args.layout}")
    log = Log(args.csv, typing.trace)
    with contextlib.ExitStack() as stack:
        ours = suture(path, "--layout", args.layout, *EQUAL_WINDOWS, name=OURS)
        wanted = {stack.enter_context(ours): frozenset(range(typing.n_keys))}
        if args.llama_server is not None:
            theirs = llama_server(args.llama_server, path, *AS_FOR_LLAMA_VIM, name=THEIRS)
            keys = sampled(typing.n_keys, args.their_keys, args.run_length)
            wanted[stack.enter_context(theirs)] = keys
        for n in range(typing.n_keys):
            show_progress(f"{n + 1} of {typing.n_keys} keys")
            # They take turns at going first.
            for server in list(wanted) if n % 2 else list(wanted)[::-1]:
                if n in wanted[server] and not log.has(server.name, n):
                    log.add(typing.ask(server, n))
    show_progress("")
    return log.rows


def sampled(n_keys: int, n_wanted: int, run_length: int) -> frozenset[int]:
    """Runs of consecutive keys, each in the middle of its part of all keys."""
    if n_wanted >= n_keys:
        return frozenset(range(n_keys))
    n_runs = max(n_wanted // run_length, 1)
    starts = [(2 * i + 1) * n_keys // (2 * n_runs) - run_length // 2 for i in range(n_runs)]
    return frozenset(
        n for start in starts for n in range(start, start + run_length) if 0 <= n < n_keys
    )


class Typing:
    """The keys of all files, and which of them each server has seen last."""

    def __init__(self, traces: Sequence[Sequence[Key]], tokenizer: LlamaTokenizer, of: str) -> None:
        self._keys = [key for trace in traces for key in trace]
        lengths = [len(trace) for trace in traces]
        self._firsts = {sum(lengths[:n]) for n in range(len(lengths))}
        self._tokenizer = tokenizer
        self._seen: dict[Server, int] = {}
        text = "\0".join([of, *(f"{key.prefix}\0{key.suffix}" for key in self._keys)])
        self.trace = f"{zlib.crc32(text.encode()):08x}"

    @property
    def n_keys(self) -> int:
        return len(self._keys)

    def ask(self, server: Server, n: int) -> Row:
        """A server's answer at key `n`, whose cache has the key before, as when one types."""
        if n not in self._firsts and self._seen.get(server) != n - 1:
            self._reply(server, n - 1)
        reply = self._reply(server, n)
        self._seen[server] = n
        key = self._keys[n]
        n_suffix = len(self._tokenizer.encode(key.suffix.encode()))
        return Row(
            self.trace,
            n,
            key.action,
            server.name,
            reply.n_prompt,
            n_suffix,
            reply.n_evaluated,
            round(reply.first_ms, 1),
            round(reply.total_ms, 1),
        )

    def _reply(self, server: Server, n: int) -> Reply:
        # Ours is asked as an editor asks it, which takes an edit over a bracket that closed itself.
        shape = {"shape": "auto"} if server.name == OURS else {}
        return server.ask(self._keys[n].prefix, self._keys[n].suffix, N_PREDICT, **shape)


class Log:
    """All answers, those of an earlier run included; without a file only this one's."""

    def __init__(self, path: Path | None, trace: str) -> None:
        self._path = path
        self.rows = read_rows(path) if path is not None and path.exists() else []
        if any(row.trace != trace for row in self.rows):
            raise SystemExit(f"{path} is of other keys, another model or layout: name another file")

    def has(self, server: str, key: int) -> bool:
        return any(row.server == server and row.key == key for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self._path is None:
            return
        is_new = not self._path.exists()
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Row)])
            if is_new:
                writer.writeheader()
            writer.writerow(asdict(row))


def read_rows(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [_row(values) for values in csv.DictReader(file)]


def _row(values: dict[str, str]) -> Row:
    return Row(
        values["trace"],
        int(values["key"]),
        values["action"],
        values["server"],
        *(int(values[name]) for name in ("prompt", "suffix", "evaluated")),
        *(float(values[name]) for name in ("first_ms", "total_ms")),
    )


def report(rows: Sequence[Row]) -> None:
    ours = {row.key: row for row in rows if row.server == OURS}
    theirs = {row.key: row for row in rows if row.server == THEIRS}
    compared = sorted(set(ours) & set(theirs))
    print(f"{len(ours)} keys typed.", end=" ")
    if compared:
        print(f"Compared with llama-server at {len(compared)} of them: {ranges(compared)}.")
    table = [("all", OURS, *summary(list(ours.values())))]
    for name, of in ((OURS, ours), (THEIRS, theirs)) if compared else ():
        table.append(("both", name, *summary([of[key] for key in compared])))
    columns = ("keys", "server", "n", "prompt tokens", "evaluated: p50", "p95", "mean")
    print_table((*columns, "first text, ms: p50", "mean", "total, ms: p50", "mean"), table)
    if compared:
        print_ratios([(ours[key], theirs[key]) for key in compared])
    print_actions(ours, theirs)


def ranges(keys: Sequence[int]) -> str:
    """`0-5, 100-105`."""
    starts = [key for n, key in enumerate(keys) if n == 0 or keys[n - 1] != key - 1]
    ends = [key for n, key in enumerate(keys) if n == len(keys) - 1 or keys[n + 1] != key + 1]
    return ", ".join(f"{start}-{end}" for start, end in zip(starts, ends, strict=True))


def summary(rows: Sequence[Row]) -> tuple[str, ...]:
    evaluated = [row.evaluated for row in rows]
    first_ms, total_ms = [row.first_ms for row in rows], [row.total_ms for row in rows]
    return (
        f"{len(rows)}",
        f"{statistics.mean(row.prompt for row in rows):.0f}",
        f"{percentile(evaluated, 50)}",
        f"{percentile(evaluated, 95)}",
        f"{statistics.mean(evaluated):.1f}",
        f"{percentile(first_ms, 50):.0f}",
        f"{statistics.mean(first_ms):.0f}",
        f"{percentile(total_ms, 50):.0f}",
        f"{statistics.mean(total_ms):.0f}",
    )


def print_ratios(pairs: Sequence[tuple[Row, Row]]) -> None:
    """Over the keys that both have answered."""
    means: dict[str, Callable[[Row], float]] = {
        "evaluated, mean": lambda row: row.evaluated,
        "first text, mean": lambda row: row.first_ms,
        "total, mean": lambda row: row.total_ms,
    }
    table: list[tuple[object, ...]] = []
    ours, theirs = ([row.evaluated for row in side] for side in zip(*pairs, strict=True))
    p95 = percentile(ours, 95), percentile(theirs, 95)
    table.append(("evaluated, p95", len(pairs), *p95, ratio(*p95)))
    for what, of in means.items():
        table.append((what, len(pairs), *_compared(pairs, of)))
    long = [pair for pair in pairs if pair[0].suffix >= LONG_SUFFIX]
    if long:
        what = f"total, mean, {LONG_SUFFIX} tokens or more below"
        table.append((what, len(long), *_compared(long, means["total, mean"])))
    print_table(("at the keys of both", "keys", OURS, THEIRS, "ours / theirs"), table)


def _compared(pairs: Sequence[tuple[Row, Row]], of: Callable[[Row], float]) -> tuple[str, ...]:
    ours = statistics.mean(of(row) for row, _ in pairs)
    theirs = statistics.mean(of(row) for _, row in pairs)
    return f"{ours:.1f}", f"{theirs:.1f}", ratio(ours, theirs)


def print_actions(ours: dict[int, Row], theirs: dict[int, Row]) -> None:
    """Evaluated tokens by what the key did."""
    table = []
    for action in dict.fromkeys(row.action for row in ours.values()):
        cells = [
            f"{statistics.mean(found):.1f} ({len(found)} keys)" if found else ""
            for rows in (ours, theirs)
            for found in [[row.evaluated for row in rows.values() if row.action == action]]
        ]
        table.append((action, *cells))
    print_table(("evaluated on average, by key", OURS, THEIRS), table)


def plot(rows: Sequence[Row]) -> str:
    values = {
        name: {row.key: row.evaluated for row in rows if row.server == name}
        for name in dict.fromkeys(row.server for row in rows)
    }
    compared = sorted(set.intersection(*map(set, values.values()))) if len(values) > 1 else []
    return plot_keys(values, compared, "Prompt tokens evaluated at each key")


if __name__ == "__main__":
    main()
