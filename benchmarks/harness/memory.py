"""What a process holds in memory, as Linux tells."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Memory:
    """In MB (2**20 bytes). `rss_mb` is all that is resident; `own_mb` of it is not in files.

    A model file that is mapped is resident as far as it was read lately, whoever reads it.
    """

    rss_mb: float
    own_mb: float

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.rss_mb + other.rss_mb, self.own_mb + other.own_mb)


def memory_of(pid: int) -> Memory:
    values = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            values[name] = int(value.split()[0]) / 1024
    return Memory(values["VmRSS"], values["RssAnon"])


def tree_of(pid: int) -> list[int]:
    """The process and all that it has started, directly or not."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in children for found in tree_of(int(child)))]


@dataclass(frozen=True, slots=True)
class Held:
    """What a process has at one moment: memory, file descriptors and threads."""

    rss_mb: float
    own_mb: float
    n_files: int
    n_threads: int

    @classmethod
    def by(cls, pid: int) -> Held:
        memory = memory_of(pid)
        n_files, n_threads = (len(os.listdir(f"/proc/{pid}/{kind}")) for kind in ("fd", "task"))
        return cls(memory.rss_mb, memory.own_mb, n_files, n_threads)
