"""`suture serve`: listen, and keep a worker alive that answers.

Listening beyond this machine needs an API key file, or the host names that clients will use
(`--allow-host`), so that nobody serves a network by accident.
"""

from __future__ import annotations

import argparse
import errno
import socket
import stat
import sys
from pathlib import Path

from suture.server.client import Suture
from suture.server.commands.asking import open_client, server_url
from suture.server.commands.flags import add_settings, settings_of
from suture.server.commands.pull import require_llama_cpp, with_model_files
from suture.server.connections import tls_context
from suture.server.errors import SetupError, SutureError
from suture.server.routes.access import is_loopback
from suture.server.settings import Settings, read_api_keys
from suture.server.supervisor import Supervisor
from suture.server.worker import start_worker

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
    )


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    check_exposure(settings)
    check_tls(settings)
    for file in open_secrets(settings):
        print(f"suture: {file} can be read or changed by others: chmod 600", file=sys.stderr)
    require_llama_cpp()
    with bind(settings) as listener:
        # Here and not in the worker, so that a download is not started again with it.
        settings = with_model_files(settings)
        listen(listener, settings)
        return Supervisor(lambda: start_worker(listener, settings)).run()


def check_exposure(settings: Settings) -> None:
    """Raise `SetupError` where the server would be open to a network by accident."""
    keys = read_api_keys(settings)
    if not is_loopback(settings.host) and not keys and not settings.allow_host:
        raise SetupError(
            f"--host {settings.host} is open to the network: give --api-key-file, "
            "or --allow-host for each name that clients use"
        )


def open_secrets(settings: Settings) -> list[Path]:
    """Those of the files with keys that not only their owner may read and write."""
    files = [file for file in (settings.api_key_file, settings.tls_key) if file is not None]
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
    if not isinstance(found, Suture):
        return " by another program: choose a --port"
    pid, version = found.status.get("pid"), found.status["suture"]
    return f" by Suture {version} (process {pid}, model {found.model_names[0]})"
