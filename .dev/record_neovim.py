"""Records Neovim with our plugin and a real model, as text that `asciinema play` shows.

    python .dev/record_neovim.py [--model NAME|PATH]        a minute, and docs/images/neovim.cast

A real Neovim runs in a terminal of its own, somebody types at human speed, and what Neovim writes
to the terminal is kept with its times (asciicast v2). Nothing is cut or sped up; players shorten
pauses to `idle_time_limit`. What Neovim asks of the terminal is left out: a terminal that plays it
would answer, into the shell.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import fcntl
import importlib
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parent.parent
CAST = ROOT / "docs" / "images" / "neovim.cast"
PLUGIN = ROOT / "editor-clients" / "nvim"
WIDTH, HEIGHT = 80, 22
# Players wait no longer than that for the next thing to happen.
IDLE_LIMIT_S = 2.0
KEY_S = 0.11
LOOK_S = 1.6
# The model runs on any machine.
PATIENCE_S = 120.0
GHOSTS = "suture"

FILE = "shapes.py"
TEXT = '''"""Plane shapes."""

import math


class Circle:
    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return math.pi * self.radius**2

'''

# Requests to the terminal: attributes, states, colours, keyboards, sizes and names.
QUERIES = re.compile(
    r"\x1b\[[>=]?0?c|\x1b\[[56]n|\x1b\[\?\d+\$p|\x1b\[\?u|\x1b\[>0?q|\x1b\[\d*t"
    r"|\x1b\]\d+;(?:[^\x07\x1b]*;)?\?(?:\x07|\x1b\\)|\x1bP[+$]q[^\x1b]*\x1b\\"
)
# What Neovim waits for before it draws, and the answer of a terminal.
STATUS_QUERY, STATUS = b"\x1b[5n", b"\x1b[0n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", metavar="NAME|PATH", help="the default one of models.txt")
    parser.add_argument("--nvim", default="nvim", metavar="PATH")
    args = parser.parse_args()
    with serving(args.model) as url, tempfile.TemporaryDirectory() as folder:
        recording = record(args.nvim, url, Path(folder))
    CAST.write_text(recording.text(), "utf-8")
    print(f"{CAST.relative_to(ROOT)}: {CAST.stat().st_size / 1000:.0f} kB, {recording.now():.0f} s")


@contextlib.contextmanager
def serving(model: str | None) -> Iterator[str]:
    """The URL of our server, whose model is loaded."""
    named = ["--model", model] if model else []
    command = [sys.executable, "-m", "suture.server", "serve", "--port", "0", *named]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None:
                raise SystemExit("the server did not come up")
            wait_for(lambda: httpx2.get(f"{found[0]}/health").status_code == 200, "the model")
            yield found[0]
        finally:
            process.terminate()


def record(program: str, url: str, folder: Path) -> Recording:
    (folder / FILE).write_text(TEXT)
    (folder / "init.lua").write_text(init_lua(url))
    recording = Recording()
    with in_terminal(program, folder, recording) as terminal:
        with contextlib.closing(terminal.attach()) as editor:
            wait_for(lambda: bool(editor.exec_lua(_IS_READY)), "the language server")
            Scene(terminal, editor, recording).play()
    return recording


def init_lua(url: str) -> str:
    command = json.dumps([sys.executable, "-m", "suture.server", "lsp", "--server", url])
    return f"""
vim.o.swapfile, vim.o.mouse, vim.o.showcmd, vim.o.background = false, "", false, "dark"
vim.opt.shortmess:append("I")
vim.o.autoindent = false
vim.cmd("filetype indent off")
vim.opt.runtimepath:prepend("{PLUGIN}")
require("suture").setup({{ cmd = vim.json.decode([==[{command}]==]) }})
"""


_IS_READY = "return (vim.lsp.get_clients({ name = 'suture' })[1] or {}).initialized or false"
_GHOST = f"""
local text = ""
local space = vim.api.nvim_get_namespaces()["{GHOSTS}"]
local marks = space and vim.api.nvim_buf_get_extmarks(0, space, 0, -1, {{ details = true }}) or {{}}
for _, mark in ipairs(marks) do
  for _, part in ipairs(mark[4].virt_text or {{}}) do text = text .. part[1] end
  for _, line in ipairs(mark[4].virt_lines or {{}}) do
    for _, part in ipairs(line) do text = text .. part[1] end
  end
end
return text
"""


class Scene:
    """What is typed, and when."""

    def __init__(self, terminal: Terminal, editor: Any, recording: Recording) -> None:
        self._terminal = terminal
        self._editor = editor
        self._recording = recording
        self._random = random.Random(0)

    def play(self) -> None:
        self._press("G", "o")
        self._type("    def circum")
        self._see("from the middle of a word")
        self._accept("\t")
        self._accept_body("what follows")
        self._type("\r\r    def diam")
        self._see("the next method")
        self._accept("\x1bw")
        self._accept("\x1bw")
        self._see("two words of it accepted")
        self._accept("\t")
        self._accept_body("the last line")
        self._press("\x1b")
        self._type(":w\r")
        wait_for(lambda: not self._editor.exec_lua("return vim.bo.modified"), "the file")
        time.sleep(LOOK_S)
        self._recording.mark("saved")

    def _accept_body(self, what: str) -> None:
        """A model that had no time for a method's body has it by now."""
        if "return" not in self._editor.current.line:
            self._see(what)
            self._accept("\t")

    def _accept(self, key: str) -> None:
        before = list(self._editor.current.buffer[:])
        self._press(key)
        wait_for(lambda: list(self._editor.current.buffer[:]) != before, "what was accepted")

    def _type(self, text: str) -> None:
        for character in text:
            self._terminal.write(character)
            time.sleep(KEY_S * self._random.uniform(0.6, 1.6))

    def _press(self, *keys: str) -> None:
        for key in keys:
            self._terminal.write(key)
            time.sleep(2 * KEY_S)

    def _see(self, what: str) -> None:
        """Wait until a suggestion is shown, and look at it."""
        wait_for(lambda: bool(self._editor.exec_lua(_GHOST).strip()), "a suggestion")
        time.sleep(LOOK_S)
        self._recording.mark(what)


@dataclass
class Recording:
    """What was written to a terminal, and marks, with their times."""

    events: list[tuple[float, str, str]] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)
    _decode: Any = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")())

    def now(self) -> float:
        return time.monotonic() - self._started

    def write(self, data: bytes) -> None:
        self.events.append((self.now(), "o", self._decode.decode(data)))

    def mark(self, label: str) -> None:
        self.events.append((self.now(), "m", label))

    def text(self) -> str:
        """As asciinema keeps it, without what was asked of the terminal."""
        header = {
            "version": 2,
            "width": WIDTH,
            "height": HEIGHT,
            "idle_time_limit": IDLE_LIMIT_S,
            "title": "Suture in Neovim",
            "env": {"TERM": "xterm-256color"},
        }
        lines = [json.dumps(header)]
        for at, kind, text in self.events:
            shown = QUERIES.sub("", text) if kind == "o" else text
            if shown:
                lines.append(json.dumps([round(at, 3), kind, shown], ensure_ascii=False))
        return "\n".join(lines) + "\n"


class Terminal:
    """One that a program runs in, whose output is recorded as it comes."""

    def __init__(self, fd: int, socket: Path, recording: Recording) -> None:
        self._fd = fd
        self._socket = socket
        self._recording = recording
        self._ends = False
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def write(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def attach(self) -> Any:
        """The program, for questions that nobody sees."""
        pynvim: Any = importlib.import_module("pynvim")
        wait_for(self._socket.exists, "Neovim")
        return pynvim.attach("socket", path=str(self._socket))

    def close(self) -> None:
        self._ends = True
        self._reading.join()

    def _read(self) -> None:
        while not self._ends:
            readable, _, _ = select.select([self._fd], [], [], 0.02)
            if not readable:
                continue
            with contextlib.suppress(OSError):
                # What comes in pieces is one event: a character or a code may be cut.
                time.sleep(0.005)
                data = os.read(self._fd, 2**16)
                if STATUS_QUERY in data:
                    os.write(self._fd, STATUS)
                self._recording.write(data)


@contextlib.contextmanager
def in_terminal(program: str, folder: Path, recording: Recording) -> Iterator[Terminal]:
    """Neovim with the file, until the block ends; nothing of its end is recorded."""
    names = [f"XDG_{name}_HOME" for name in ("CACHE", "CONFIG", "DATA", "STATE")]
    environ = os.environ | dict.fromkeys((*names, "SUTURE_CACHE"), str(folder / ".home"))
    environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    socket = folder / "socket"
    argv = [program, "--clean", "-n", "-u", "init.lua", "--listen", str(socket), FILE]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(program, argv, environ)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    terminal = Terminal(fd, socket, recording)
    try:
        yield terminal
    finally:
        terminal.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def wait_for(holds: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(httpx2.TransportError):
            if holds():
                return
        if time.monotonic() > give_up:
            raise SystemExit(f"{what} did not come")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
