"""A fleet of engines behind our front, simulated: which replica should a request go to?

    python benchmarks/simulate_fleet.py                              a table of policies, 3 minutes
    python benchmarks/simulate_fleet.py --loads 50 100 150 200 --plot FILE              15 minutes
    python benchmarks/simulate_fleet.py --change goes                a replica dies; or one `comes`
    python benchmarks/simulate_fleet.py --engine l4 --kv 60000       another engine, or less memory
    python benchmarks/simulate_fleet.py --check                      beside what was measured
    python benchmarks/simulate_fleet.py --check-two-replicas
    python benchmarks/simulate_fleet.py --seats 10 1000 100000       what so many need, if a replica
                                                                     bears what is simulated

Developers type real lines, key by key, each in files of their own, with pauses; in their editors
is our bridge, which waits for the next key, ends what a new key makes useless, asks ahead and
answers what is at hand; the engines batch continuously and remember whole blocks. Nothing of a
model runs. `harness/fleet/` says what of it is measured, from a data sheet or assumed:
`developers.py` of people, `engines.py` of machines. Everything follows from `--seed`.

`developers` are those who type at the same time; of all who have a seat they are the fewer.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.fleet.checks import HIT, MEASURED, ROUTERS, two_replicas, typed_alone
from harness.fleet.developers import Trace, traces
from harness.fleet.engines import ENGINES
from harness.fleet.prompts import MAX_ANCHORS
from harness.fleet.routing import (
    Bound,
    CacheAware,
    Oracle,
    Policy,
    PowerOfTwo,
    Random,
    Rendezvous,
    RoundRobin,
    by_file,
    by_user,
)
from harness.fleet.simulation import Change, Outcome, Request, Setting, simulate
from harness.plot import Panel, plot_panels
from harness.tables import percentile, print_table, show_progress

from suture.server.engine.remote.affinity import affinity_key, rendezvous
from suture.server.engine.remote.fleet import FREE_LOAD, SPILL

# Of our server and, which reads all of the suffix at each key, of llama-server. The second is from
# before healing was exact.
MEASURED_KEYS = (
    ("anchor, a hundred of each file, broken off", 285, 1112, 2, 4, "13.9"),
    ("anchor, all", 641, "", 1, 1, "9.4"),
    ("llama-server", 12, 1211, 653, 727, "629.5"),
)

Factory = Callable[[random.Random, Bound], Policy]
POLICIES: Mapping[str, Factory] = {
    "round robin": lambda rng, bound: RoundRobin(),
    "random": lambda rng, bound: Random(rng),
    "less loaded of two": lambda rng, bound: PowerOfTwo(rng),
    "user": lambda rng, bound: Rendezvous(by_user),
    "user, file": lambda rng, bound: Rendezvous(by_file),
    "user, file, bounded": lambda rng, bound: Rendezvous(by_file, bound),
    "cache_aware, text": lambda rng, bound: CacheAware(),
    "oracle": lambda rng, bound: Oracle(bound),
}
OURS = "user, file, bounded"
READS_TEXT = {"cache_aware, text"}

# Of eight hours, 52 minutes are typing in an editor (software.com, "Code Time Report", more than
# 250,000 developers), and the peak of a day is 1.73 times its mean (GitHub Copilot: 400 million
# requests a day, 8,000/s at the peak; D. Cheney at QCon, "How GitHub Copilot Serves 400 Million
# Completion Requests a Day"), which is of all time zones; it is the least that one has.
TYPING, PEAK = 52 / 480, 8000 / (400e6 / 86400)


def main() -> None:
    args = parsed()
    known = traces()
    if args.check:
        report_keys(known)
    elif args.check_two_replicas:
        report_two_replicas()
    elif args.seats:
        report_seats(args, known)
    elif args.loads:
        report_loads(args, known)
    elif args.change:
        report_change(args, known)
    else:
        report_policies(args, known)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=ENGINES, default="a100")
    parser.add_argument("--replicas", type=int, default=4, metavar="N")
    parser.add_argument("--developers", type=int, default=400, metavar="N", help="who type")
    parser.add_argument("--minutes", type=float, default=4.0, help="after one to warm up")
    parser.add_argument("--layout", choices=("anchor", "psm"), default="anchor")
    parser.add_argument("--anchors", type=int, default=MAX_ANCHORS, metavar="N", help="of a front")
    parser.add_argument("--kv", type=int, metavar="N", help="tokens that an engine remembers")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--spill", type=float, default=SPILL, metavar="X", help="of the bound")
    parser.add_argument(
        "--free-load", type=int, default=FREE_LOAD, metavar="N", help="of the bound"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loads", nargs="+", type=int, metavar="N", help="developers a replica")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG of --loads")
    parser.add_argument("--change", choices=("comes", "goes"), help="of a replica, half way")
    parser.add_argument("--check", action="store_true", help="beside keystrokes.py's figures")
    parser.add_argument("--check-two-replicas", action="store_true")
    parser.add_argument("--seats", nargs="+", type=int, metavar="N")
    args = parser.parse_args(words)
    if args.plot is not None and not args.loads:
        parser.error("--plot needs --loads")
    return args


def setting_of(args: argparse.Namespace) -> Setting:
    engine = ENGINES[args.engine]
    return Setting(
        engine if args.kv is None else replace(engine, n_kv=args.kv),
        args.replicas,
        args.developers,
        seconds=60.0 + 60 * args.minutes,
        layout=args.layout,
        n_anchors=args.anchors,
        bound=Bound(args.spill, args.free_load),
        seed=args.seed,
    )


def outcome_of(name: str, setting: Setting, known: Sequence[Trace]) -> Outcome:
    show_progress(f"{name}: {setting.n_developers} developers, {setting.n_replicas} replicas")
    chosen = replace(setting, sends_text=name in READS_TEXT)
    outcome = simulate(chosen, POLICIES[name](random.Random(setting.seed), setting.bound), known)
    show_progress("")
    return outcome


@dataclass(frozen=True, slots=True)
class Figures:
    """Of an outcome. Milliseconds are from when the front has a request to its first text, of
    those that somebody waits for."""

    n_keys: int
    n_requests: int
    shown_a_key: float
    requests_s: float
    warm_hits: float
    evaluated_a_key: float
    evaluated_s: float
    written_s: float
    first_p50: float
    first_p95: float
    unevenness: float
    evicted_s: float
    ends: Counter[str]

    @classmethod
    def of(cls, outcome: Outcome) -> Figures:
        setting, requests = outcome.setting, outcome.requests
        seconds = setting.seconds - setting.warm_s
        read = [one for one in requests if one.job.is_read]
        warm = [one.job for one in read if one.is_again]
        first = [one.first_s * 1e3 for one in requests if one.first_s and not one.is_ahead]
        n_keys = sum(outcome.keys[what] for what in ("typed", "at hand", "taken"))
        n_evaluated = sum(one.job.n_evaluated for one in requests)
        work = [one.n_evaluated + one.n_written for one in outcome.replicas]
        return cls(
            n_keys,
            len(requests),
            outcome.keys["shown"] / n_keys,
            len(requests) / seconds,
            sum(job.n_cached > HIT * job.n_prompt for job in warm) / max(len(warm), 1),
            n_evaluated / n_keys,
            n_evaluated / seconds,
            sum(one.job.n_written for one in requests) / seconds,
            percentile(first, 50),
            percentile(first, 95),
            max(work) / statistics.mean(work),
            sum(one.cache.n_evicted for one in outcome.replicas) / setting.seconds,
            Counter(one.end for one in requests),
        )

    def cells(self) -> tuple[str, ...]:
        superseded = self.ends["superseded"] / self.n_requests
        return (
            f"{self.requests_s:.1f}",
            f"{self.shown_a_key:.3f}",
            f"{self.warm_hits:.3f}",
            f"{self.evaluated_a_key:.1f}",
            f"{self.first_p50:.0f}",
            f"{self.first_p95:.0f}",
            f"{superseded:.2f}",
            f"{self.unevenness:.2f}",
            f"{self.evicted_s:.1f}",
        )


COLUMNS = (
    "requests/s",
    "shown a key",
    "warm hits",
    "evaluated a key",
    "first text, ms: p50",
    "p95",
    "superseded",
    "busiest / mean",
    "blocks evicted/s",
)


def print_head(setting: Setting) -> None:
    bound = setting.bound
    engine, minutes = setting.engine, (setting.seconds - setting.warm_s) / 60
    print(f"\n{engine.what}")
    print(
        f"{setting.n_replicas} replicas of {engine.n_kv:,} tokens in blocks of {engine.block},"
        f" {setting.n_developers} developers typing, {minutes:g} minutes, {setting.layout},"
        f" {setting.n_anchors} anchors, bound {bound.spill:g} and {bound.free_load},"
        f" seed {setting.seed}"
    )


def report_policies(args: argparse.Namespace, known: Sequence[Trace]) -> None:
    setting = setting_of(args)
    found = {name: Figures.of(outcome_of(name, setting, known)) for name in args.policies}
    print_head(setting)
    print_table(("key or policy", *COLUMNS), [(name, *one.cells()) for name, one in found.items()])
    for name, one in found.items():
        if one.ends["broken"]:
            print(f"{name}: {one.ends['broken']} broke")


def report_loads(args: argparse.Namespace, known: Sequence[Trace]) -> None:
    """The same at several loads, which is where policies part."""
    setting = setting_of(args)
    found: dict[str, dict[int, Figures]] = {name: {} for name in args.policies}
    rows = []
    for load in args.loads:
        loaded = replace(setting, n_developers=load * setting.n_replicas)
        for name in args.policies:
            figures = found[name][load] = Figures.of(outcome_of(name, loaded, known))
            rows.append((load, name, *figures.cells()))
    print_head(setting)
    print_table(("developers a replica", "key or policy", *COLUMNS), rows)
    if args.plot is not None:
        args.plot.write_text(plot(found, setting), "utf-8")


def plot(found: Mapping[str, Mapping[int, Figures]], setting: Setting) -> str:
    def lines(of: Callable[[Figures], float]) -> dict[str, list[tuple[float, float]]]:
        return {
            name: [(load, of(one)) for load, one in by_load.items()]
            for name, by_load in found.items()
        }

    across = "developers a replica"
    panels = (
        Panel("suggestions shown for each key", across, lines(lambda one: one.shown_a_key), SHOWN),
        Panel("first text, p95, ms", across, lines(lambda one: one.first_p95), TICKS_MS),
        Panel("evaluated tokens a key", across, lines(lambda one: one.evaluated_a_key), TICKS),
    )
    title = f"{setting.n_replicas} replicas: {setting.engine.what.partition(':')[0]}, simulated"
    return plot_panels(panels, title)


SHOWN, TICKS_MS, TICKS = (0.1, 0.2, 0.3, 0.4), (50, 100, 200, 400), (10, 20, 40, 80, 160)


def report_change(args: argparse.Namespace, known: Sequence[Trace]) -> None:
    """A replica comes or goes half way: the minute before it, and the one after."""
    setting = setting_of(args)
    at_s = setting.warm_s + (setting.seconds - setting.warm_s) / 2
    setting = replace(setting, change=Change(at_s, args.change))
    rows = []
    for name in args.policies:
        outcome = outcome_of(name, setting, known)
        parts = [
            [one for one in outcome.requests if at_s + start <= one.at_s < at_s + start + 60]
            for start in (-60, 0)
        ]
        cells = [cell for part in parts for cell in _around(part)]
        n_broken = sum(one.end == "broken" for one in outcome.requests)
        rows.append((name, *cells, n_broken))
    print_head(setting)
    columns = ("warm hits", "first text p95, ms")
    around = [f"{column}, {when}" for when in ("before", "after") for column in columns]
    print_table(("key or policy", *around, "broke"), rows)
    share = moved(setting.n_replicas - (args.change == "goes"))
    print(f"\nKeys that move when one {args.change}: {share:.3f}")


def _around(requests: Sequence[Request]) -> tuple[str, str]:
    warm = [one.job for one in requests if one.is_again and one.job.is_read]
    hits = sum(job.n_cached > HIT * job.n_prompt for job in warm) / max(len(warm), 1)
    first = [one.first_s * 1e3 for one in requests if one.first_s and not one.is_ahead]
    return f"{hits:.3f}", f"{percentile(first, 95):.0f}"


def moved(n_replicas: int, n_keys: int = 20_000) -> float:
    """The share of keys that another replica takes when there is one more, or one less."""
    names = [f"replica {n}" for n in range(n_replicas + 1)]
    first = (rendezvous(affinity_key("", str(n), ""), names)[0] for n in range(n_keys))
    return sum(name == names[-1] for name in first) / n_keys


def report_keys(known: Sequence[Trace]) -> None:
    """Evaluated tokens at each key of the benchmark of keys, by the model of prompts alone."""
    hundreds = [Trace(trace.keys[:100]) for trace in known]
    rows: list[tuple[object, ...]] = [("measured", *row) for row in MEASURED_KEYS]
    for what, typed in (
        ("anchor, a hundred of each file", typed_alone(hundreds, "anchor")),
        ("anchor, all", typed_alone(known, "anchor")),
        ("psm, all", typed_alone(known, "psm")),
    ):
        evaluated = typed.evaluated
        p50, p95 = percentile(evaluated, 50), percentile(evaluated, 95)
        mean = f"{statistics.mean(evaluated):.1f}"
        rows.append(("simulated", what, len(evaluated), f"{typed.mean_prompt:.0f}", p50, p95, mean))
    print("Measured is what docs/performance.md has under *Typing*.")
    columns = ("keys", "n", "prompt tokens", "evaluated: p50", "p95", "mean")
    print_table(("", *columns), rows)


def report_two_replicas() -> None:
    """The real run beside the simulated one, whose numbers are over a thousand draws."""
    rows: list[tuple[object, ...]] = [
        ("measured", one.policy, one.hits, one.found, one.parted) for one in MEASURED
    ]
    for router in ROUTERS:
        runs = [two_replicas(router, seed) for seed in range(1000)]
        hits = [run.n_hits for run in runs]
        parted = sorted(min(run.share_of_first, 1 - run.share_of_first) for run in runs)
        less, more = parted[len(runs) // 10], parted[-len(runs) // 10]
        rows.append(
            (
                "simulated",
                router,
                spread_of([percentile(hits, 10), percentile(hits, 90)]),
                f"{statistics.mean(run.found for run in runs):.2f}",
                " to ".join(
                    dict.fromkeys(f"{x * 100:.0f}/{100 - x * 100:.0f}" for x in (less, more))
                ),
            )
        )
    print("Two replicas, 18 warm requests. Simulated: eight of ten draws, and the mean.")
    print_table(("", "router", "hits of 18", "tokens found", "prompts parted"), rows)


def in_percent(share: float) -> str:
    return f"{share:.0%}/{1 - share:.0%}".replace("%", "")


def spread_of(values: Sequence[float]) -> str:
    return "-".join(dict.fromkeys(f"{value:g}" for value in values))


def report_seats(args: argparse.Namespace, known: Sequence[Trace]) -> None:
    """From seats to tokens a second and replicas, each with as many who type as are simulated."""
    setting = setting_of(args)
    one = Figures.of(outcome_of(OURS, setting, known))
    n_developers = setting.n_developers
    load = n_developers / setting.n_replicas
    print_head(setting)
    each = {
        "keys/s": one.n_keys / (setting.seconds - setting.warm_s),
        "requests/s": one.requests_s,
        "evaluated tokens/s": one.evaluated_s,
        "written tokens/s": one.written_s,
    }
    rows = [(name, f"{total / n_developers:.2f}") for name, total in each.items()]
    print_table(("each developer who types", ""), rows)
    print(f"\nTyping at the peak: {TYPING:.3f} x {PEAK:.2f} = {TYPING * PEAK:.3f} of all")
    table = []
    for seats in args.seats:
        typing = seats * TYPING * PEAK
        totals = [f"{total / n_developers * typing:,.0f}" for total in list(each.values())[1:]]
        table.append((f"{seats:,}", f"{typing:,.0f}", *totals, f"{math.ceil(typing / load):,}"))
    print_table(("seats", "typing", *list(each)[1:], "replicas"), table)


if __name__ == "__main__":
    main()
