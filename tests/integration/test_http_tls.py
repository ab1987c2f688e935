"""TLS as it is served: real handshakes with a worker."""

from __future__ import annotations

import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http_server import settings
from support.raw_http import answers, head
from support.worker_process import Worker, worker
from suture.server.commands import serve
from suture.server.errors import SetupError

TLS = Path(__file__).parents[1] / "support" / "tls"
CERT, KEY = TLS / "cert.pem", TLS / "key.pem"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    output = tmp_path_factory.mktemp("tls") / "output"
    with worker("fake_worker.py", output, tls_cert=CERT, tls_key=KEY) as process:
        yield process
        lines = process.said().splitlines()
    assert [line for line in lines if "listening" not in line] == ["started"]


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERT)


def plain(served: Worker) -> socket.socket:
    port = int(served.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def handshake(served: Worker, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(plain(served), server_hostname="localhost")


def test_the_newest_version_is_spoken(served: Worker) -> None:
    with handshake(served, trusting()) as client:
        assert client.version() == "TLSv1.3"
        client.sendall(head("GET", "/health"))
        assert answers(client)[0].status == 200


def test_1_2_is_spoken_with_forward_secrecy_and_an_aead(served: Worker) -> None:
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with handshake(served, context) as client:
        cipher = client.cipher()
        assert client.version() == "TLSv1.2" and cipher is not None
        assert cipher[0].startswith("ECDHE-") and ("GCM" in cipher[0] or "POLY1305" in cipher[0])


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_refused(served: Worker, version: ssl.TLSVersion) -> None:
    context = trusting()
    # Else it is the client that refuses them.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError, match=r"(?i)alert|version|EOF"):
        handshake(served, context)


def test_a_certificate_that_the_client_does_not_trust_is_its_error(served: Worker) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(served, ssl.create_default_context())


def test_what_is_no_tls_harms_nobody(served: Worker) -> None:
    for raw in (head("GET", "/health"), b"\x16\x03\x01garbage", b""):
        with plain(served) as client:
            client.sendall(raw)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    with handshake(served, trusting()) as client:
        client.sendall(head("GET", "/health"))
        assert answers(client)[0].status == 200


def test_who_sends_a_body_that_is_too_large_sees_why(served: Worker) -> None:
    with handshake(served, trusting()) as client:
        client.sendall(head("POST", "/infill", f"Content-Length: {40 * 2**20}"))
        for _ in range(40):
            client.sendall(b"x" * 2**20)
        [answer] = answers(client)
        assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_an_encrypted_key_is_refused_and_asks_nobody(tmp_path: Path) -> None:
    encrypted = tmp_path / "key.pem"
    encrypted.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    with pytest.raises(SetupError, match="--tls-key"):
        serve.check_tls(settings(tls_cert=CERT, tls_key=encrypted))


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"engine_key_file": "none"}, "--engine-key-file goes with --engine remote"),
        ({"engine_url": "http://one"}, "--engine-url goes with --engine remote"),
        (
            {"engine": "remote", "engine_url": "http://one", "engine_key_file": "/nonexistent"},
            "--engine-key-file: /nonexistent",
        ),
    ],
)
def test_what_is_said_of_other_servers_in_vain_is_refused(flags: dict[str, str], why: str) -> None:
    with pytest.raises(SetupError, match=why):
        serve.check_engine(settings(**flags))


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)]
)
def test_files_of_keys_that_others_may_read_are_named(
    tmp_path: Path, mode: int, is_open: bool
) -> None:
    files = [tmp_path / "api", tmp_path / "tls", tmp_path / "engine"]
    for file in files:
        file.write_text("k")
        file.chmod(mode)
    at = settings(api_key_file=files[0], tls_key=files[1], engine_key_file=files[2])
    assert serve.open_secrets(at) == (files if is_open else [])
    assert serve.open_secrets(settings()) == []
