"""What a client that has left still costs the next one.

    python benchmarks/leaving.py --llama-server PATH [--n N] [--n-theirs N]        7 minutes

On a server that serves one request at a time, a client asks and leaves, and at once another asks
for one token after a short prompt. Its *extra wait* is the time until its answer is complete less
the median of what the same request takes on an idle server, measured in the same run between the
tries. No prompt is sent twice. Where clients leave:

- *prompt*: while about 900 tokens of a prompt are read, the answer streamed or not;
- *decode*: while 512 tokens are generated, streamed (after the third text) or not;
- *queued*: behind a request that is being generated, whose client leaves right after;
- *superseded*: nobody leaves, but the short request is the next of the same session while the
  long prompt is read, which only our server knows.

Read the p95 of the extra wait: it should be at most 0.15 s. How far p95 is from p50 for a request
alone says how much of it is the machine's unrest.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from harness.servers import (
    AS_FOR_LLAMA_VIM,
    EQUAL_WINDOWS,
    Server,
    llama_server,
    model_path,
    parser_of,
    suture,
)
from harness.tables import percentile, print_table, show_progress
from harness.texts import long_text

LONG_BYTES = 3_900  # about 900 tokens of Python
N_GENERATED = 512
INTO_PROMPT_S = 1.0
INTO_DECODE_S = 2.0
N_EVENTS = 3

SHORT = "# request {n:04d}\ndef area(width: float, height: float) -> float:\n    return"
WARM = "# request {n:04d}\ndef double(x: int) -> int:\n    return"

Leave = Callable[[Server, int], None]
"""Asks something of a server and leaves; the number makes the prompt one of its own."""


def main() -> None:
    parser = parser_of(__doc__, 20, "tries of ours in each phase")
    parser.add_argument("--n-theirs", type=int, default=4, metavar="N", help="of llama-server")
    args = parser.parse_args()
    path = model_path(args.model)
    with contextlib.ExitStack() as stack:
        ours = suture(path, "--parallel", "1", "--layout", "psm", *EQUAL_WINDOWS)
        tries = {stack.enter_context(ours): args.n}
        if args.llama_server is not None:
            theirs = llama_server(args.llama_server, path, *AS_FOR_LLAMA_VIM)
            tries[stack.enter_context(theirs)] = args.n_theirs
        measured = Measured(tries)
        measured.run()
    show_progress("")
    print(f"{path.name}, one request at a time")
    columns = ("the client left in", "server", "tries", "alone: p50, s", "p95, s")
    print_table((*columns, "extra wait: p50, s", "p95, s", "longest, s"), measured.rows())


class Measured:
    """Waits in seconds: alone by server, after a client left by phase and server."""

    def __init__(self, tries: dict[Server, int]) -> None:
        self._tries = tries
        self._alone: dict[Server, list[float]] = {server: [] for server in tries}
        self._waits: dict[tuple[str, Server], list[float]] = {}
        self._numbers = itertools.count()

    def run(self) -> None:
        n_most = max(self._tries.values())
        for server in self._tries:
            _ask_short(server, next(self._numbers))
        for turn in range(n_most):
            for phase, leave in PHASES.items():
                for server, n_tries in self._tries.items():
                    # Fewer tries are spread over the run.
                    if turn * n_tries // n_most != (turn + 1) * n_tries // n_most:
                        show_progress(f"{turn + 1} of {n_most}: {phase}, {server.name}")
                        self._try(server, phase, leave)
            self._supersede(next(iter(self._tries)))

    def _try(self, server: Server, phase: str, leave: Leave) -> None:
        self._alone[server].append(_ask_short(server, next(self._numbers)))
        leave(server, next(self._numbers))
        wait = _ask_short(server, next(self._numbers))
        self._waits.setdefault((phase, server), []).append(wait)

    def _supersede(self, ours: Server) -> None:
        """The long prompt's client stays, and is told that it was superseded."""
        number = next(self._numbers)
        with _asking(ours, _long_prompt(number), True, session="cursor", seq=number):
            time.sleep(INTO_PROMPT_S)
            number = next(self._numbers)
            wait = _ask_short(ours, number, session="cursor", seq=number)
        self._waits.setdefault(("superseded in prompt", ours), []).append(wait)

    def rows(self) -> list[tuple[object, ...]]:
        rows = []
        for (phase, server), waits in self._waits.items():
            alone = self._alone[server]
            extra = [wait - statistics.median(alone) for wait in waits]
            shown = [
                percentile(values, percent) for values in (alone, extra) for percent in (50, 95)
            ]
            cells = (f"{seconds:.3f}" for seconds in (*shown, max(extra)))
            rows.append((phase, server.name, len(waits), *cells))
        return rows


def _ask_short(server: Server, number: int, **fields: object) -> float:
    """Seconds until one token after a short prompt is there."""
    return server.ask(SHORT.format(n=number), "\n", 1, **fields).total_ms / 1e3


def _long_prompt(number: int) -> str:
    return f"# try {number}\n{long_text(LONG_BYTES)}"


@contextlib.contextmanager
def _asking(
    server: Server, prefix: str, streamed: bool, **fields: object
) -> Iterator[socket.socket]:
    """A request is sent; at the end its client leaves, whatever has come by then."""
    body = server.body(prefix, "\n", N_GENERATED, **{"ignore_eos": True, **fields})
    data = json.dumps(body | {"stream": streamed}).encode()
    host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
    head = f"POST /infill HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((str(host), int(port or 0))) as connection:
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        yield connection


def _in_prompt(streamed: bool) -> Leave:
    def leave(server: Server, number: int) -> None:
        with _asking(server, _long_prompt(number), streamed):
            time.sleep(INTO_PROMPT_S)

    return leave


def _in_decode_streamed(server: Server, number: int) -> None:
    with _asking(server, WARM.format(n=number), True) as connection:
        seen = b""
        while seen.count(b"data: ") < N_EVENTS:
            seen += connection.recv(65536)


def _in_decode(server: Server, number: int) -> None:
    with _asking(server, WARM.format(n=number), False):
        time.sleep(INTO_DECODE_S)


def _queued(server: Server, number: int) -> None:
    with _asking(server, WARM.format(n=number), True) as running:
        running.recv(65536)
        with _asking(server, _long_prompt(number), True):
            time.sleep(INTO_PROMPT_S / 2)


PHASES: dict[str, Leave] = {
    "prompt, streamed": _in_prompt(True),
    "prompt, not streamed": _in_prompt(False),
    "decode, streamed": _in_decode_streamed,
    "decode, not streamed": _in_decode,
    "queue": _queued,
}


if __name__ == "__main__":
    main()
