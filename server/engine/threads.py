"""How many threads an evaluation should use on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from suture.server.engine.limits import cpu_quota

_CPUS = Path("/sys/devices/system/cpu")


def best_thread_count() -> int:
    """Physical cores that this process may use: a second thread on a core only slows matrices."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    if allowed is None:
        return max((os.cpu_count() or 2) // 2, 1)
    cores = {_siblings(cpu) for cpu in allowed}
    quota = cpu_quota()
    return max(min(len(cores), len(cores) if quota is None else int(quota)), 1)


def _siblings(cpu: int) -> str:
    """Names the core that a logical CPU belongs to; itself where the system does not tell."""
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)
