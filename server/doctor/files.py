"""Files that others must not read, whom the server is open to, certificates, and proxies in the way
of local requests.
"""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from suture.server.commands.serve import check_exposure, check_tls
from suture.server.doctor.finding import Finding, shell, suture
from suture.server.errors import SetupError
from suture.server.settings import Settings, proxy_of_loopback, read_api_keys
from suture.server.tenants import read_tenants, tenant_files

_OTHERS, _GROUP = stat.S_IRWXO, stat.S_IRWXG
_SOON_S = 14 * 24 * 3600
_LOOPBACK = "localhost,127.0.0.1,::1"


def files(settings: Settings) -> Iterator[Finding]:
    """API keys, tenants and TLS, as far as the settings name such."""
    if settings.api_key_file is not None:
        yield from _keys(settings, settings.api_key_file)
    if settings.tenants is not None:
        yield from _tenants(settings, settings.tenants)
    if settings.api_key_file is None and settings.tenants is None:
        yield from _exposure(settings)
    if settings.tls_cert is not None or settings.tls_key is not None:
        yield from _tls(settings)


def proxy() -> Iterator[Finding]:
    """Whether clients that heed the environment would ask a proxy for what is on this machine."""
    variable = proxy_of_loopback()
    if variable is None:
        return
    text = (
        f"{variable} is set and no_proxy has no 127.0.0.1: curl, Python's clients and many editors"
        " ask the proxy for this machine's own server"
    )
    yield Finding("note", "proxy", text, f"export no_proxy={_LOOPBACK} NO_PROXY={_LOOPBACK}")


def _keys(settings: Settings, path: Path) -> Iterator[Finding]:
    try:
        n_keys = len(read_api_keys(settings))
    except SetupError as error:
        fix = f"(umask 077; openssl rand -hex 24 > {shell(path)})"
        yield Finding("problem", "files", str(error), fix)
        return
    yield from _private(path, f"API keys: {n_keys} in {path}")


def _tenants(settings: Settings, path: Path) -> Iterator[Finding]:
    try:
        tenants = read_tenants(settings)
        own = [*tenant_files(settings)]
    except SetupError as error:
        yield Finding("problem", "files", str(error), "${EDITOR:-vi} " + shell(path))
        return
    text = f"tenants: {len(tenants.all)} with {len(tenants.keys)} keys in {path}"
    yield from _private(path, text)
    for file in own[1:]:
        yield from _private(file, f"tenants: keys in {file}")


def _exposure(settings: Settings) -> Iterator[Finding]:
    try:
        check_exposure(settings)
    except SetupError as error:
        keys = settings.config_dir / "keys"
        folder = shell("mkdir", "-p", settings.config_dir)
        made = f"(umask 077; {folder}; openssl rand -hex 24 > {shell(keys)})"
        serve = suture("serve", "--host", settings.host, "--api-key-file", keys)
        yield Finding("problem", "files", str(error), f"{made} && {serve}")


def _private(path: Path, text: str) -> Iterator[Finding]:
    """Whether only we can read a file."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        text += ", which every user of this machine can read"
        yield Finding("problem", "files", text, shell("chmod", "600", path))
    elif mode & _GROUP:
        text += ", which its group can read"
        yield Finding("note", "files", text, shell("chmod", "600", path))
    else:
        yield Finding("ok", "files", text)


def _tls(settings: Settings) -> Iterator[Finding]:
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        if key is None:  # what a client has, to trust the server
            yield Finding("ok", "files", f"TLS: {cert} is trusted; serving needs --tls-key, too")
        else:
            text = f"TLS: {key} has no --tls-cert beside it"
            yield Finding("problem", "files", text, suture("serve", "--help"))
        return
    try:
        check_tls(settings)
    except SetupError as error:
        yield Finding("problem", "files", str(error), _new_certificate(cert, key))
        return
    yield from _private(key, f"TLS: {cert} and {key} fit")
    yield from _expiry(cert, key)


def _expiry(cert: Path, key: Path) -> Iterator[Finding]:
    """How long the certificate is good for, where there is somebody to ask."""
    if shutil.which("openssl") is None:
        return
    command = ["openssl", "x509", "-noout", "-enddate", "-checkend"]
    for seconds in (0, _SOON_S):
        asked = [*command, str(seconds), "-in", str(cert)]
        told = subprocess.run(asked, capture_output=True, text=True)
        date = told.stdout.partition("notAfter=")[2].partition("\n")[0]
        if told.returncode != 0 and date:
            text = f"TLS: the certificate {'ends' if seconds else 'is no longer good'}: {date}"
            fix = _new_certificate(cert, key)
            yield Finding("note" if seconds else "problem", "files", text, fix)
            return


def _new_certificate(cert: Path, key: Path) -> str:
    """What makes a certificate for this machine; one of an authority comes from there."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    return shell(*made, "-nodes", "-days", "365", *named, "-keyout", key, "-out", cert)
