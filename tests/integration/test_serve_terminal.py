"""What `suture serve` shows at a terminal, on a pseudo-terminal; and what where there is none."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from support.http_server import client

TESTS = Path(__file__).parents[1]
SERVE = (sys.executable, str(TESTS / "support" / "fake_serve.py"))


def environ(**more: str) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)]),
        "XDG_CONFIG_HOME": "/nonexistent",
        **more,
    }


@dataclass
class Terminal:
    """A terminal of one width, and what has come to it."""

    fd: int
    process: subprocess.Popen[bytes]
    written: bytes = b""
    lines: list[str] = field(default_factory=lambda: [""])

    def read(self, seconds: float = 0.1) -> bool:
        """Take what comes within the time; False at its end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            some = os.read(self.fd, 65536)
        except OSError:  # all of the other side is closed
            return False
        self.written += some
        return some != b""

    def until(self, is_so: Callable[[Terminal], bool], seconds: float = 20) -> None:
        ends = time.monotonic() + seconds
        while not is_so(self):
            assert time.monotonic() < ends and self.read(), self.screen()
        return

    def screen(self) -> list[str]:
        """The lines that one sees: written text, line feeds, returns and clearing to the end."""
        lines, column = [""], 0
        parts = re.split(r"(\r\n|\n|\r|\x1b\[K)", self.written.decode())
        for part in parts:
            if part in ("\n", "\r\n"):
                lines.append("")
                column = 0
            elif part == "\r":
                column = 0
            elif part == "\x1b[K":
                lines[-1] = lines[-1][:column]
            else:
                assert "\x1b" not in part
                lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part) :]
                column += len(part)
        return lines

    @property
    def last(self) -> str:
        return self.screen()[-1]

    @property
    def url(self) -> str:
        """Where the server listens, as it says itself: soon after its status line may be there."""
        said = re.compile(rb"listening on (http://\S+)\r\n")
        self.until(lambda shown: said.search(shown.written) is not None)
        listening = said.search(self.written)
        assert listening is not None
        return listening[1].decode()


@contextmanager
def at_terminal(kind: str = "", columns: int = 120, **variables: str) -> Iterator[Terminal]:
    """`suture serve` in the foreground of a terminal of its own."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, str(TESTS / "support" / "in_terminal.py"), *SERVE, kind, "--port", "0"],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env=environ(**({"TERM": "xterm-256color"} | variables)),
    ) as process:
        os.close(its)
        try:
            yield Terminal(ours, process)
        finally:
            process.kill()
            os.close(ours)


def test_one_line_is_rewritten_and_what_is_said_stands_above_it() -> None:
    with at_terminal("slow") as terminal:
        terminal.until(lambda shown: shown.last.startswith("loading toy, "))
        url = terminal.url
        idle = f"toy on cpu, {url}, 0 running, 0 served; Ctrl-C stops"
        terminal.until(lambda shown: shown.last == idle)
        with client(url) as http:
            assert http.get("/health").status_code == 200
            with pytest.raises(httpx2.RemoteProtocolError):
                http.post("/infill", json={"input_prefix": "crash", "input_suffix": ""})
            terminal.until(lambda shown: shown.screen().count(f"listening on {url}") == 2)
        terminal.until(lambda shown: shown.last.endswith("; Ctrl-C stops"))
        os.write(terminal.fd, b"\x03")
        while terminal.read():
            pass
        assert terminal.process.wait(timeout=20) == 130
        *said, last = terminal.screen()
        # Nothing is left of the line where the shell goes on.
        assert last == ""
        assert said[:2] == ["started", f"listening on {url}"]
        assert "suture: the worker died of SIGABRT: starting it again" in said
        assert any(line.startswith("Fatal Python error: Aborted") for line in said)
        assert said[-1] == "closed" and not any("Ctrl-C" in line for line in said)


def test_while_nothing_happens_the_parent_sleeps() -> None:
    def wakes() -> int:
        status = Path(f"/proc/{terminal.process.pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    with at_terminal() as terminal:
        terminal.until(lambda shown: shown.last.endswith("; Ctrl-C stops"))
        time.sleep(0.3)
        before = wakes()
        time.sleep(2)
        assert wakes() - before <= 2


def test_a_narrow_terminal_gets_one_line_too() -> None:
    with at_terminal(columns=30) as terminal:
        terminal.until(lambda shown: shown.last == "toy, 0 running")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_dumb_terminal_gets_plain_lines(term: str) -> None:
    with at_terminal(TERM=term) as terminal:
        terminal.until(lambda shown: "listening on http" in shown.written.decode())
        time.sleep(0.3)
        terminal.read()
        assert b"\x1b" not in terminal.written and b"Ctrl-C" not in terminal.written


def test_a_terminal_that_is_closed_ends_the_server() -> None:
    with at_terminal() as terminal:
        terminal.until(lambda shown: shown.last.endswith("; Ctrl-C stops"))
        with client(terminal.url) as http:
            worker = http.get("/v1/status").json()["pid"]
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.process.wait(timeout=20) == -signal.SIGHUP
        ends = time.monotonic() + 10
        while Path(f"/proc/{worker}").exists() and time.monotonic() < ends:
            time.sleep(0.05)
        assert not Path(f"/proc/{worker}").exists()


def test_without_a_terminal_there_are_plain_lines_each_on_its_own_stream() -> None:
    with subprocess.Popen(
        [*SERVE, "", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=environ(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening on http://127.0.0.1:")
        process.terminate()
        out, errors = process.communicate(timeout=20)
    assert (out, errors) == (b"", b"started\nclosed\n")
