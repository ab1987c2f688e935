from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from suture.server.doctor.build import Gpu, describe_gpu, find_gpu

SEEN = "NVIDIA H200 (driver 550.54, 143771 MiB)"


@pytest.mark.parametrize(
    ("gpu", "offloads", "kind", "said", "fix"),
    [
        (None, False, "ok", "no NVIDIA GPU is seen", ""),
        (None, True, "ok", "GPU offload: yes", ""),
        (Gpu(SEEN, True, True), True, "ok", f"GPU offload: yes, {SEEN}", ""),
        (Gpu(SEEN, True, True), False, "note", "the build is for the CPU", "setup CUDA=1"),
        (Gpu(SEEN, True, False), True, "note", "start the container with --gpus all", ""),
        (Gpu(None, False, False), True, "note", "no driver for it", "nvidia-driver"),
    ],
)
def test_a_gpu_and_the_build_have_to_go_together(
    monkeypatch: pytest.MonkeyPatch,
    gpu: Gpu | None,
    offloads: bool,
    kind: str,
    said: str,
    fix: str,
) -> None:
    monkeypatch.setattr(
        shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None
    )
    found = describe_gpu(gpu, offloads)
    assert found.kind == kind and said in found.text and found.fix.endswith(fix)


def test_building_for_a_gpu_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler, told in ((None, True), ("/usr/local/cuda/bin/nvcc", False)):
        monkeypatch.setattr(shutil, "which", lambda name, found=compiler: found)
        assert ("needs the CUDA toolkit" in describe_gpu(Gpu(SEEN, True, True), False).text) is told


def nvidia_smi(folder: Path, script: str) -> None:
    command = folder / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def test_a_gpu_is_found_by_its_driver_or_on_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    assert find_gpu(tmp_path) is None
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x040300\n")  # its sound
    assert find_gpu(tmp_path) is None
    (device / "class").write_text("0x030200\n")
    found = find_gpu(tmp_path)
    assert found is not None and (found.name, found.has_driver) == (None, False)
    nvidia_smi(path, "echo 'NVIDIA H200, 550.54, 143771 MiB'")
    found = find_gpu(tmp_path)
    assert found is not None and (found.name, found.has_driver) == (SEEN, True)
    nvidia_smi(path, "echo 'NVIDIA-SMI has failed because it could not communicate'; exit 9")
    found = find_gpu(tmp_path)
    assert found is not None and (found.name, found.has_driver) == (None, False)
