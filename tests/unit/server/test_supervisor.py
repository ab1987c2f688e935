from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from suture.server.errors import SetupError
from suture.server.news import News
from suture.server.supervisor import Plain, Spawn, Supervisor, Worker

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Child:
    """A process as a worker; each line that it prints tells that it is ready."""

    process: Process
    grace_s: float = 60.0
    asked: threading.Event = field(default_factory=threading.Event)

    @property
    def news(self) -> Iterator[News]:
        assert self.process.stdout is not None
        for _ in self.process.stdout:
            yield News("ready", "toy", "cpu", "http://127.0.0.1:1")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.asked.set()

    def leave(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait()


def running(
    code: str,
    started: list[Process],
    *fds: int,
    grace_s: float = 60.0,
    asked: threading.Event | None = None,
) -> Spawn:
    """Starts `python -c code` each time, and notes it; `asked` is set once one is to end."""

    def spawn(follows: bool) -> Child:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, pass_fds=fds
        )
        started.append(process)
        return Child(process, grace_s, asked or threading.Event())

    return spawn


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
def test_s1_a_worker_that_keeps_dying_is_restarted_and_then_given_up(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    started: list[Process] = []
    code = f"import os; os.kill(os.getpid(), {int(number)})"
    assert Supervisor(running(code, started), pauses_s=(0.0, 0.0)).run() == 3
    assert [process.returncode for process in started] == [-number] * 3
    said = capfd.readouterr().err.splitlines()
    assert said[0] == f"suture: the worker died of {number.name}: starting it again"
    assert said[-1] == f"suture: the worker died of {number.name} 3 times in a row: giving up"


def test_s1_deaths_far_apart_do_not_add_up() -> None:
    started: list[Process] = []
    marks = ["import sys; sys.exit(7)"] * 4 + ["import sys; sys.exit(0)"]

    def spawn(follows: bool) -> Worker:
        return running(marks[len(started)], started)(follows)

    assert Supervisor(spawn, pauses_s=(0.0,), soon_s=0.0).run() == 0
    assert len(started) == 5


@pytest.mark.parametrize("status", [0, 2])
def test_s2_an_end_that_would_come_again_is_passed_on(status: int) -> None:
    started: list[Process] = []
    assert Supervisor(running(f"import sys; sys.exit({status})", started)).run() == status
    assert len(started) == 1


def stop_when_ready(
    mark: Path, number: signal.Signals, again_after: threading.Event | None = None
) -> None:
    """Signals once `mark` is there, and a second time after an event."""

    def send() -> None:
        while not mark.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)
        # Two at once would be one.
        if again_after is not None and again_after.wait(30):
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


WORKER = """
import pathlib, signal, sys, time
def drain(*_):
    pathlib.Path({mark!r} + ".drained").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, {handler})
pathlib.Path({mark!r}).touch()
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_s3_a_signal_lets_the_worker_drain(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    mark = tmp_path / "ready"
    code = WORKER.format(mark=str(mark), handler="drain")
    before = signal.getsignal(number)
    stop_when_ready(mark, number)
    started: list[Process] = []
    assert Supervisor(running(code, started)).run() == status
    assert (tmp_path / "ready.drained").exists() and len(started) == 1
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("twice", "grace_s"), [(False, 0.2), (True, 600.0)])
def test_s3_a_worker_that_does_not_end_is_killed(
    tmp_path: Path, twice: bool, grace_s: float
) -> None:
    mark = tmp_path / "ready"
    code = WORKER.format(mark=str(mark), handler="signal.SIG_IGN")
    asked = threading.Event()
    stop_when_ready(mark, signal.SIGTERM, asked if twice else None)
    started: list[Process] = []
    assert Supervisor(running(code, started, grace_s=grace_s, asked=asked)).run() == 0
    assert started[0].returncode == -signal.SIGKILL


def test_s3_a_signal_between_two_workers_starts_no_other(tmp_path: Path) -> None:
    mark = tmp_path / "ready"
    stop_when_ready(mark, signal.SIGTERM)
    started: list[Process] = []
    code = f"import pathlib, sys; pathlib.Path({str(mark)!r}).touch(); sys.exit(9)"
    assert Supervisor(running(code, started), pauses_s=(30.0,)).run() == 0
    assert len(started) == 1


def test_a_client_that_connects_between_two_workers_is_served_by_the_next(tmp_path: Path) -> None:
    mark = tmp_path / "crashed"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        code = (
            "import os, pathlib, socket\n"
            f"listener = socket.socket(fileno={listener.fileno()})\n"
            f"mark = pathlib.Path({str(mark)!r})\n"
            "if not mark.exists():\n    mark.touch()\n    os.abort()\n"
            "listener.accept()[0].sendall(b'served')\n"
        )
        answers: list[bytes] = []

        def ask() -> None:
            with socket.create_connection(listener.getsockname(), timeout=20) as connection:
                answers.append(connection.recv(100))

        client = threading.Thread(target=ask)
        client.start()
        supervisor = Supervisor(running(code, [], listener.fileno()), pauses_s=(0.3,))
        assert supervisor.run() == 0
        client.join()
    assert answers == [b"served"]


SERVES = """
import os, signal, time
from pathlib import Path
def leave(*_):
    Path({mark!r} + ".left").touch()
    os._exit(0)
signal.signal(signal.SIGHUP, leave)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
Path({mark!r}).touch()
print(flush=True)
while True:
    time.sleep(0.05)
"""


def hang_up_when(mark: Path, then: Path) -> None:
    """SIGHUP once `mark` is there, SIGTERM once `then` is."""
    stop_when_ready(mark, signal.SIGHUP)
    stop_when_ready(then, signal.SIGTERM)


def test_s4_on_sighup_the_one_who_serves_leaves_once_another_one_serves(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    hang_up_when(first, tmp_path / "first.left")
    started: list[Process] = []
    followed: list[bool] = []

    def renew() -> Spawn:
        assert not (tmp_path / "first.left").exists()

        def spawn(follows: bool) -> Worker:
            followed.append(follows)
            return running(SERVES.format(mark=str(second)), started)(follows)

        return spawn

    supervisor = Supervisor(running(SERVES.format(mark=str(first)), started), renew)
    assert supervisor.run() == 0
    assert [process.wait() for process in started] == [0, 0]
    assert followed == [True]
    assert second.exists() and not (tmp_path / "second.left").exists()


@pytest.mark.parametrize("end", ["os._exit(2)", "os.abort()"])
def test_s4_where_the_other_one_does_not_come_up_the_first_goes_on(
    tmp_path: Path, end: str, capfd: pytest.CaptureFixture[str]
) -> None:
    first, tried = tmp_path / "first", tmp_path / "tried"
    hang_up_when(first, tried)
    started: list[Process] = []
    code = f"import os, pathlib; pathlib.Path({str(tried)!r}).touch(); {end}"
    spawn = running(SERVES.format(mark=str(first)), started)
    assert Supervisor(spawn, lambda: running(code, started)).run() == 0
    assert started[0].returncode == 0 and not (tmp_path / "first.left").exists()
    assert len(started) == 2


def test_s4_settings_that_are_wrong_change_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, asked = tmp_path / "first", tmp_path / "asked"
    hang_up_when(first, asked)
    started: list[Process] = []

    def renew() -> Spawn:
        asked.touch()
        raise SetupError("config.toml: unknown key")

    assert Supervisor(running(SERVES.format(mark=str(first)), started), renew).run() == 0
    said = "suture: config.toml: unknown key: the worker goes on as it was\n"
    assert capfd.readouterr().err == said
    assert len(started) == 1


def test_s4_whoever_dies_later_is_started_again_with_the_new_settings(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    stop_when_ready(first, signal.SIGHUP)
    stop_when_ready(again, signal.SIGTERM)
    started: list[Process] = []

    def renew() -> Spawn:
        # The second one dies as soon as it serves, the third one does not.
        dies = "import os; print(flush=True); os.abort()"
        lives = SERVES.format(mark=str(again))
        return lambda follows: running(dies if follows else lives, started)(follows)

    spawn = running(SERVES.format(mark=str(first)), started)
    assert Supervisor(spawn, renew, pauses_s=(0.0,)).run() == 0
    assert len(started) == 3


LOADS = """
import os, time
from pathlib import Path
Path({mark!r}).touch()
while not Path({go!r}).exists():
    time.sleep(0.01)
{end}
"""


def test_s4_a_sighup_while_the_other_one_loads_is_heeded_though_it_dies(tmp_path: Path) -> None:
    first, loads, go, third = (tmp_path / name for name in ("first", "loads", "go", "third"))
    stop_when_ready(first, signal.SIGHUP)
    stop_when_ready(loads, signal.SIGHUP)
    stop_when_ready(third, signal.SIGTERM)
    started: list[Process] = []
    dies = LOADS.format(mark=str(loads), go=str(go), end="os._exit(2)")
    codes = [dies, SERVES.format(mark=str(third))]

    class Watched(Supervisor):
        def _on_signal(self, number: int) -> int | None:
            status = super()._on_signal(number)
            signals.append(number)
            if len(signals) == 2:  # while the second worker loads
                go.touch()
            return status

    signals: list[int] = []
    spawn = running(SERVES.format(mark=str(first)), started)
    assert Watched(spawn, lambda: running(codes.pop(0), started)).run() == 0
    assert third.exists() and len(started) == 3


def test_s4_where_both_die_one_with_the_settings_before_is_started(tmp_path: Path) -> None:
    first, loads, go, again = (tmp_path / name for name in ("first", "loads", "go", "again"))
    stop_when_ready(first, signal.SIGHUP)
    stop_when_ready(again, signal.SIGTERM)
    started: list[Process] = []
    dies = f"print(flush=True)\n{LOADS.format(mark=str(first), go=str(loads), end='os.abort()')}"
    codes = [dies, SERVES.format(mark=str(again))]

    class Told(Plain):
        def say(self, line: str) -> None:
            if line.endswith("the new one takes its place"):
                go.touch()

    def renew() -> Spawn:
        wrong = LOADS.format(mark=str(loads), go=str(go), end="os._exit(2)")
        return running(wrong, started)

    def spawn(follows: bool) -> Worker:
        return running(codes.pop(0), started)(follows)

    assert Supervisor(spawn, renew, Told(), pauses_s=(0.0,)).run() == 0
    assert [process.wait() for process in started] == [-signal.SIGABRT, 2, 0]
