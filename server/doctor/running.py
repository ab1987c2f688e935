"""The port, and whoever is on it: nobody, Suture, or another server."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx2

from suture.server.client import MAX_STATUS_BYTES, Absent, Client, Stranger, Suture
from suture.server.commands.asking import open_client, server_url
from suture.server.doctor.finding import Finding, suture
from suture.server.errors import SutureError
from suture.server.settings import Settings, read_api_keys
from suture.server.version import VERSION

_ASK_TIMEOUT_S = 2.0
# Of one token, on a slow machine behind others.
_ANSWER_TIMEOUT_S = 30.0
_LIKELY_PORTS = range(1, 20)


def running(settings: Settings) -> Iterator[Finding]:
    """Who is at the address that `serve` would take, and how that one does."""
    url = server_url(settings)
    try:
        with open_client(settings, url) as client:
            found = client.identify()
            if isinstance(found, Suture):
                yield from _ours(client, found, settings)
                return
    except SutureError as error:
        yield Finding("problem", "port", str(error), suture("doctor", "--help"))
        return
    if isinstance(found, Absent):
        yield Finding("ok", "port", f"{url}: nothing runs there yet")
    elif found.reason == "AUTH":
        yield _locked(url, settings)
    elif found.reason == "CANCELLED":
        yield Finding("note", "port", f"{url}: {found.what}", suture("doctor"))
    else:
        yield _another(url, found, settings)


def _ours(client: Client, found: Suture, settings: Settings) -> Iterator[Finding]:
    status, url = found.status, client.url
    version, state, pid = status["suture"], status.get("state"), status.get("pid")
    name, path = found.model_names
    yield Finding("ok", "port", f"{url}: suture {version}, {state}, pid {pid}, model {name}")
    restart = f"kill $(ps -o ppid= -p {pid}); sleep 8; {suture('serve')}"
    if version != VERSION:
        text = f"the server that runs is {version}, and this is {VERSION}"
        yield Finding("note", "server", text, restart)
    wanted = settings.engine_model if settings.engine == "remote" else settings.model
    if wanted not in (None, name, path):
        text = f"the server that runs has the model {name}, and the settings say {wanted}"
        yield Finding("note", "server", text, restart)
    if state == "ready":
        yield _answers(client, restart)
    else:
        yield Finding("note", "server", f"the server that runs is {state}", suture("doctor"))


def _answers(client: Client, restart: str) -> Finding:
    """Whether a request gets an answer, of one token, and how long it takes."""
    began = time.monotonic()
    try:
        body = {"input_prefix": "import ", "input_suffix": "", "n_predict": 1}
        for _ in client.infill(body, httpx2.Timeout(_ANSWER_TIMEOUT_S)):
            pass
    except SutureError as error:
        return Finding("problem", "server", f"the server that runs answers: {error}", restart)
    elapsed = time.monotonic() - began
    return Finding("ok", "server", f"a token was asked for, and came after {elapsed:.2f} s")


def _locked(url: str, settings: Settings) -> Finding:
    if read_api_keys(settings):
        text = f"{url}: a server that does not know the first key of {settings.api_key_file}"
    else:
        text = f"{url}: a server that wants an API key, and none is set"
    return Finding("problem", "port", text, f"{suture('doctor')} --api-key-file FILE")


def _another(url: str, found: Stranger, settings: Settings) -> Finding:
    port = _free_port(settings)
    fix = suture("serve", "--port", str(port)) if port else suture("serve", "--port", "0")
    return Finding("problem", "port", f"{url}: {_who(url) or found.what}", fix)


def _who(url: str) -> str | None:
    """The name of a server that is known by what it says of itself."""
    version = _asked(url, "/api/version").get("version")
    if isinstance(version, str):
        return f"Ollama {version}"
    props = _asked(url, "/props")
    if isinstance(props.get("build_info"), str) or "default_generation_settings" in props:
        return f"llama-server {props.get('build_info', '')}".strip()
    return None


def _asked(url: str, path: str) -> dict[str, Any]:
    """The JSON object there, as far as it comes in time and bounds; empty where there is none."""
    body, give_up_at = b"", time.monotonic() + _ASK_TIMEOUT_S
    try:
        with (
            httpx2.Client(trust_env=False, timeout=_ASK_TIMEOUT_S, verify=False) as http,
            http.stream("GET", url + path) as response,
        ):
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MAX_STATUS_BYTES or time.monotonic() > give_up_at:
                    break
        told = json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _free_port(settings: Settings) -> int | None:
    """The next port that nobody has."""
    for port in (settings.port + step for step in _LIKELY_PORTS):
        if port > 65535:
            return None
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    return None
