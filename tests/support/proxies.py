"""nginx and Caddy as docs/deploy has them, on a free port, before servers of this machine.

What a machine has of its own is put in place of the example's: port, certificate, the servers.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx2
import pytest

from support.raw_http import until

NAME = "suture.example.org"
CERT, KEY = (Path(__file__).parent / "tls" / name for name in ("named.pem", "key.pem"))
DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
EXAMPLE_SERVER = "127.0.0.1:8012"
TIMEOUT_S = 30.0

NGINX = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/suture.conf;
}}
"""
CADDY = """
{{
    admin off
    auto_https disable_redirects
    storage file_system {folder}/caddy
}}
"""


class _ToThisMachine(httpx2.HTTPTransport):
    """Connects to 127.0.0.1 whatever name is asked for, as a line in /etc/hosts would have it."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions = {**request.extensions, "sni_hostname": request.url.host}
        request.url = request.url.copy_with(host="127.0.0.1")
        return super().handle_request(request)


@contextmanager
def client(url: str, **headers: str) -> Iterator[httpx2.Client]:
    """A client of a proxy, which trusts its certificate."""
    transport = _ToThisMachine(verify=ssl.create_default_context(cafile=CERT))
    with httpx2.Client(
        base_url=url, headers=headers, transport=transport, trust_env=False, timeout=TIMEOUT_S
    ) as http:
        yield http


@contextmanager
def nginx(servers: Sequence[str], folder: Path) -> Iterator[str]:
    """The URL of an nginx before `servers`, which are URLs."""
    port = _free_port()
    [line] = re.findall(rf"server {EXAMPLE_SERVER}.*;", (DEPLOY / "nginx.conf").read_text())
    lines = [line.replace(EXAMPLE_SERVER, _address(server)) for server in servers]
    changes = {
        line: "\n".join(lines),
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        f"/etc/ssl/certs/{NAME}.pem": str(CERT),
        f"/etc/ssl/private/{NAME}.key": str(KEY),
    }
    (folder / "suture.conf").write_text(_changed("nginx.conf", changes))
    # As root it would work as a user who may not write where tests do.
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, user=user))
    command = ["nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "nginx.log")]
    with _running(command, port, folder) as url:
        yield url


@contextmanager
def caddy(servers: Sequence[str], folder: Path) -> Iterator[str]:
    """The URL of a Caddy before `servers`, which are URLs."""
    port = _free_port()
    changes = {
        f"{NAME} {{": f"https://{NAME}:{port} {{\nbind 127.0.0.1\ntls {CERT} {KEY}",
        EXAMPLE_SERVER: " ".join(map(_address, servers)),
    }
    config = folder / "Caddyfile"
    config.write_text(CADDY.format(folder=folder) + _changed("Caddyfile", changes))
    command = ["caddy", "run", "--config", str(config), "--adapter", "caddyfile"]
    with _running(command, port, folder) as url:
        yield url


Proxying = Callable[[Sequence[str], Path], AbstractContextManager[str]]
PROXIES: dict[str, Proxying] = {"nginx": nginx, "caddy": caddy}


def proxying(name: str) -> Proxying:
    """How a proxy is run; the test is skipped where it is not installed."""
    if shutil.which(name, path=_path()) is None:
        pytest.skip(
            f"there is no {name}, so its file in docs/deploy is not run: apt-get install it"
        )
    return PROXIES[name]


@contextmanager
def _running(command: list[str], port: int, folder: Path) -> Iterator[str]:
    """The proxy's URL, from when it listens until the block ends."""
    log = folder / f"{command[0]}.out"
    environment = os.environ | {
        "PATH": _path(),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    with (
        log.open("w") as said,
        subprocess.Popen(command, stdout=said, stderr=said, env=environment) as process,
    ):
        try:
            is_up = until(lambda: process.poll() is not None or _listens(port), TIMEOUT_S)
            assert is_up and process.poll() is None, log.read_text()
            yield f"https://{NAME}:{port}"
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def _changed(file: str, changes: dict[str, str]) -> str:
    """A file of docs/deploy with other texts in the places of some, which must be there once."""
    text = (DEPLOY / file).read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, f"{file}: {old!r}"
        text = text.replace(old, new)
    return text


def _path() -> str:
    # Where Debian puts nginx; it need not be on a user's path.
    return f"{os.environ['PATH']}:/usr/sbin"


def _address(url: str) -> str:
    return url.removeprefix("http://")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
