"""A package index on loopback that serves real, tiny wheels and sdists to a real pip."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

# A build backend inside the sdist itself, so that pip needs no other package to read it.
_BACKEND = """
import pathlib

def _metadata(folder, name, version):
    info = pathlib.Path(folder, f"{name}-{version}.dist-info")
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    info.joinpath("WHEEL").write_text("Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return info.name

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    return _metadata(folder, "NAME", "VERSION")

def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise AssertionError("nothing is installed")
"""  # noqa: E501
_PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def write_wheel(folder: Path, name: str, version: str, members: Mapping[str, bytes]) -> Path:
    """A wheel of `members`, valid down to its RECORD."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = dict(members) | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{_record_hash(body)},{len(body)}\n" for path, body in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for member, body in files.items():
            wheel.writestr(member, body)
    return path


def write_sdist(folder: Path, name: str, version: str, members: Mapping[str, bytes]) -> Path:
    """An sdist of `members` below its top folder."""
    module = name.replace("-", "_")
    backend = _BACKEND.replace("NAME", module).replace("VERSION", version)
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        "pyproject.toml": _PYPROJECT.encode(),
        "backend.py": backend.encode(),
    } | dict(members)
    path = folder / f"{module}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as sdist:
        for member, body in files.items():
            info = tarfile.TarInfo(f"{module}-{version}/{member}")
            info.size = len(body)
            sdist.addfile(info, io.BytesIO(body))
    return path


def _record_hash(body: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"


class PackageIndex:
    """Serves the archives in `folder`; `served` lists those that were sent in full.

    `stall_on` names an archive that is sent by half and then no further, `silent` makes the
    index accept requests and never answer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.served: list[str] = []
        self.stall_on: str | None = None
        self.stalled = threading.Event()
        self.silent = False
        self.closing = threading.Event()
        self.url = ""

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this the only index of every pip that is started from now on."""
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_CACHE_DIR", str(self.folder / ".pip-cache"))
        monkeypatch.setenv("PIP_INDEX_URL", f"{self.url}/simple")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@contextmanager
def serve_index(folder: Path) -> Iterator[PackageIndex]:
    """An index of the archives in `folder`, which may be added later."""
    index = PackageIndex(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if index.silent:
                index.closing.wait()
                return
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "simple":
                self._send(_project_page(folder, name), "text/html")
            elif (folder / name).is_file():
                self._send_archive(name, (folder / name).read_bytes())
            else:
                self.send_error(404)

        def _send_archive(self, name: str, body: bytes) -> None:
            if name != index.stall_on:
                self._send(body, "application/octet-stream")
                index.served.append(name)
                return
            self._send_head(len(body), "application/octet-stream")
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            index.stalled.set()
            index.closing.wait()

        def _send(self, body: bytes, content_type: str) -> None:
            self._send_head(len(body), content_type)
            self.wfile.write(body)

        def _send_head(self, n_bytes: int, content_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(n_bytes))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        index.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield index
        finally:
            index.closing.set()
            server.shutdown()
            thread.join()


def _project_page(folder: Path, project: str) -> bytes:
    prefix = project.replace("-", "_") + "-"
    names = [path.name for path in folder.iterdir() if path.name.startswith(prefix)]
    return "".join(f'<a href="/files/{name}">{name}</a>\n' for name in names).encode()
