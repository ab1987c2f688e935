"""Single files out of wheels and sdists, streamed, in one pass over the archive.

What an archive calls its members says nothing about where they are written: each that is wanted has
its path from us, and nothing else, no link above all, is taken out.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from suture.server.models.source import SourceError

_CHUNK = 1 << 20


class MemberMissing(SourceError):
    """The archive is whole, and the file is not in it."""


def extract(archive: Path, members: Mapping[str, Path], max_bytes: int | None = None) -> None:
    """Write each member to its path, which then is whole or does not exist.

    A member is named as inside a wheel, and below the top folder of an sdist.
    Raises SourceError where a member is missing, larger than `max_bytes` or the archive broken.
    """
    missing = dict(members)
    try:
        with _open(archive) as files:
            for name, file in files:
                if (target := missing.pop(name, None)) is not None:
                    _write(file, target, max_bytes)
                if not missing:
                    return
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise SourceError(f"{archive.name} is broken ({error})") from None
    raise MemberMissing(f"{archive.name} has no {', '.join(sorted(missing))}")


@contextmanager
def _open(archive: Path) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    if tarfile.is_tarfile(archive):
        # "r|*" reads the archive once from start to end, in constant memory.
        with tarfile.open(archive, "r|*") as tar:
            yield _tar_members(tar)
    else:
        with zipfile.ZipFile(archive) as wheel:
            yield _zip_members(wheel, archive.suffix)


def _tar_members(tar: tarfile.TarFile) -> Iterator[tuple[str, IO[bytes]]]:
    for info in tar:
        if info.isreg() and (file := tar.extractfile(info)) is not None:
            yield _below_top(info.name), file


def _zip_members(archive: zipfile.ZipFile, suffix: str) -> Iterator[tuple[str, IO[bytes]]]:
    for info in archive.infolist():
        name = info.filename if suffix == ".whl" else _below_top(info.filename)
        with archive.open(info) as file:
            yield name, file


def _below_top(name: str) -> str:
    return name.removeprefix("./").partition("/")[2]


def _write(file: IO[bytes], target: Path, max_bytes: int | None) -> None:
    unfinished = target.with_name(f"{target.name}.unfinished")
    with unfinished.open("wb") as output:
        while chunk := file.read(_CHUNK):
            if max_bytes is not None and output.tell() + len(chunk) > max_bytes:
                # Of zeros, an archive may hold a thousand times what it weighs.
                output.truncate(0)
                raise SourceError(f"a file in it is larger than {max_bytes} bytes")
            output.write(chunk)
    unfinished.replace(target)
