"""Plain decoding, ours beside llama-server: tokens a second of one stream, and of eight at once.

    python benchmarks/decoding.py --llama-server PATH [--n N] [--rounds N]        9 minutes

HumanEval's function headers are gone on from, 64 tokens each, greedily and past the text's end.
Drafts are taken out of our server, so that both do the same work: an evaluation a token (the
`drafted` column proves it). The KV caches are of the same size, and all prompts of eight streams
are read before they begin, so that nobody's prompt is in the measured time.

The lines `full` are measured after 20 other prompts, which both servers keep as they see fit:
what others left in the cache slows a step. Both speeds count tokens after the first: `by the
server` from what it says its generation took, `at the client` from the first text to the end.
Of eight streams the first is the sum of their speeds, the second all tokens over all the time.
Read the last column: ours divided by theirs, by the server and at the client.
"""

from __future__ import annotations

import contextlib
import time
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
from harness.tables import print_table, ratio, show_progress
from harness.texts import human_eval_headers, source_pieces, spread

N_PREDICT = 64
N_STREAMS = 8
N_OTHERS = 20
OTHER_BYTES = 800
MAX_HEADER_BYTES = 450


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second, and how many tokens were drafted to get them."""

    by_server: float
    at_client: float
    n_tokens: int
    n_drafted: int


def main() -> None:
    parser = parser_of(__doc__, 6, "prompts of one stream")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="of eight streams")
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
        run = Run(servers, args.n, args.rounds)
        rows = run.rows("as started")
        run.fill_caches()
        rows += run.rows("full")
    show_progress("")
    print(f"{path.name}, {N_PREDICT} tokens a stream, {args.n} prompts of one stream")
    columns = ("streams", "cache", "server", "tokens", "drafted", "by the server, tokens/s")
    print_table((*columns, "at the client, tokens/s", "ours / theirs"), rows)


class Run:
    """No prompt is sent twice, or it would be in the cache."""

    def __init__(self, servers: list[Server], n_prompts: int, n_rounds: int) -> None:
        self._servers = servers
        self._n_prompts = n_prompts
        self._n_rounds = n_rounds
        headers = [text for text in human_eval_headers() if len(text) <= MAX_HEADER_BYTES]
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

    def fill_caches(self) -> None:
        """Other people's prompts, each with a token of its answer."""
        for n, piece in enumerate(spread(list(source_pieces(OTHER_BYTES)), N_OTHERS)):
            show_progress(f"other prompts: {n + 1} of {N_OTHERS}")
            for server in self._servers:
                server.ask(piece, "", 1)

    def _lone_streams(self, cache: str) -> dict[str, list[Speed]]:
        speeds: dict[str, list[Speed]] = {server.name: [] for server in self._servers}
        for turn in range(self._n_prompts):
            show_progress(f"one stream, {cache}: {turn + 1} of {self._n_prompts}")
            prompt = next(self._prompts)
            for server in in_turn(self._servers, turn):
                reply = server.ask(prompt, "", N_PREDICT, ignore_eos=True)
                speeds[server.name].append(_speed([reply], reply.total_ms - reply.first_ms))
        return speeds

    def _many_streams(self, cache: str) -> dict[str, list[Speed]]:
        speeds: dict[str, list[Speed]] = {server.name: [] for server in self._servers}
        for turn in range(self._n_rounds):
            show_progress(f"{N_STREAMS} streams, {cache}: {turn + 1} of {self._n_rounds}")
            prompts = [next(self._prompts) for _ in range(N_STREAMS)]
            for server in in_turn(self._servers, turn):
                speeds[server.name].append(_at_once(server, prompts))
        return speeds

    def _compared(
        self, n_streams: int, cache: str, speeds: dict[str, list[Speed]]
    ) -> list[tuple[object, ...]]:
        means = {name: _mean(given) for name, given in speeds.items()}
        ours = means[self._servers[0].name]
        return [
            (
                n_streams,
                cache,
                name,
                mean.n_tokens,
                mean.n_drafted,
                f"{mean.by_server:.2f}",
                f"{mean.at_client:.2f}",
                ""
                if mean is ours
                else f"{ratio(ours.by_server, mean.by_server)}, "
                f"{ratio(ours.at_client, mean.at_client)}",
            )
            for name, mean in means.items()
        ]


def _at_once(server: Server, prompts: Sequence[str]) -> Speed:
    """All streams begin together, their prompts read before, each in a slot of its own."""
    for slot, prompt in enumerate(prompts):
        server.ask(prompt, "", 0, id_slot=slot)
    began = time.perf_counter()
    first_ms = []

    def ask(slot: int) -> Reply:
        late_ms = (time.perf_counter() - began) * 1e3
        reply = server.ask(prompts[slot], "", N_PREDICT, id_slot=slot, ignore_eos=True)
        first_ms.append(late_ms + reply.first_ms)
        return reply

    with ThreadPoolExecutor(len(prompts)) as pool:
        replies = list(pool.map(ask, range(len(prompts))))
    total_ms = (time.perf_counter() - began) * 1e3
    return _speed(replies, total_ms - min(first_ms))


def _speed(replies: Sequence[Reply], client_ms: float) -> Speed:
    return Speed(
        sum(reply.n_steps / reply.predicted_ms * 1e3 for reply in replies),
        sum(reply.n_steps for reply in replies) / client_ms * 1e3,
        sum(reply.n_predicted for reply in replies),
        sum(reply.n_drafted for reply in replies),
    )


def _mean(speeds: Sequence[Speed]) -> Speed:
    """Over equal numbers of tokens, the time of all counts: the harmonic mean."""
    n = len(speeds)
    return Speed(
        n / sum(1 / speed.by_server for speed in speeds),
        n / sum(1 / speed.at_client for speed in speeds),
        sum(speed.n_tokens for speed in speeds),
        sum(speed.n_drafted for speed in speeds),
    )


if __name__ == "__main__":
    main()
