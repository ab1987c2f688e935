"""One server for all editors: found, or started once; what is gone says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.fake_completer import FakeCompleter
from support.http_server import serving
from suture.lsp.http_client import Address, ServerClient, Unanswered
from suture.lsp.launch import Folder, Presence, find_or_start, hold, is_held, locate
from suture.lsp.settings import ServerOptions
from suture.lsp.shared_server import end_when_idle

TLS = Path(__file__).parents[2] / "support" / "tls"
# Stands in for the server: it lives, and says nothing.
SLEEPS = (
    sys.executable,
    "-S",
    "-c",
    "import time; print('suture: awake', flush=1); time.sleep(60)",
)
ENDS = (sys.executable, "-S", "-c", "print('suture: no engine here', flush=1)")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "run")
    yield made
    if made.record.exists() and is_held(made.record):
        os.kill(pid_in(made), signal.SIGKILL)


def pid_in(folder: Folder) -> int:
    return int(json.loads(folder.record.read_text())["pid"])


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not condition():
        time.sleep(0.01)
    return condition()


def test_m1_editors_that_start_at_once_start_one_server(folder: Folder) -> None:
    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(lambda _: find_or_start(folder, SLEEPS), range(8)))
    assert len(set(ports)) == 1
    record = json.loads(folder.record.read_text())
    assert record["port"] == ports[0] and set(record) == {"pid", "port", "version"}
    assert is_held(folder.record)


def test_m2_a_server_that_was_killed_is_started_anew(folder: Folder) -> None:
    find_or_start(folder, SLEEPS)
    first = pid_in(folder)
    os.kill(first, signal.SIGKILL)
    assert until(lambda: not is_held(folder.record))
    find_or_start(folder, SLEEPS)
    assert pid_in(folder) != first


def test_m2_a_record_that_is_no_record_is_written_over(folder: Folder) -> None:
    folder.make()
    folder.record.write_text("{" * 5000)
    find_or_start(folder, SLEEPS)
    assert pid_in(folder) > 0


def test_what_a_server_said_before_it_ended_is_known(folder: Folder) -> None:
    find_or_start(folder, ENDS)
    assert until(lambda: not is_held(folder.record))
    assert folder.last_words() == "no engine here"


def test_the_folder_is_of_this_user_alone(folder: Folder) -> None:
    find_or_start(folder, SLEEPS)
    assert folder.path.stat().st_mode & 0o077 == 0
    assert folder.log.stat().st_mode & 0o077 == 0


def test_editors_are_known_for_as_long_as_they_live(folder: Folder) -> None:
    code = "import sys; from pathlib import Path; from suture.lsp.launch import *; import time\n"
    code += (
        "it = Presence(); it.announce(Folder(Path(sys.argv[1]))); print(flush=1); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder.path)], stdout=subprocess.PIPE
    ) as editor:
        assert editor.stdout is not None
        editor.stdout.readline()
        assert folder.has_editors()
        editor.kill()
    assert not folder.has_editors()
    assert list(folder.editors.iterdir()) == []


def test_a_server_ends_once_no_editor_has_lived_for_a_while(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append(number))
    presence = Presence()
    presence.announce(folder)
    watch = threading.Thread(target=end_when_idle, args=(folder, 0.2, 0.02))
    watch.start()
    time.sleep(0.5)
    assert signals == []
    presence.end()
    watch.join(20)
    assert signals == [signal.SIGTERM]


def test_a_lock_that_is_held_is_refused(tmp_path: Path) -> None:
    held = hold(tmp_path / "a")
    with pytest.raises(BlockingIOError):
        hold(tmp_path / "a")
    os.close(held)
    os.close(hold(tmp_path / "a"))
    assert not is_held(tmp_path / "b") and not (tmp_path / "b").exists()


def test_the_url_of_the_command_comes_before_that_of_the_options() -> None:
    options = ServerOptions(url="http://box:1", autostart=False)
    assert locate(options, Presence(), "http://other:2").url == "http://other:2"
    assert locate(options, Presence()).url == "http://box:1"


def test_without_a_server_and_autostart_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUTURE_PORT", "9")
    with pytest.raises(Unanswered) as raised:
        locate(ServerOptions(autostart=False), Presence())
    assert raised.value.health.reason == "UNREACHABLE"


def test_a_key_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    for name, content in (
        ("none", None),
        ("empty", b""),
        ("odd", b"\xff"),
        ("other", "é".encode()),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        options = ServerOptions(url="http://box:1", api_key_file=str(tmp_path / name))
        with pytest.raises(Unanswered, match=rf"^suture\.server\.apiKeyFile: .*{name}"):
            locate(options, Presence())


def test_a_key_file_of_the_settings_is_told_by_the_name_it_has_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTURE_API_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(Unanswered, match=r"^api_key_file: .*none"):
        locate(ServerOptions(url="http://box:1"), Presence())


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_server_at_the_usual_port_is_taken(
    has_keys: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one\n")
    with serving(FakeCompleter(), **({"api_key_file": keys} if has_keys else {})) as url:
        monkeypatch.setenv("SUTURE_PORT", url.rpartition(":")[2])
        assert locate(ServerOptions(autostart=False), Presence()).url == url
        options = ServerOptions(autostart=False, api_key_file=str(keys))
        assert locate(options, Presence()).api_key == "one"


def test_what_is_no_suture_at_the_usual_port_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        monkeypatch.setenv("SUTURE_PORT", str(listener.getsockname()[1]))
        with pytest.raises(Unanswered):
            locate(ServerOptions(autostart=False), Presence())
        thread.join(10)


def test_a_server_ends_whose_folder_was_deleted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append(number))
    presence = Presence()
    presence.announce(folder)
    shutil.rmtree(folder.path)
    end_when_idle(folder, 0.1, 0.02)
    assert signals == [signal.SIGTERM]
    presence.announce(folder)
    assert folder.has_editors()
    presence.end()


def test_an_editor_of_another_version_keeps_no_server_of_this_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = Presence()
    presence.announce(folder)
    monkeypatch.setattr("suture.lsp.launch.VERSION", "999.0")
    Folder(folder.path).make()
    assert not folder.has_editors()
    presence.end()


def test_an_editor_with_a_server_of_its_own_keeps_no_shared_one(
    folder: Folder,
) -> None:
    presence = Presence()
    presence.announce(folder)
    locate(ServerOptions(url="http://box:1"), presence)
    assert not folder.has_editors()


def test_a_file_that_was_deleted_before_its_lock_was_taken_is_no_lock(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.make()
    path = folder.editors / "1"
    lock = fcntl.flock
    calls: list[int] = []

    def flock(held: int, how: int) -> None:
        if not calls:
            path.unlink()  # as who looks for editors does
        calls.append(how)
        lock(held, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    held = hold(path)
    assert folder.has_editors() and os.path.samestat(os.fstat(held), path.stat())
    os.close(held)


def test_m1_a_server_whose_starter_died_is_found_at_its_own_port(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.make()
    folder.record.write_text(json.dumps({"pid": 1, "port": 1, "version": "x" * 50}))
    started: list[list[str]] = []

    def dies(command: list[str], **_: object) -> None:
        started.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", dies)
    with pytest.raises(KeyboardInterrupt):
        find_or_start(folder, SLEEPS)
    held = hold(folder.record)  # in its place
    assert find_or_start(folder, SLEEPS) == int(started[0][-1])
    os.close(held)


@contextmanager
def handshaking() -> Iterator[int]:
    """The port of a server with a certificate that nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shake() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True).recv(1)

        thread = threading.Thread(target=shake)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(10)


def test_a_certificate_that_is_not_trusted_is_no_server_that_starts() -> None:
    async def check(port: int) -> None:
        async def located() -> Address:
            return Address(f"https://127.0.0.1:{port}", is_alive=lambda: True)

        client = ServerClient(located, lambda health: None)
        try:
            await client.check()
        finally:
            await client.close()

    with handshaking() as port, pytest.raises(Unanswered, match="certificate") as raised:
        asyncio.run(check(port))
    assert raised.value.health.reason == "UNREACHABLE"


def test_a_certificate_that_is_not_trusted_at_the_usual_port_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("suture.lsp.launch.trust", lambda url, settings: True)
    monkeypatch.setenv("SUTURE_TLS_CERT", str(TLS / "cert.pem"))
    monkeypatch.setenv("SUTURE_TLS_KEY", str(TLS / "key.pem"))
    with handshaking() as port:
        monkeypatch.setenv("SUTURE_PORT", str(port))
        with pytest.raises(Unanswered, match="certificate") as raised:
            locate(ServerOptions(autostart=False), Presence())
    assert raised.value.health.reason == "UNREACHABLE"
