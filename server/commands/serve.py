"""`suture serve`: listen, and keep a worker alive that answers.

Listening beyond this machine needs an API key file, or the host names that clients will use
(`--allow-host`), so that nobody serves a network by accident.

A service manager may have opened the socket (`LISTEN_FDS`), and is told how it goes
(`NOTIFY_SOCKET`). On SIGHUP the settings are read again, and a worker with these takes the place of
the one that serves.
"""

from __future__ import annotations

import argparse
import errno
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from suture.server.client import Stranger, Suture
from suture.server.commands.asking import open_client, server_url
from suture.server.commands.flags import add_settings, settings_of
from suture.server.commands.pull import require_llama_cpp, require_pulled, with_model_files
from suture.server.engine.remote.backend import check_url
from suture.server.errors import SetupError, SutureError
from suture.server.hosts import is_loopback
from suture.server.service import Notifying, inherited_listener
from suture.server.settings import Settings, inherited_sockets, notify_socket, read_keys
from suture.server.supervisor import Display, Plain, Spawn, Supervisor
from suture.server.tenants import read_tenants, tenant_files
from suture.server.terminal import StatusLine, has_terminal, takes_a_status_line
from suture.server.tls import tls_context
from suture.server.worker_process import Worker, start_worker

SUMMARY = "serve completions over HTTP"

BACKLOG = 128
_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(
        parser,
        "model",
        "models",
        "also_serve",
        "memory_mb",
        "idle_minutes",
        "host",
        "port",
        "ctx",
        "threads",
        "gpu_layers",
        "healing",
        "give_back",
        "layout",
        "min_confidence",
        "tokenizer",
        "detokenizer",
        "stream_interval",
        "api_key_file",
        "tenants",
        "tls_cert",
        "tls_key",
        "allow_host",
        "first_text_ms",
        "parallel",
        "queue",
        "client_limit",
        "encode_batch",
        "encode_wait_ms",
        "stall_s",
        "drain_s",
        "engine",
        "engine_url",
        "engine_kind",
        "engine_model",
        "engine_key_file",
        "engine_parallel",
    )


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    inherited = inherited_listener(inherited_sockets())
    if inherited is not None:
        host, port = inherited.getsockname()[:2]
        settings = settings.model_copy(update={"host": host, "port": port})
    check_exposure(settings)
    check_tls(settings)
    check_engine(settings)
    for file in open_secrets(settings):
        print(f"suture: {file} can be read or changed by others: chmod 600", file=sys.stderr)
    with inherited or bind(settings) as listener:
        # Here and not in the worker, so that a download is not started again with it.
        settings = with_model_files(settings)
        listen(listener, settings)
        with _screen() as line:
            return _supervisor(listener, settings, args, line).run()


@contextmanager
def _screen() -> Iterator[StatusLine | None]:
    """The status line, where there is a terminal for it."""
    if not takes_a_status_line():
        yield None
        return
    with closing(StatusLine(sys.stderr)) as line:
        yield line


def _supervisor(
    listener: socket.socket, settings: Settings, args: argparse.Namespace, line: StatusLine | None
) -> Supervisor:
    display: Display = line or Plain()
    manager = notify_socket()
    if manager is not None:
        display = Notifying(display, manager)

    def spawning(settings: Settings) -> Spawn:
        return partial(_spawn, listener, settings, line)

    def renew() -> Spawn:
        return spawning(_renewed(settings, args))

    # A terminal sends SIGHUP when it is closed, and that is no wish to go on.
    return Supervisor(spawning(settings), None if has_terminal() else renew, display)


def _spawn(
    listener: socket.socket, settings: Settings, line: StatusLine | None, follows: bool
) -> Worker:
    worker = start_worker(listener, settings, follows=follows, watched=line is not None)
    if line is not None and worker.output is not None:
        line.forward(worker.output)
    return worker


def _renewed(before: Settings, args: argparse.Namespace) -> Settings:
    """The settings as they are now, for the socket that we have."""
    settings = settings_of(args).model_copy(update={"host": before.host, "port": before.port})
    check_engine(settings)
    check_exposure(settings)
    check_tls(settings)
    require_pulled(settings)  # whoever waits for a download hears no signal
    return with_model_files(settings)


def check_engine(settings: Settings) -> None:
    """Raise `SetupError` where the model cannot be run as the settings say."""
    if settings.engine == "llama":
        for flag, given in (
            ("--engine-url", settings.engine_url),
            ("--engine-key-file", settings.engine_key_file),
        ):
            if given:
                raise SetupError(f"{flag} goes with --engine remote")
        require_llama_cpp()
        return
    if not settings.engine_url:
        raise SetupError("--engine remote: give the --engine-url of a server that runs the model")
    for url in settings.engine_url:
        check_url(url)
    if settings.also_serve:
        raise SetupError("--also-serve: other servers run one model, --engine remote")
    if settings.engine_key_file is not None:
        read_keys(settings.engine_key_file, "--engine-key-file")


def check_exposure(settings: Settings) -> None:
    """Raise `SetupError` where the server would be open to a network by accident."""
    keys = read_tenants(settings).keys
    if not is_loopback(settings.host) and not keys and not settings.allow_host:
        raise SetupError(
            f"--host {settings.host} is open to the network: give --api-key-file "
            "or --tenants, or --allow-host for each name that clients use"
        )


def open_secrets(settings: Settings) -> list[Path]:
    """Those of the files with keys that not only their owner may read and write."""
    secrets = settings.api_key_file, settings.tls_key, settings.engine_key_file
    files = [file for file in secrets if file is not None]
    files += tenant_files(settings)
    return [file for file in files if file.stat().st_mode & _OTHERS]


def check_tls(settings: Settings) -> None:
    """Raise `SetupError` where certificate and key cannot be served with."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None and key is None:
        return
    if cert is None or key is None:
        raise SetupError("--tls-cert and --tls-key go together")
    try:
        tls_context(settings)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SetupError(f"--tls-cert {cert}, --tls-key {key}: {error}") from None


def bind(settings: Settings) -> socket.socket:
    """A socket on the address; raises `SetupError` where it cannot be had."""
    try:
        infos = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise SetupError(f"--host {settings.host}: {error}") from None
    family, kind, protocol, _, address = infos[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _refused(settings, error) from None
    return listener


def listen(listener: socket.socket, settings: Settings) -> None:
    """Take connections from here on, over every restart of the worker."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _refused(settings, error) from None


def _refused(settings: Settings, error: OSError) -> SetupError:
    if error.errno != errno.EADDRINUSE:
        return SetupError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}")
    return SetupError(f"port {settings.port} is in use{_by_whom(settings)}")


def _by_whom(settings: Settings) -> str:
    try:
        with open_client(settings, server_url(settings)) as client:
            found = client.identify()
    except SutureError:
        return ""
    if isinstance(found, Stranger) and found.reason == "CANCELLED":
        return f" by {found.what}"
    if not isinstance(found, Suture):
        return " by another program: choose a --port"
    pid, version = found.status.get("pid"), found.status["suture"]
    return f" by Suture {version} (process {pid}, model {found.model_names[0]})"
