"""In editors: from a key to ghost text, what typing costs a server, and what the bridge costs.

    python benchmarks/editors.py                                                       10 minutes
    python benchmarks/editors.py --llama-server PATH --llama-vim DIR                   15 minutes
    python benchmarks/editors.py --parts bridge                                        half a minute

Three parts:

1. *keys*: a document is opened whose text the server has not seen, and a comment is begun at its
   end, each key as soon as the ghost text of the one before has been looked at for a moment. The
   first key is *cold*: all of the prompt is read for it. At the others the prefix is *warm*. Then
   one *types what is shown*, for which nothing is asked. Through `suture lsp` alone, whose client
   says that it is VS Code, as one that is shown all of a text at once, and as one that can be told
   that a text has grown; and through Neovim with our plugin, up to when the screen is drawn. The
   waits for the next key (the bridge's debounce) are in it. `--small-model` answers, left to right.
2. *typing*: twenty lines are typed into real files at a steady pace, and nothing is accepted: what
   the server was asked and how many prompt tokens it evaluated, by its own `/metrics`, healing and
   reading in pauses included, and also for requests that were given up. Our plugin, bridge and
   server are measured as they are by themselves, and with prompts that are not cut for speed, as
   llama-server's are not. Beside it llama.vim with llama-server, both as their documentation has
   them: the same file, keys, pace and model. `ghosts` counts the keys at which something was shown
   before the next one.
3. *bridge*: from the start of `suture lsp` to its reply to `initialize`; its memory then, and with
   twenty files open, a completion asked in each; the size of VS Code's extension, where it is
   built.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.counters import Counters, counters_of, wait_idle
from harness.counting_proxy import counting
from harness.front_ends import FrontEnd, Ghost, Typing, Waits, keys_of, typings
from harness.language_client import language_client
from harness.memory import memory_of
from harness.neovim import Neovim, Plugin, llama_vim, neovim, suture_nvim
from harness.servers import (
    AS_FOR_LLAMA_VIM,
    EQUAL_WINDOWS,
    Server,
    llama_server,
    model_path,
    parser_of,
    suture,
)
from harness.tables import print_table, show_progress
from harness.texts import ROOT, source_files, source_pieces

sys.path.insert(0, str(ROOT / "tests"))

from support.neovim import NVIM

PARTS = ("keys", "typing", "bridge")
N_BYTES = 2_000
# Which no model foresees; and how many keys are typed of what is shown.
COMMENT = "# Measured"
N_KNOWN_KEYS = 5
LOOK_S = 0.3
PAUSE_S = 1.0
N_BEFORE, N_AFTER = 40, 60
N_STARTS = 5
N_FILES = 20
MIB = 2**20


def main() -> None:
    parser = parser_of(__doc__, 10, "documents of the first part")
    parser.add_argument("--llama-vim", type=Path, metavar="DIR", help="with llama-server")
    parser.add_argument("--small-model", default="smollm2-135m", metavar="NAME|PATH")
    parser.add_argument("--ms-a-key", type=float, default=150.0, metavar="MS")
    parser.add_argument("--lines", type=int, default=7, metavar="N", help="typed in each file")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    if NVIM is None:
        parser.error("there is no nvim")
    print(f"load average at the start: {os.getloadavg()[0]:.1f}")
    if "keys" in args.parts:
        report_keys(args, NVIM)
    if "typing" in args.parts:
        report_typing(args, NVIM)
    if "bridge" in args.parts:
        report_bridge(args)


def report_keys(args: argparse.Namespace, program: str) -> None:
    path = model_path(args.small_model)
    rows: list[tuple[object, ...]] = []
    with suture(path) as server:
        for front_end in front_ends(server.url, program):
            for what, waits in waits_of(front_end, args.n).items():
                rows.append((front_end.name, what, *waits.cells()))
    show_progress("")
    print(f"\n{path.name}, documents of {N_BYTES} bytes")
    columns = ("through", "key", "keys", "nothing shown", "to ghost, ms: p50", "p95", "mean")
    print_table(columns, rows)


def front_ends(url: str, program: str) -> Iterator[FrontEnd]:
    """One after the other, each while the next is not there yet."""
    for knows in ((), ("suture/didGrow",)):
        with language_client(url, knows) as client:
            yield client
    with neovim(program, suture_nvim(url)) as editor:
        yield editor


def waits_of(front_end: FrontEnd, n_documents: int) -> dict[str, Waits]:
    found = {kind: Waits([]) for kind in ("cold", "warm", "typing what is shown")}
    # Another first line for each of them: no text is that of an earlier one, nor begins so.
    pieces = (f"# {front_end.name}, {n}\n{text}" for n, text in enumerate(source_pieces(N_BYTES)))
    for n, piece in zip(range(n_documents), pieces, strict=False):
        show_progress(f"{front_end.name}: document {n + 1} of {n_documents}")
        # A model that fills no holes completes where nothing follows.
        front_end.open(f"{piece.rstrip()}  ", "")
        ghost = None
        for key in keys_of(COMMENT):
            is_first = key == COMMENT[0]
            ghost = front_end.press(key)
            is_known = ghost is not None and ghost.is_rest
            found["cold" if is_first else "typing what is shown" if is_known else "warm"].add(ghost)
            time.sleep(LOOK_S)
        for key in keys_of(ghost.text if ghost is not None else "")[:N_KNOWN_KEYS]:
            found["typing what is shown"].add(front_end.press(key))
            time.sleep(LOOK_S)
    return found


def report_typing(args: argparse.Namespace, program: str) -> None:
    path = model_path(args.model)
    typed = typings(args.lines, N_BEFORE, N_AFTER)
    typist = Typist(program, typed, args.ms_a_key)
    with suture(path) as server:
        typist.type("suture", server, suture_nvim)
    with suture(path, *EQUAL_WINDOWS) as server:
        typist.type("suture, prompts not cut", server, suture_nvim)
    if args.llama_server is not None and args.llama_vim is not None:
        with llama_server(args.llama_server, path, "--metrics", *AS_FOR_LLAMA_VIM) as server:
            typist.type("llama-server", server, lambda url: llama_vim(args.llama_vim, url))
    show_progress("")
    n_lines, n_keys = typist.n_lines, sum(len(one.keys) for one in typed)
    print(f"\n{path.name}: {n_lines} lines, {n_keys} keys, {args.ms_a_key:.0f} ms each")
    columns = ("plugin", "server", "requests a line", "prompt tokens evaluated a line")
    more = ("tokens generated a line", "ghosts", "to ghost, ms: p50", "p95")
    print_table((*columns, *more), typist.rows)


class Typist:
    """Types the same in each editor. `rows` are what it cost."""

    def __init__(self, program: str, typed: list[Typing], ms_a_key: float) -> None:
        self._program = program
        self._typed = typed
        self._ms_a_key = ms_a_key
        self.n_lines = sum(one.n_lines for one in typed)
        self.rows: list[tuple[object, ...]] = []

    def type(self, name: str, server: Server, plugin_at: Callable[[str], Plugin]) -> None:
        waits = Waits([])
        with counting(server.url) as proxy, contextlib.ExitStack() as stack:
            plugin = plugin_at(proxy.url)
            editor = stack.enter_context(neovim(self._program, plugin))
            before = counters_of(server.url)
            for one in self._typed:
                show_progress(f"{plugin.name}, {name}: {one.name}")
                for ghost in self._type_in(editor, one):
                    waits.add(ghost)
            wait_idle(server.url)
            cost = counters_of(server.url) - before
            self._add(plugin.name, name, proxy.n_requests, cost, waits)

    def _type_in(self, editor: Neovim, one: Typing) -> list[Ghost | None]:
        editor.open(one.before, one.after)
        ghosts = editor.type(one.keys, self._ms_a_key, PAUSE_S)
        whole = (one.before + one.typed + one.after).removesuffix("\n")
        if editor.text != whole:
            raise SystemExit(f"{editor.name} has {editor.text!r}, not {whole!r}: {editor.messages}")
        return ghosts

    def _add(self, plugin: str, name: str, n: int, cost: Counters, waits: Waits) -> None:
        n_keys, n_nothing, p50, p95, _ = waits.cells()
        n_shown = int(n_keys) - int(n_nothing)
        each = (f"{total / self.n_lines:.1f}" for total in (n, cost.n_evaluated, cost.n_generated))
        self.rows.append((plugin, name, *each, f"{n_shown} of {n_keys} keys", p50, p95))


def report_bridge(args: argparse.Namespace) -> None:
    path = model_path(args.small_model)
    starts, after_start, after_files = [], [], []
    with suture(path) as server:
        for n in range(N_STARTS):
            show_progress(f"start {n + 1} of {N_STARTS}")
            with language_client(server.url) as client:
                starts.append(client.started_ms)
                after_start.append(memory_of(client.pid).rss_mb)
                if n == N_STARTS - 1:
                    for file in source_files()[:N_FILES]:
                        client.open(file.read_text("utf-8").rstrip(), "")
                        client.complete()
                    after_files.append(memory_of(client.pid).rss_mb)
    show_progress("")
    rows = [
        (f"start to initialize, ms: median and longest of {N_STARTS}", spread_of(starts)),
        ("resident after initialize, MB", f"{statistics.median(after_start):.0f}"),
        (f"resident with {N_FILES} files completed in, MB", f"{after_files[0]:.0f}"),
        ("VS Code's extension (.vsix), MB", vsix_size()),
    ]
    print_table(("the bridge", ""), rows)


def spread_of(values: list[float]) -> str:
    return f"{statistics.median(values):.0f}, {max(values):.0f}"


def vsix_size() -> str:
    built = sorted(
        (ROOT / "editor-clients/vscode").glob("*.vsix"), key=lambda one: one.stat().st_mtime
    )
    return f"{built[-1].stat().st_size / MIB:.3f}" if built else "not built"


if __name__ == "__main__":
    main()
