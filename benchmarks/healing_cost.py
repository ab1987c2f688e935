"""What healing costs at a key: the same keys typed with it and without.

    python benchmarks/healing_cost.py [--n N]        4 minutes

Lines of this project's sources are typed into their files, as in `keystrokes.py`, and at each key
two servers of ours are asked for 12 tokens with the same text, one that heals and one that does
not, in turns. In `psm` the text before the cursor is kept as it is and the suffix is read again at
every key; in `anchor` what is typed stands at the prompt's end and is healed.

Read `evaluated` of the row `on, less off`: it should be at most 2 tokens a key.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from harness.servers import EQUAL_WINDOWS, Reply, in_turn, model_path, parser_of, suture
from harness.tables import percentile, print_table, show_progress
from harness.trace import Key, all_traces

N_PREDICT = 12
# Less than `keystrokes.py` has: in `psm` every key pays for what stands below it.
N_BEFORE, N_AFTER = 30, 20
LAYOUTS = ("psm", "anchor")
COLUMNS = (
    *("layout", "healing", "keys", "prompt tokens", "evaluated: p50", "p95", "mean"),
    *("first text, ms: p50", "mean"),
)


def main() -> None:
    parser = parser_of(__doc__, 20, "keys, the first ones of the first file's trace")
    args = parser.parse_args()
    if args.llama_server is not None:
        parser.error("llama-server does not heal: there is nothing to compare")
    path = model_path(args.model)
    keys = all_traces(N_BEFORE, N_AFTER)[0][: args.n]
    rows = [row for layout in LAYOUTS for row in measure(path, layout, keys)]
    show_progress("")
    print(f"{path.name}, {N_PREDICT} tokens a key")
    print_table(COLUMNS, rows)


def measure(path: Path, layout: str, keys: Sequence[Key]) -> list[tuple[object, ...]]:
    """Rows of one layout; each server's cache has only its own keys."""
    flags = ("--layout", layout, *EQUAL_WINDOWS)
    replies: dict[str, list[Reply]] = {"off": [], "on": []}
    with (
        suture(path, *flags, "--healing", "off", name="off") as off,
        suture(path, *flags, name="on") as on,
    ):
        for turn, key in enumerate(keys):
            show_progress(f"{layout}: {turn + 1} of {len(keys)} keys")
            for server in in_turn((off, on), turn):
                replies[server.name].append(server.ask(key.prefix, key.suffix, N_PREDICT))
    # The first key of each reads the whole prompt.
    warm = {name: given[1:] for name, given in replies.items()}
    rows = [(layout, name, len(given), *summary(given)) for name, given in warm.items()]
    pairs = list(zip(warm["on"], warm["off"], strict=True))
    evaluated = spread_of([on.n_evaluated - off.n_evaluated for on, off in pairs])
    first_p50, _, first_mean = spread_of([on.first_ms - off.first_ms for on, off in pairs])
    less = (layout, "on, less off", len(pairs), "", *evaluated, first_p50, first_mean)
    return [*rows, less]


def summary(replies: Sequence[Reply]) -> tuple[str, ...]:
    evaluated = [reply.n_evaluated for reply in replies]
    first_ms = [reply.first_ms for reply in replies]
    return (
        f"{statistics.mean(reply.n_prompt for reply in replies):.0f}",
        f"{percentile(evaluated, 50)}",
        f"{percentile(evaluated, 95)}",
        f"{statistics.mean(evaluated):.1f}",
        f"{percentile(first_ms, 50):.0f}",
        f"{statistics.mean(first_ms):.0f}",
    )


def spread_of(differences: Sequence[float]) -> tuple[str, str, str]:
    """p50, p95 and mean of what keys differ by."""
    p50, p95 = percentile(differences, 50), percentile(differences, 95)
    return f"{p50:+.1f}", f"{p95:+.1f}", f"{statistics.mean(differences):+.1f}"


if __name__ == "__main__":
    main()
