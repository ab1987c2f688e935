"""What the cursor inside a token costs: the rest of it, as likely as to who knows where it began.

    python benchmarks/regret.py [--n N] [--plot FILE]        10 minutes, half a gigabyte of disk

Ctrl-C ends it with a report of what is there.

Cursors stand in the bodies of HumanEval's programs, 64 to 160 tokens behind a line's beginning, as
many for each number of tokens that have to be given back. smollm2-135m goes on, with its weights as
float32. The rest of the token that the cursor is in has, behind what was typed, a probability by
each method, and one by whoever was told where that token begins in the finished program: the
token-aligned. What a method loses against that is its *regret*, in bits. At a cursor between two
tokens (stratum 0) the rest is all of the next token, and the token-aligned is told where the last
one began, not that it has ended; `naive` takes just that for granted, and there it is right.

All methods and the token-aligned read the same rows, evaluated once for each cursor, so no
difference is a rounding.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from harness.cursors import STRATA, Cursor, human_eval_cursors
from harness.full_precision import float32_copy
from harness.plot import plot_bars
from harness.servers import N_THREADS, model_path
from harness.tables import print_table, show_progress

from suture.healing import (
    Boundary,
    CanonicalPairs,
    CoverTree,
    HealingError,
    Posterior,
    TokenHealer,
    cover_tree,
    fixed_boundary,
    log_softmax_row,
    stable_boundary,
    uncut_boundary,
)
from suture.healing.vocabulary import TokenIds
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.tree import TokenTree
from suture.server.prompt.plan import last_line_ids
from suture.server.settings import load_settings

Row = npt.NDArray[np.float32]
Ids = tuple[int, ...]

NAIVE, EXTEND, DROP_ONE = "naive", "one token, extensions", "one token, recursive"
RECURSIVE, EXACT = "stable cut, recursive", "exact"
METHODS = (NAIVE, EXTEND, DROP_ONE, RECURSIVE, EXACT)
MAX_REGRET = 0.02
# Of all segmentations those of the fewest tokens: others are one byte a token.
MAX_NODES = 24
N_ASKED = 256
N_WANTED = 32
NOTHING_FOLLOWS = -100.0
AFTER = (b"", b"x", b" x", b"\n", b"\n    x", b"=")


class Rows:
    """Log probabilities behind token sequences that begin alike, in few evaluations."""

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        self._sequence = engine.open()
        self._rows: dict[Ids, Row] = {}

    def evaluate(self, sequences: Iterable[Ids]) -> None:
        """All that are asked for below, together."""
        wanted = sorted(set(sequences))
        first, last = wanted[0], wanted[-1]
        n_shared = next(
            (n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
            min(len(first), len(last)),
        )
        # The last of them is evaluated again with each tree, for its row.
        self._go_to(min(n_shared, *map(len, wanted)) - 1, first)
        self._rows.clear()
        for at in range(0, len(wanted), N_WANTED):
            self._evaluate(wanted[at : at + N_WANTED])

    def _go_to(self, n_tokens: int, ids: Ids) -> None:
        engine = self._engine
        have = engine.tokens(self._sequence)
        n_same = 0
        while n_same < min(n_tokens, len(have)) and have[n_same] == ids[n_same]:
            n_same += 1
        engine.truncate(self._sequence, n_same)
        if n_same < n_tokens:
            chain = TokenTree.chain(ids[n_same:n_tokens])
            engine.evaluate([(self._sequence, chain)])
            engine.commit(self._sequence, len(chain) - 1)

    def _evaluate(self, wanted: Sequence[Ids]) -> None:
        n_shared = len(self._engine.tokens(self._sequence))
        nodes: dict[Ids, int] = {}
        parents: list[int] = []
        for ids in wanted:
            for n in range(n_shared + 1, len(ids) + 1):
                if ids[:n] not in nodes:
                    nodes[ids[:n]] = len(nodes)
                    parents.append(nodes.get(ids[: n - 1], -1))
        tokens = tuple(ids[-1] for ids in nodes)
        tree = TokenTree(tokens, tuple(parents), tuple(nodes[ids] for ids in wanted))
        (rows,) = self._engine.evaluate([(self._sequence, tree)])
        for ids, row in zip(wanted, rows, strict=True):
            self._rows[ids] = log_softmax_row(row.copy())

    def __getitem__(self, ids: Ids) -> Row:
        if ids not in self._rows:
            self._evaluate([ids])
        return self._rows[ids]

    def of(self, tree: CoverTree, kept: Ids) -> dict[int, Row]:
        return {node: self[(*kept, *tree.path(node))] for node in tree.wants}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a method evaluates; the covers of what is to be said again, and of that and the rest."""

    kept: Ids
    pending: bytes
    again: CoverTree
    onward: CoverTree

    def wanted(self) -> Iterator[Ids]:
        for tree in (self.again, self.onward):
            yield from ((*self.kept, *tree.path(node)) for node in tree.wants)


@dataclass(slots=True)
class Found:
    """Of one cursor: log2 of the rest's probability by method, and what else there is to see."""

    stratum: str
    bits: dict[str, float]
    aligned: float
    kl: float = 0.0
    n_nodes: int = 0
    n_extra: int = 0
    tv_bound: float = 0.0
    canonical: dict[tuple[str, str], bool] = field(default_factory=dict)

    def regret(self, method: str) -> float:
        return self.aligned - self.bits[method]


class Measure:
    """All methods at a cursor."""

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        self._vocabulary = engine.vocabulary
        self._pairs = CanonicalPairs(engine.vocabulary, engine.encode)
        self._rows = Rows(engine)
        self._rng = np.random.default_rng(0)

    def at(self, cursor: Cursor) -> Found:
        vocabulary, encode = self._vocabulary, self._engine.encode
        whole = uncut_boundary(cursor.typed, encode, vocabulary)
        one = fixed_boundary(cursor.typed, 1, encode, vocabulary)
        stable = stable_boundary(cursor.typed, encode, vocabulary)
        aligned = Boundary(cursor.aligned_ids, cursor.typed[cursor.aligned_bytes :], 0)
        prompts = {
            NAIVE: self._prompt(whole, cursor.rest, None),
            DROP_ONE: self._prompt(one, cursor.rest, None),
            RECURSIVE: self._prompt(stable, cursor.rest, None),
            EXACT: self._prompt(stable, cursor.rest, self._pairs),
            "aligned": self._prompt(aligned, cursor.rest, self._pairs),
        }
        prompts[EXTEND] = prompts[DROP_ONE]
        self._rows.evaluate(ids for prompt in prompts.values() for ids in prompt.wanted())
        exact = prompts[EXACT]
        bits = {
            NAIVE: self._by_rule(prompts[NAIVE], self._free),
            EXTEND: self._by_rule(prompts[EXTEND], self._extending),
            DROP_ONE: self._by_rule(prompts[DROP_ONE], self._recursive),
            RECURSIVE: self._by_rule(prompts[RECURSIVE], self._recursive),
            # With nothing to give back, nothing is constrained.
            EXACT: self._exact(exact) if exact.pending else self._by_rule(exact, self._free),
        }
        found = Found(cursor.stratum, bits, self._exact(prompts["aligned"]))
        if exact.pending:
            posterior = self._posterior(exact.again, exact.kept)
            found.kl = self._kl(exact, posterior)
            found.n_nodes = len(exact.again.tokens)
            found.tv_bound = posterior.tv_bound
        found.n_extra = found.n_nodes - stable.dropped_tokens
        for method in METHODS:
            for how, pick in (("greedy", self._best), ("drawn", self._draw)):
                emitted = self._say(method, prompts[method], pick)
                is_right = self._is_canonical((*prompts[method].kept, *emitted))
                found.canonical[method, how] = is_right
        return found

    def _prompt(self, boundary: Boundary, rest: bytes, pairs: CanonicalPairs | None) -> Prompt:
        kept, pending = boundary.kept_ids, boundary.pending
        left = last_line_ids(kept, self._vocabulary)
        again, onward = (
            cover_tree(data, left, self._vocabulary, pairs, MAX_NODES)
            for data in (pending, pending + rest)
        )
        return Prompt(kept, pending, again, onward)

    # How likely the rest is

    def _exact(self, prompt: Prompt) -> float:
        onward = self._posterior(prompt.onward, prompt.kept).log_evidence
        return (onward - self._posterior(prompt.again, prompt.kept).log_evidence) / math.log(2)

    def _posterior(self, tree: CoverTree, kept: Ids) -> Posterior:
        rows, ends = self._rows.of(tree, kept), self._vocabulary.eog_ids
        posterior = Posterior(tree, rows, self._vocabulary, self._pairs, ends, max_gathered=1 << 30)
        posterior.ask_best(N_ASKED)
        return posterior

    def _by_rule(self, prompt: Prompt, rule: Callable[[Row, bytes], Row]) -> float:
        """By a rule that draws token after token, from what it makes of each row."""
        tree = prompt.onward
        rows = self._ruled(tree, prompt, rule)
        try:
            posterior = Posterior(tree, rows, self._vocabulary, None, self._vocabulary.eog_ids)
        except HealingError:
            return NOTHING_FOLLOWS
        return posterior.log_evidence / math.log(2)

    def _ruled(
        self, tree: CoverTree, prompt: Prompt, rule: Callable[[Row, bytes], Row]
    ) -> dict[int, Row]:
        return {
            node: rule(row, prompt.pending[tree.end_of(node) :])
            for node, row in self._rows.of(tree, prompt.kept).items()
        }

    def _free(self, row: Row, pending: bytes) -> Row:
        return row

    def _recursive(self, row: Row, pending: bytes) -> Row:
        if not pending:
            return row
        constraint = TokenHealer(self._vocabulary, pending).constraint()
        return _only(row, constraint.apply(row, self._vocabulary)[0])

    def _extending(self, row: Row, pending: bytes) -> Row:
        if not pending:
            return row
        ranks = self._vocabulary.extending(pending)
        return _only(row, self._vocabulary.sorted_ids[ranks.start : ranks.stop])

    def _kl(self, exact: Prompt, posterior: Posterior) -> float:
        """Bits from the posterior to what the recursive rule draws of the same covers."""
        rows = self._ruled(exact.again, exact, self._recursive)
        tree = exact.again
        drawn = Posterior(tree, rows, self._vocabulary, None, max_gathered=1 << 30)
        best = posterior.ask_best(N_ASKED)
        weights = np.exp(posterior.log_weights[best] - posterior.log_evidence)
        ratio = posterior.log_weights[best] - posterior.log_evidence - drawn.log_weights[best]
        return float(weights @ ratio) / math.log(2)

    # What is said at the cursor

    def _say(self, method: str, prompt: Prompt, pick: Callable[[Row], int]) -> Ids:
        """The tokens from the cut to the first behind the cursor."""
        if method == EXACT and prompt.pending:
            return self._say_exactly(prompt, pick)
        rule = {NAIVE: self._free, EXTEND: self._extending}.get(method, self._recursive)
        pending = prompt.pending
        emitted: Ids = ()
        while True:
            token_id = pick(rule(self._rows[(*prompt.kept, *emitted)], pending))
            piece = self._vocabulary.bytes_of(token_id)
            emitted = (*emitted, token_id)
            if not pending.startswith(piece) or not piece:
                return emitted if piece else emitted[:-1]
            pending = pending[len(piece) :]

    def _say_exactly(self, prompt: Prompt, pick: Callable[[Row], int]) -> Ids:
        tree = prompt.again
        posterior = self._posterior(tree, prompt.kept)
        if pick == self._best:
            group = next(posterior.best_groups())
            cover, follower = group.cover, group.next_id
        else:
            cover, follower = posterior.cover(self._cover(posterior, pick)), None
        path = tree.path(cover.node)
        if cover.token_id is not None:
            return (*path, cover.token_id)
        if follower is None:
            row = self._rows[(*prompt.kept, *path)].copy()
            follower = pick(row)
            while not posterior.may_follow(cover.node, follower):
                row[follower] = -np.inf
                follower = pick(row)
        return (*path, follower) if self._vocabulary.bytes_of(follower) else path

    def _cover(self, posterior: Posterior, pick: Callable[[Row], int]) -> int:
        while True:
            index = pick(posterior.log_weights.astype(np.float32))
            if posterior.is_canonical(index):
                return index

    def _best(self, row: Row) -> int:
        return int(row.argmax())

    def _draw(self, row: Row) -> int:
        return int((row + self._rng.gumbel(size=len(row))).argmax())

    def _is_canonical(self, ids: Ids) -> bool:
        """Whether the tokenizer makes these of their text, if some text or other follows."""
        data = b"".join(map(self._vocabulary.bytes_of, ids))
        encode = self._engine.encode
        return any(tuple(encode(data + after)[: len(ids)]) == ids for after in AFTER)


def _only(row: Row, ids: TokenIds) -> Row:
    """The row of these tokens alone; nothing follows where there are none."""
    masked = np.full_like(row, -np.inf)
    masked[ids] = row[ids]
    return log_softmax_row(masked) if ids.size else masked


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=80, metavar="N", help="cursors of each stratum")
    parser.add_argument("--threads", type=int, default=N_THREADS, metavar="N")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG")
    args = parser.parse_args()
    path = float32_copy(model_path("smollm2-135m"), load_settings().cache / "benchmarks")
    engine = LlamaEngine(path, n_threads=args.threads, n_ctx=2048)
    cursors, shares = human_eval_cursors(args.n, engine.encode, engine.vocabulary)
    measure = Measure(engine)
    found: dict[str, list[Found]] = defaultdict(list)
    # In turn, so that what is there can be reported at any time.
    in_turn = [cursor for n in range(args.n) for cursor in cursors[n :: args.n]]
    with contextlib.suppress(KeyboardInterrupt):
        for n, cursor in enumerate(in_turn, 1):
            show_progress(f"{n} of {len(in_turn)} cursors")
            found[cursor.stratum].append(measure.at(cursor))
    show_progress("")
    engine.close()
    report(found, shares)
    if args.plot is not None:
        args.plot.write_text(plot(found), "utf-8")


def report(found: Mapping[str, Sequence[Found]], shares: Mapping[str, float]) -> None:
    counts = ", ".join(f"{s}: {len(found[s])} ({shares[s]:.1%} of all)" for s in STRATA)
    print(f"Cursors by the tokens to be given back: {counts}")
    columns = ("tokens", "method", "regret, bits", "log2 P", "P > 0.5", "P < 1/1000")
    print_table(columns, [row(s, m, found[s]) for s in STRATA for m in METHODS])
    print_table(
        ("all cursors, by their shares", "regret, bits"),
        [(method, _plus_minus(*_overall(found, shares, method))) for method in METHODS],
    )
    everything = [one for stratum in STRATA for one in found[stratum]]
    print_table(
        ("canonical at the boundary", "greedy", "drawn at temperature 1"),
        [
            (m, *(f"{_canonical(everything, m, how):.1%}" for how in ("greedy", "drawn")))
            for m in METHODS
        ],
    )
    print_table(
        (
            "tokens",
            "KL exact to recursive, bits: mean",
            "max",
            "nodes",
            "tokens more than naive",
            "TV bound: mean",
            "max",
        ),
        [(s, *_rest_of(found[s])) for s in STRATA],
    )
    print()
    for text, is_met in criteria(found, shares):
        print(f"- {'met' if is_met else 'MISSED'}: {text}")


def row(stratum: str, method: str, found: Sequence[Found]) -> tuple[str, ...]:
    bits = [one.bits[method] for one in found]
    return (
        stratum,
        method,
        _plus_minus(*_mean([one.regret(method) for one in found])),
        f"{statistics.mean(bits):.3f}",
        f"{_share(b > -1.0 for b in bits):.0%}",
        f"{_share(b < -math.log2(1000) for b in bits):.0%}",
    )


def _rest_of(found: Sequence[Found]) -> tuple[str, ...]:
    kls, bounds = [one.kl for one in found], [one.tv_bound for one in found]
    return (
        _plus_minus(*_mean(kls)),
        f"{max(kls):.2f}",
        f"{statistics.mean(one.n_nodes for one in found):.2f}",
        f"{statistics.mean(one.n_extra for one in found):.2f}",
        f"{statistics.mean(bounds):.1e}",
        f"{max(bounds):.1e}",
    )


def criteria(
    found: Mapping[str, Sequence[Found]], shares: Mapping[str, float]
) -> Iterator[tuple[str, bool]]:
    for stratum in STRATA:
        mean, error = _mean([one.regret(EXACT) for one in found[stratum]])
        text = f"exact, {stratum}: {_plus_minus(mean, error)} bits of regret, at most {MAX_REGRET}"
        yield text, mean <= MAX_REGRET
    for stratum in STRATA:
        mean, error = _mean([one.bits[EXACT] - one.bits[NAIVE] for one in found[stratum]])
        text = f"exact over naive, {stratum}: {_plus_minus(mean, error)} bits, not below 0"
        yield text, mean >= -2 * error
    mean = _overall(found, shares, NAIVE)[0] - _overall(found, shares, EXACT)[0]
    yield f"exact over naive, all cursors: {mean:.2f} bits, not below 0", mean >= 0


def _overall(
    found: Mapping[str, Sequence[Found]], shares: Mapping[str, float], method: str
) -> tuple[float, float]:
    means = {s: _mean([one.regret(method) for one in found[s]]) for s in STRATA}
    mean = sum(shares[s] * means[s][0] for s in STRATA)
    return mean, math.sqrt(sum((shares[s] * means[s][1]) ** 2 for s in STRATA))


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """And its standard error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.mean(values), error


def _plus_minus(mean: float, error: float) -> str:
    return f"{round(mean, 3) + 0.0:.3f} ± {error:.3f}"


def _share(values: Iterable[bool]) -> float:
    return statistics.mean(map(float, values))


def _canonical(found: Sequence[Found], method: str, how: str) -> float:
    return _share(one.canonical[method, how] for one in found)


def plot(found: Mapping[str, Sequence[Found]]) -> str:
    groups = {
        f"{stratum} tokens": {
            method: _mean([one.regret(method) for one in found[stratum]]) for method in METHODS
        }
        for stratum in STRATA
    }
    return plot_bars(groups, "Bits lost on the rest of the token, by tokens to be given back")


if __name__ == "__main__":
    main()
