"""TLS: what we serve with, and which certificates our clients trust a server by.

The clients' HTTP library would take proxies from the environment together with these, and a server
that is this machine, or one that the user named, is asked directly.
"""

from __future__ import annotations

import ssl

from suture.server.errors import SetupError
from suture.server.settings import Settings, named_certificates


def tls_context(settings: Settings) -> ssl.SSLContext:
    """What TLS is served with: 1.2 or newer. Raises `OSError` or `ValueError`."""
    assert settings.tls_cert is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # An encrypted key would ask the terminal; nobody sits before a server.
    context.load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: "")
    return context


def trust(url: str, settings: Settings) -> ssl.SSLContext | bool:
    """The certificate that ours is served with, those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name,
    as with curl, or else the system's (True). Raises `SetupError`."""
    if not url.startswith("https://"):
        return True
    if settings.tls_cert is not None:
        return _trusting("--tls-cert", file=str(settings.tls_cert))
    return trust_in_others(url)


def trust_in_others(url: str) -> ssl.SSLContext | bool:
    """The same for a server that is not ours: what we are served with says nothing of it."""
    if not url.startswith("https://"):
        return True
    file, folder = named_certificates()
    if file is None and folder is None:
        return True
    return _trusting("SSL_CERT_FILE" if file else "SSL_CERT_DIR", file, folder)


def _trusting(source: str, file: str | None, folder: str | None = None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as error:
        # Of a file that has none in it, OpenSSL says what it looked for.
        raise SetupError(f"{source}: {file or folder}: {error.strerror or error}") from None


def tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The error of TLS that caused another one, if one did."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
