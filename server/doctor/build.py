"""The build of llama.cpp against the one this code was written for, and the GPU it could use.

The GPU is looked for in what the kernel and its driver show; nothing is initialized on it.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suture.server.doctor.finding import Finding, pip_install, shell
from suture.server.engine import libllama
from suture.server.errors import SetupError

_NVIDIA = "0x10de"
# PCI classes of displays and accelerators: an NVIDIA sound device is no GPU.
_GPU_CLASSES = ("0x03", "0x12")
_ASK_TIMEOUT_S = 10.0
_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Gpu:
    """An NVIDIA GPU as far as it is seen from here.

    `name` is what the driver says of it, None where it does not answer; `has_driver` whether the
    kernel has one, `has_cuda` whether programs find its library here.
    """

    name: str | None
    has_driver: bool
    has_cuda: bool


def build() -> Iterator[Finding]:
    """Everything about the build and the GPU."""
    gpu = find_gpu()
    try:
        report = libllama.inspect()
    except SetupError as error:
        yield Finding("problem", "build", str(error), _install(with_cuda=gpu is not None))
        return
    fix = pip_install("--no-cache-dir", f"llama-cpp-python=={libllama.PINNED_VERSION}")
    for problem in report.problems:
        yield Finding("problem", "build", problem, fix)
    if not report.problems:
        text = f"llama-cpp-python {report.version}: version, struct sizes, defaults"
        yield Finding("ok", "build", text)
    yield Finding("ok", "build", f"backends: {', '.join(report.backends) or 'none reported'}")
    yield Finding("ok", "build", f"built with: {_switched_on(report.system_info)}")
    if report.uses_amx:
        yield Finding(
            "note",
            "build",
            "the build uses AMX, which fails in virtual machines: it is left off, at some speed",
            _install(with_cuda=report.gpu_offload),
        )
    yield describe_gpu(gpu, report.gpu_offload)


def describe_gpu(gpu: Gpu | None, offloads: bool) -> Finding:
    """Whether GPU and build go together; `offloads`: the build can use one."""
    if gpu is None and not offloads:
        return Finding("ok", "gpu", "no NVIDIA GPU is seen, and the build is for the CPU")
    if gpu is None:
        return Finding("ok", "gpu", "GPU offload: yes")  # Metal, Vulkan and others
    name = gpu.name or "an NVIDIA GPU"
    if not gpu.has_driver:
        text = f"{name} is here, and no driver for it: it cannot be used"
        return Finding("note", "gpu", text, _install_driver())
    if not gpu.has_cuda:
        text = f"{name} is here, but no libcuda.so.1: start the container with --gpus all"
        return Finding("note", "gpu", text)
    if not offloads:
        needs = "" if shutil.which("nvcc") else "; building needs the CUDA toolkit (nvcc)"
        text = f"{name} is here, but the build is for the CPU: many times slower{needs}"
        return Finding("note", "gpu", text, _install(with_cuda=True))
    return Finding("ok", "gpu", f"GPU offload: yes, {name}")


def find_gpu(root: Path = Path("/")) -> Gpu | None:
    """The NVIDIA GPU of this machine; None where there is no sign of one."""
    has_driver = any((root / path).exists() for path in ("proc/driver/nvidia/version", "dev/dxg"))
    name = _told_by_driver()
    if not (has_driver or name or _on_the_bus(root)):
        return None
    return Gpu(name, has_driver or name is not None, _finds_cuda())


def _on_the_bus(root: Path) -> bool:
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((device / name).read_text() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor.strip() == _NVIDIA and kind.startswith(_GPU_CLASSES):
            return True
    return False


def _told_by_driver() -> str | None:
    """``NVIDIA H200, driver 550.54, 143771 MiB``"""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    query = "--query-gpu=name,driver_version,memory.total"
    try:
        told = subprocess.run(
            [command, query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    fields = told.stdout.partition("\n")[0].split(", ")
    if told.returncode != 0 or len(fields) != 3:
        return None
    return f"{fields[0]} (driver {fields[1]}, {fields[2]})"


def _finds_cuda() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")  # some milliseconds; it finds no device before it is asked to
    except OSError:
        return False
    return True


def _install(with_cuda: bool) -> str:
    """What builds llama.cpp for this machine."""
    if (_CHECKOUT / "Makefile").exists():
        return shell("make", "-C", _CHECKOUT, "setup", *(["CUDA=1"] if with_cuda else []))
    flags = "CMAKE_ARGS=-DGGML_CUDA=on " if with_cuda else ""
    package = f"llama-cpp-python=={libllama.PINNED_VERSION}"
    return flags + pip_install("--force-reinstall", "--no-cache-dir", package)


def _install_driver() -> str:
    if shutil.which("ubuntu-drivers"):
        return "sudo ubuntu-drivers install"
    if shutil.which("apt-get"):
        return "sudo apt-get install nvidia-driver"
    return "lspci -k -d 10de:  # and install the driver of your distribution"


def _switched_on(system_info: str) -> str:
    """``CPU : SSE3 = 1 | AVX = 0`` without what is off and without the ones."""
    parts = [part.strip() for part in system_info.split("|")]
    return " ".join(part.removesuffix(" = 1") for part in parts if not part.endswith(" = 0"))
