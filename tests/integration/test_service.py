"""`suture serve` under a service manager: its socket, what it is told, and what it may ask."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.http_server import client

TESTS = Path(__file__).parents[1]
SERVE = (sys.executable, str(TESTS / "support" / "fake_serve.py"))

# What a service manager does between fork and exec.
AS_SERVICE = """
import os, sys
fd, command = int(sys.argv[1]), sys.argv[2:]
os.dup2(fd, 3)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
os.execv(command[0], command)
"""


def environ(**more: str) -> dict[str, str]:
    path = os.pathsep.join([*sys.path, str(TESTS)])
    return os.environ | {"PYTHONPATH": path, "XDG_CONFIG_HOME": "/nonexistent", **more}


@contextmanager
def service(
    listener: socket.socket, *flags: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", AS_SERVICE, str(listener.fileno()), *SERVE, "slow", *flags]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(listener.fileno(),),
        start_new_session=True,
        text=True,
        env=environ(**variables),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_socket_of_a_service_manager_is_served_and_it_is_told_how_it_goes(
    tmp_path: Path,
) -> None:
    address = str(tmp_path / "notify")
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        manager.bind(address)
        manager.settimeout(20)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        # The port that the settings name is not looked at.
        with service(listener, "--port", "1", NOTIFY_SOCKET=address) as process:
            # Who asks before the server is there waits for it.
            with client(url) as http:
                assert http.get("/health").status_code in (200, 503)
                first = http.get("/v1/status").json()["pid"]
            assert manager.recv(4096).decode() == f"READY=1\nSTATUS=toy on cpu, {url}"
            process.send_signal(signal.SIGHUP)
            assert manager.recv(4096).startswith(b"READY=1")
            with client(url) as http:
                assert http.get("/v1/status").json()["pid"] != first
            process.terminate()
            assert manager.recv(4096).startswith(b"STOPPING=1\n")
            assert process.wait(timeout=20) == 0


@pytest.mark.skipif(
    shutil.which("systemd-socket-activate") is None, reason="systemd is not installed"
)
def test_systemds_own_socket_activation_starts_it_with_the_first_client() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    passed = [f"--setenv={name}" for name in ("PYTHONPATH", "XDG_CONFIG_HOME")]
    command = ["systemd-socket-activate", "-l", f"127.0.0.1:{port}", *passed, *SERVE, ""]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ(), text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Listening on ")
        with client(f"http://127.0.0.1:{port}") as http:
            body = {"input_prefix": "x", "input_suffix": ""}
            assert http.post("/infill", json=body).json()["content"] == "range(3)"
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_a_socket_that_is_open_to_the_network_is_refused_as_the_flag_would_be() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener, service(listener) as process:
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert errors.startswith("suture: --host 0.0.0.0 is open to the network: ")


def test_a_socket_that_is_none_to_serve_on_is_one_line_and_status_2(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with service(listener) as process:
            _, errors = process.communicate(timeout=20)
    told = "suture: LISTEN_FDS: expected a TCP socket that listens (ListenStream=PORT)\n"
    assert (process.returncode, errors) == (2, told)


def test_sockets_for_another_process_are_left_alone() -> None:
    variables = {"LISTEN_FDS": "1", "LISTEN_PID": "1"}
    with subprocess.Popen(
        [*SERVE, "", "--port", "0"], stdout=subprocess.PIPE, env=environ(**variables), text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
        process.terminate()


def test_after_sighup_the_settings_are_those_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('layout = "psm"\n')
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with service(listener, "--config", str(config)) as process, client(url) as http:

            def layout() -> object:
                return http.get("/v1/status").json()["settings"]["layout"]

            assert layout() == "psm"
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            assert process.stderr.readline() == "started\n"
            config.write_text('layuot = "spm"\n')
            process.send_signal(signal.SIGHUP)
            told = f"suture: {config}: unknown key 'layuot' (did you mean layout?): "
            assert process.stderr.readline() == told + "the worker goes on as it was\n"
            assert layout() == "psm"
            config.write_text('layout = "spm"\n')
            process.send_signal(signal.SIGHUP)
            ends = time.monotonic() + 20
            while layout() == "psm":
                assert time.monotonic() < ends
                time.sleep(0.05)
            assert layout() == "spm"
