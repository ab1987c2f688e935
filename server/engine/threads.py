"""How many threads an evaluation should use on this machine."""

from __future__ import annotations

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def best_thread_count() -> int:
    """Physical cores that this process may use: a second thread on a core only slows matrices."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    if allowed is None:
        return max((os.cpu_count() or 2) // 2, 1)
    cores = {_siblings(cpu) for cpu in allowed}
    return max(min(len(cores), _quota() or len(cores)), 1)


def _siblings(cpu: int) -> str:
    """Names the core that a logical CPU belongs to; itself where the system does not tell."""
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int | None:
    """Whole CPUs that a container may use, or None if it is not limited."""
    try:
        quota, period = _CGROUP_QUOTA.read_text().split()
        return max(int(quota) // int(period), 1)
    except (OSError, ValueError):  # no cgroup v2, or "max"
        return None
