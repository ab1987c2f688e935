"""The machine: threads, and where models are kept."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from suture.server.doctor.finding import Finding, shell, suture
from suture.server.engine.limits import cpu_quota
from suture.server.engine.threads import best_thread_count
from suture.server.models.progress import megabytes
from suture.server.settings import Settings

# Beside models, vocabularies and profiles are kept.
_SPARE_BYTES = 100_000_000


def threads(settings: Settings) -> Finding:
    """Whether the threads asked for are those that are fastest."""
    best, asked = best_thread_count(), settings.threads
    quota = cpu_quota()
    if quota is not None and (asked or best) > max(quota, 1):
        return Finding(
            "note",
            "threads",
            f"threads: {asked or best}, but this container has the time of {quota:g} CPUs: they"
            " wait for each other",
            suture("serve", "--threads", str(max(int(quota), 1))),
        )
    if asked > best:
        text = f"threads: {asked}, more than the {best} physical cores: slower"
        return Finding("note", "threads", text, suture("serve", "--threads", "0"))
    given = "" if quota is None else f" (a container with {quota:g} CPUs)"
    text = f"threads: {asked or best} of {best} physical cores{given}"
    return Finding("ok", "threads", text)


def cache(settings: Settings, wanted_bytes: int | None) -> Iterator[Finding]:
    """Whether models can be kept, and one more of so many bytes; None: none is to come."""
    folder = settings.cache
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        text = f"cache {folder} cannot be written: {error.strerror or error}"
        yield Finding("problem", "cache", text, 'export SUTURE_CACHE="$(mktemp -d)"')
        return
    free = shutil.disk_usage(folder).free
    text = f"cache {folder}, {megabytes(free)} free"
    if wanted_bytes is None:
        yield Finding("ok", "cache", text)
    elif free < wanted_bytes + _SPARE_BYTES:
        text += f", and the model has {megabytes(wanted_bytes)}"
        yield Finding("problem", "cache", text, _make_room(folder))
    else:
        yield Finding("ok", "cache", f"{text} for a model of {megabytes(wanted_bytes)}")


def _make_room(folder: Path) -> str:
    """What shows where room is, and what takes it."""
    return f"df -h; {shell('du', '-sh', folder)}/*; # then export SUTURE_CACHE=DIR"
