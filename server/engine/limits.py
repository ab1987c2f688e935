"""What of the machine this process may use: a container shows more than it gives.

Control groups of version 2 and of version 1 are read, each with the groups that ours stands in: the
least of their limits holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# What version 1 says where there is no limit is a number of this size.
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of main memory.

    `free` can be had without swapping, files kept in memory given up; None: the system does not
    tell. `limit` is what this process may have with all that share its control group, None: any.
    """

    total: int | None
    free: int | None
    limit: int | None


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs whose time the control group gives, 1.5 say; None: all there are."""
    quotas = [_quota(folder) for folder in _groups(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory(root: Path = Path("/")) -> Memory:
    """What there is of main memory, and what of it we may have."""
    told = _meminfo(root)
    limits = [
        limit
        for folder in _groups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _number(folder / name)) is not None and limit < _UNLIMITED
    ]
    return Memory(told.get("MemTotal"), told.get("MemAvailable"), min(limits, default=None))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of our control group for a controller and of those around it, inner ones first.

    In a container the path that is told may be the host's, and what stands at the top is ours.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / controller
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for part in (inner, *inner.parents):
            yield top / part


def _quota(folder: Path) -> float | None:
    told = _lines(folder / "cpu.max")
    if told:
        quota, _, period = told[0].partition(" ")
        return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None
    limit, per = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return limit / per if limit and per else None


def _meminfo(root: Path) -> dict[str, int]:
    fields = (line.replace(":", " ").split() for line in _lines(root / "proc/meminfo"))
    return {field[0]: int(field[1]) * 1024 for field in fields if len(field) == 3}


def _number(path: Path) -> int | None:
    told = _lines(path)
    return int(told[0]) if told and told[0].isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
