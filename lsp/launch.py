"""The server that all editors share: found, or started once.

Who lives holds a lock on a file for as long as it does, the server on its *record* and each bridge
on a file of its own: a lock goes with its process, however that ends, so no file is ever stale.

  M1  Two editors that start at once start one server.
  M2  A record whose server is gone says nothing: the next one takes its place.
  M3  A server of another version is left alone: its record has another name, and it ends once
      nobody needs it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx2
from filelock import FileLock, Timeout

from suture.lsp.http_client import Address, Unanswered
from suture.lsp.settings import ServerOptions
from suture.server.errors import SutureError
from suture.server.settings import Settings, load_settings, read_api_keys
from suture.server.tls import tls_error, trust
from suture.server.version import VERSION

# Starting is a matter of milliseconds; the model is loaded afterwards.
START_TIMEOUT_S = 20.0
PROBE_TIMEOUT_S = 2.0
# -P: what stands in the working directory, an untrusted checkout perhaps, is not imported.
COMMAND = (sys.executable, "-P", "-m", "suture.lsp.shared_server")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where servers and bridges are recorded; made for this user alone."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / f"server-{VERSION}.json"

    @property
    def log(self) -> Path:
        return self.path / f"server-{VERSION}.log"

    @property
    def editors(self) -> Path:
        return self.path / f"editors-{VERSION}"

    def make(self) -> None:
        self.editors.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def has_editors(self) -> bool:
        """Whether a bridge of this version lives; forgets those that do not.

        In a folder that is gone, or cannot be read, there is none.
        """
        try:
            return any([not _forgets(path) for path in list(self.editors.iterdir())])
        except OSError:
            return False

    def last_words(self) -> str:
        """What a server that ended said last."""
        try:
            said = self.log.read_text("utf-8", "replace")[-4096:].replace("\r", "\n")
        except OSError:
            return ""
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return lines[-1].removeprefix("suture: ") if lines else ""


def run_folder(settings: Settings) -> Folder:
    """The folder of this user."""
    return Folder(settings.cache / "run")


def hold(path: Path) -> int:
    """A descriptor that holds the lock on a file until it is closed, here and in all who have it.

    Raises `BlockingIOError` where somebody else holds it.
    """
    for _ in range(3):
        if (held := _try_hold(path)) is not None:
            return held
        time.sleep(0.005)  # who only looks whether it is held has it for a moment
    raise BlockingIOError(errno.EAGAIN, "it is held", str(path))


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock on a file."""
    try:
        held = _try_hold(path, 0)
    except FileNotFoundError:
        return False
    if held is None:
        return True
    os.close(held)
    return False


def _forgets(path: Path) -> bool:
    """Whether nobody held a file, which is gone then."""
    if (held := _try_hold(path, 0)) is None:
        return False
    # Under the lock: whoever opened it meanwhile sees that it is another one.
    path.unlink(missing_ok=True)
    os.close(held)
    return True


def _try_hold(path: Path, flags: int = os.O_CREAT) -> int | None:
    while True:
        held = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        if _is_at(held, path):
            return held
        os.close(held)  # it was deleted between


def _is_at(held: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(held), os.stat(path))
    except FileNotFoundError:
        return False


class Presence:
    """Says to shared servers of this version that an editor lives, while it needs one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: int | None = None

    def announce(self, folder: Folder) -> None:
        """Say so from now on; again where the folder was deleted meanwhile."""
        path = folder.editors / str(os.getpid())
        with self._lock:
            if self._held is not None and _is_at(self._held, path):
                return
            self._let_go()
            folder.make()
            self._held = hold(path)

    def end(self) -> None:
        """Say it no more."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def locate(options: ServerOptions, presence: Presence, url: str | None = None) -> Address:
    """Where to ask: `url`, that of the options, a server at the usual port, or the shared one.

    With the shared one `presence` is announced, with others it ends.

    Raises `Unanswered` where there is none and none is to be started.
    """
    try:
        settings = load_settings({"api_key_file": options.api_key_file})
        # Nobody typed a flag here.
        source = "api_key_file" if options.api_key_file is None else "suture.server.apiKeyFile"
        key = next(iter(read_api_keys(settings, source)), None)
        if fixed := url or options.url or settings.server:
            presence.end()
            return Address(fixed, key, trust(fixed, settings))
        usual = settings.url_at("127.0.0.1", settings.port)
        if _is_suture(usual, settings):
            presence.end()
            return Address(usual, key, trust(usual, settings))
        if not options.autostart:
            message = f"no server at {usual}, and suture.server.autostart is off"
            raise Unanswered("UNREACHABLE", message)
        folder = run_folder(settings)
        presence.announce(folder)
        port = find_or_start(folder, (*COMMAND, "--idle-minutes", str(options.idle_minutes)))
    except (SutureError, OSError, Timeout, ValueError) as error:
        raise Unanswered("ERROR", " ".join(str(error).split())) from error
    started = settings.url_at("127.0.0.1", port)
    return Address(
        url=started,
        api_key=key,
        trust=trust(started, settings),
        is_alive=lambda: is_held(folder.record),
        last_words=folder.last_words,
    )


def find_or_start(folder: Folder, command: Sequence[str]) -> int:
    """The port of the shared server, which `command` starts where none lives (M1, M2)."""
    folder.make()
    with FileLock(folder.path / "start.lock", timeout=START_TIMEOUT_S):
        try:
            held = hold(folder.record)
        except BlockingIOError:
            return int(json.loads(folder.record.read_text("utf-8"))["port"])
        try:
            return _start(folder, command, held)
        finally:
            os.close(held)


def _start(folder: Folder, command: Sequence[str], held: int) -> int:
    """The port of a server that is started, and has the lock on its record from now on."""
    port = _free_port()
    record = {"port": port, "version": VERSION}
    # Whoever finds the lock held finds the port, also where we end before the next line.
    _write(held, record)
    with ExitStack() as stack:
        log = stack.enter_context(open(folder.log, "wb", opener=_private))
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(held,),
            start_new_session=True,  # it outlives the editor that started it
        )
    # Its end is noticed by the lock; this only lets the system forget it.
    threading.Thread(target=process.wait, daemon=True).start()
    _write(held, record | {"pid": process.pid})
    return port


def _write(held: int, record: dict[str, object]) -> None:
    raw = json.dumps(record).encode()
    os.pwrite(held, raw, 0)
    os.ftruncate(held, len(raw))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _is_suture(url: str, settings: Settings) -> bool:
    """Whether Suture answers there, or asks for a key as Suture does. None is shown to it."""
    try:
        # Not the command line's client: it brings half of the server with it.
        answer = httpx2.get(
            f"{url}/v1/status",
            verify=trust(url, settings),
            trust_env=False,
            timeout=PROBE_TIMEOUT_S,
        )
    except httpx2.HTTPError as error:
        failure = tls_error(error)
        if isinstance(failure, ssl.SSLCertVerificationError):
            message = f"the certificate of {url} is not trusted: {failure.verify_message}"
            raise Unanswered("UNREACHABLE", message) from error
        return False
    if answer.status_code == 401:
        return 'realm="suture"' in answer.headers.get("www-authenticate", "")
    try:
        told = answer.json()
    except ValueError:
        return False
    return isinstance(told, dict) and isinstance(told.get("suture"), str)
