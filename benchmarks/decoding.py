"""Plain decoding, ours beside llama-server: tokens a second of one stream, and of eight at once.

    python benchmarks/decoding.py --llama-server PATH [--n N] [--rounds N]       14 minutes

HumanEval's function headers are gone on from, 64 tokens each, greedily and past the text's end.
Drafts are taken out of our server, so that both do the same work: an evaluation a token (the
`drafted` column proves it). The KV caches are of the same size, and both tell of each token.

The lines `full` are measured after 20 other prompts, which both servers keep as they see fit:
what others left in the cache slows a step. Speeds count tokens after the first. `By the server` is
what it says its generation took; `at the client` is from the first token's arrival to the last's,
and of eight streams what came while all had begun and none had ended, as how servers read eight
prompts at once is another matter. Read the last column: ours divided by theirs, at the client, with
its standard error over the prompts or rounds, of which each was sent to both, one after the other.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.servers import (
    EQUAL_WINDOWS,
    UNDRAFTED,
    Reply,
    Server,
    in_turn,
    llama_server,
    model_path,
    parser_of,
    suture,
)
from harness.tables import print_table, ratio_with_error, show_progress
from harness.texts import human_eval_headers, source_pieces, spread

N_STREAMS = 8
OTHER_BYTES = 700
HEADER_BYTES = range(60, 500)


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second, and how many tokens were drafted to get them.

    `by_server` is None for several streams: their own times have others' prompts in them.
    """

    by_server: float | None
    at_client: float
    n_tokens: int
    n_drafted: int


def main() -> None:
    parser = parser_of(__doc__, 12, "prompts of one stream")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of eight streams")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of each stream")
    parser.add_argument("--others", type=int, default=20, metavar="N", help="other prompts")
    args = parser.parse_args()
    path = model_path(args.model)
    streams = str(N_STREAMS)
    with contextlib.ExitStack() as stack:
        ours = suture(
            path, "--parallel", streams, "--layout", "psm", *EQUAL_WINDOWS, program=UNDRAFTED
        )
        servers = [stack.enter_context(ours)]
        if args.llama_server is not None:
            flags = ("-np", streams, "--kv-unified")
            servers.append(stack.enter_context(llama_server(args.llama_server, path, *flags)))
        run = Run(servers, args.tokens, args.n, args.rounds)
        rows = run.rows("as started")
        run.fill_caches(args.others)
        rows += run.rows("full")
    show_progress("")
    print(f"{path.name}, {args.tokens} tokens a stream, {args.n} prompts of one stream")
    columns = ("streams", "cache", "server", "tokens", "drafted", "by the server, tokens/s")
    print_table((*columns, "at the client, tokens/s", "ours / theirs"), rows)


class Run:
    """No prompt is sent twice, or it would be in the cache."""

    def __init__(self, servers: list[Server], n_tokens: int, n_prompts: int, n_rounds: int) -> None:
        self._servers = servers
        self._n_tokens = n_tokens
        self._n_prompts = n_prompts
        self._n_rounds = n_rounds
        headers = [text for text in human_eval_headers() if len(text) in HEADER_BYTES]
        needed = 2 * (n_prompts + n_rounds * N_STREAMS) + len(servers)
        if needed > len(headers):
            raise SystemExit(f"{needed} prompts are too many: there are {len(headers)}")
        self._prompts = iter(spread(headers, needed))
        for server in servers:
            server.ask(next(self._prompts), "", 8)

    def rows(self, cache: str) -> list[tuple[object, ...]]:
        return [
            *self._compared(1, cache, self._lone_streams(cache)),
            *self._compared(N_STREAMS, cache, self._many_streams(cache)),
        ]

    def fill_caches(self, n_others: int) -> None:
        """Other people's prompts, each with a token of its answer."""
        for n, piece in enumerate(spread(list(source_pieces(OTHER_BYTES)), n_others)):
            show_progress(f"other prompts: {n + 1} of {n_others}")
            for server in self._servers:
                server.ask(piece, "", 1)

    def _lone_streams(self, cache: str) -> dict[str, list[Speed]]:
        speeds: dict[str, list[Speed]] = {server.name: [] for server in self._servers}
        for turn in range(self._n_prompts):
            show_progress(f"one stream, {cache}: {turn + 1} of {self._n_prompts}")
            prompt = next(self._prompts)
            for server in in_turn(self._servers, turn):
                speeds[server.name].append(_lone(server, prompt, self._n_tokens))
        return speeds

    def _many_streams(self, cache: str) -> dict[str, list[Speed]]:
        speeds: dict[str, list[Speed]] = {server.name: [] for server in self._servers}
        for turn in range(self._n_rounds):
            show_progress(f"{N_STREAMS} streams, {cache}: {turn + 1} of {self._n_rounds}")
            prompts = [next(self._prompts) for _ in range(N_STREAMS)]
            for server in in_turn(self._servers, turn):
                speeds[server.name].append(_at_once(server, prompts, self._n_tokens))
        return speeds

    def _compared(
        self, n_streams: int, cache: str, speeds: dict[str, list[Speed]]
    ) -> list[tuple[object, ...]]:
        ours = speeds[self._servers[0].name]
        return [(n_streams, cache, name, *_shown(given, ours)) for name, given in speeds.items()]


def _shown(speeds: list[Speed], ours: list[Speed]) -> tuple[int, int, str, str, str]:
    mean = _mean(speeds)
    by_server = "" if mean.by_server is None else f"{mean.by_server:.2f}"
    # Seconds a token: their sums are what all the tokens took.
    pairs = [(1 / b.at_client, 1 / a.at_client) for a, b in zip(ours, speeds, strict=True)]
    against = "" if speeds is ours else ratio_with_error(pairs)
    return mean.n_tokens, mean.n_drafted, by_server, f"{mean.at_client:.2f}", against


def _lone(server: Server, prompt: str, n_tokens: int) -> Speed:
    reply = server.ask(prompt, "", n_tokens, ignore_eos=True, return_tokens=True)
    at_client = _speed_within(reply, *_drawing(reply))
    by_server = (reply.n_predicted - 1) / reply.predicted_ms * 1e3
    return Speed(by_server, at_client, reply.n_predicted, reply.n_drafted)


def _at_once(server: Server, prompts: Sequence[str], n_tokens: int) -> Speed:
    """The speed while all streams have begun and none has ended."""

    def ask(prompt: str) -> Reply:
        return server.ask(prompt, "", n_tokens, ignore_eos=True, return_tokens=True)

    with ThreadPoolExecutor(len(prompts)) as pool:
        replies = list(pool.map(ask, prompts))
    begun, ended = zip(*map(_drawing, replies), strict=True)
    start, end = max(begun), min(ended)
    if end <= start:
        raise SystemExit(f"{server.name} has not served {len(prompts)} streams at once")
    return Speed(
        None,
        sum(_speed_within(reply, start, end) for reply in replies),
        sum(reply.n_predicted for reply in replies),
        sum(reply.n_drafted for reply in replies),
    )


def _drawing(reply: Reply) -> tuple[float, float]:
    """When its first tokens came, and its last."""
    return reply.arrivals[0][0], reply.arrivals[-1][0]


def _speed_within(reply: Reply, start: float, end: float) -> float:
    """Tokens a second that came after `start`, until `end`."""
    return sum(n for at, n in reply.arrivals if start < at <= end) / (end - start)


def _mean(speeds: Sequence[Speed]) -> Speed:
    """Over equal numbers of tokens, the time of all counts: the harmonic mean."""
    by_server = [speed.by_server for speed in speeds if speed.by_server is not None]
    return Speed(
        statistics.harmonic_mean(by_server) if by_server else None,
        statistics.harmonic_mean([speed.at_client for speed in speeds]),
        sum(speed.n_tokens for speed in speeds),
        sum(speed.n_drafted for speed in speeds),
    )


if __name__ == "__main__":
    main()
