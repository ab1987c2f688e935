from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from support.http_server import settings
from suture.server.doctor import machine
from suture.server.engine import limits
from suture.server.engine.limits import Memory, cpu_quota, memory

MEMINFO = "MemTotal:  16000 kB\nMemFree: 100 kB\nMemAvailable:   8000 kB\nHugePages_Total: 0\n"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "cpus"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}, 1.0),
        ("3:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "-1"}, None),
        (
            "3:cpu:/host/path\n",
            {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        ("", {"cpu.max": "100000 100000\n"}, None),
    ],
)
def test_the_quota_is_the_least_of_all_groups_around_us(
    tmp_path: Path, groups: str, files: Mapping[str, str], cpus: float | None
) -> None:
    told = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    assert cpu_quota(tree(tmp_path, {"proc/self/cgroup": groups, **told})) == cpus


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "max"}, None),
        ("0::/in/ner\n", {"in/memory.max": "1000", "in/ner/memory.max": "2000"}, 1000),
        ("4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("4:memory:/x\n", {"memory/memory.limit_in_bytes": "512"}, 512),
    ],
)
def test_memory_is_what_there_is_and_what_we_may_have(
    tmp_path: Path, groups: str, files: Mapping[str, str], limit: int | None
) -> None:
    told = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    root = tree(tmp_path, {"proc/self/cgroup": groups, "proc/meminfo": MEMINFO, **told})
    assert memory(root) == Memory(16_384_000, 8_192_000, limit)


def test_a_system_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    assert memory(tmp_path) == Memory(None, None, None)
    assert cpu_quota(tmp_path) is None
    assert limits.memory().total is not None


@pytest.mark.parametrize(
    ("quota", "threads", "kind", "fix"),
    [
        (None, 0, "ok", ""),
        (None, 64, "note", "--threads 0"),
        (2.0, 2, "ok", ""),
        (2.0, 8, "note", "--threads 2"),
        (0.5, 0, "note", "--threads 1"),
    ],
)
def test_threads_are_held_against_what_a_container_gives(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: int, kind: str, fix: str
) -> None:
    monkeypatch.setattr(machine, "best_thread_count", lambda: 8)
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    found = machine.threads(settings(threads=str(threads)))
    assert found.kind == kind and found.fix.endswith(fix)
