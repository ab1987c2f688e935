"""Build llama-cpp-python once for this machine, and install it into the running environment.

    python3 .dev/llama_wheel.py --make-venv .venv      make the environment itself
    .venv/bin/python .dev/llama_wheel.py               install the wheel, building it if need be

A build takes minutes, so its wheel is kept in Suture's cache, by version, kind of build and CPU.
The environment variable CUDA=1 builds for NVIDIA GPUs, PORTABLE=1 for any CPU of this kind,
CMAKE_ARGS is added to; with none of them an installed build of any kind is left as it is.
Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
MARKER = Path(sys.prefix) / ".llama-build"
BUILD_ARGS = (
    "-DLLAVA_BUILD=OFF",
    f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={ROOT / '.dev' / 'llama_build.cmake'}",
)
VARIANTS = {
    "native": "",
    "cuda": "-DGGML_CUDA=on",
    # One plugin for each level of CPU; the best that runs here is picked when it is loaded.
    # The plugins have to stand beside the library to be found.
    "portable": "-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
    " -DCMAKE_INSTALL_BINDIR=llama_cpp/lib",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--make-venv", metavar="DIR", type=Path)
    args = parser.parse_args()
    if args.make_venv is not None:
        make_venv(args.make_venv)
    else:
        install()


def make_venv(folder: Path) -> None:
    """Make the virtual environment unless it is there; say what is missing otherwise."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the one file that an older one may run
        fail(
            f"Python 3.11 or newer is needed, this is {platform.python_version()}: "
            "try `make PYTHON=python3.12 ...`"
        )
    if has_pip(folder / "bin" / "python"):
        return  # one that was interrupted before pip was in it is made again
    print(f"Making the environment {folder}", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True
    )
    if made.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        fail(
            "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv\n"
            + (made.stderr or made.stdout).strip()
        )


def has_pip(python: Path) -> bool:
    command = [str(python), "-m", "pip", "--version"]
    return python.exists() and subprocess.run(command, capture_output=True).returncode == 0


def install() -> None:
    """Leave the wanted build installed, at the least cost that can be had."""
    version, wanted = pinned_version(), wanted_variant()
    installed = MARKER.read_text() if MARKER.exists() else ""
    if installed_version() == version and wanted in (None, installed):
        return
    variant = wanted or "native"
    wheels = cache_folder() / "wheels" / f"llama-cpp-python-{version}-{build_key(variant)}"
    wheel = next(wheels.glob("*.whl"), None) or build(version, variant, wheels)
    print(f"Installing {wheel.name} ({variant})", flush=True)
    pip("install", "--quiet", "--force-reinstall", "--no-deps", str(wheel))
    pip("install", "--quiet", str(wheel))
    MARKER.write_text(variant)


def build(version: str, variant: str, wheels: Path) -> Path:
    """Build the wheel from its source distribution and keep it."""
    check_tools(variant)
    print(
        f"Building llama.cpp (llama-cpp-python {version}, {variant}) from source. This is done\n"
        "once and takes about 3 minutes on 2 cores; CUDA and portable builds take longer.",
        flush=True,
    )
    wheels.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheels.parent) as folder:
        run_build(version, variant, Path(folder) / "out", Path(folder) / "build.log")
        wheels.mkdir(exist_ok=True)
        built = next((Path(folder) / "out").glob("*.whl"))
        return Path(shutil.move(built, wheels / built.name))


def run_build(version: str, variant: str, out: Path, log: Path) -> None:
    environment = dict(os.environ)
    environment["CMAKE_ARGS"] = " ".join(
        (*BUILD_ARGS, *VARIANTS[variant].split(), os.environ.get("CMAKE_ARGS", ""))
    ).strip()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--verbose",
        "--no-deps",
        "--no-cache-dir",
        "--no-binary",
        "llama-cpp-python",
        "--wheel-dir",
        str(out),
        f"llama-cpp-python=={version}",
    ]
    started = time.monotonic()
    with (
        log.open("w") as sink,
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        shown = 0.0
        for line in process.stdout:
            sink.write(line)
            step = re.search(r"\[\s*(\d+)(?:/(\d+)|%)\]", line)
            if step and time.monotonic() - shown > (1 if sys.stderr.isatty() else 30):
                shown = time.monotonic()
                show_progress(step, shown - started)
    if process.returncode != 0:
        kept = Path(tempfile.gettempdir()) / "suture-llama-build.log"
        shutil.copy(log, kept)
        tail = "".join(log.read_text().splitlines(keepends=True)[-15:])
        fail(f"building llama-cpp-python failed, the whole log is {kept}:\n{tail}")
    end = "\n" if sys.stderr.isatty() else ""
    print(f"{end}Built in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def show_progress(step: re.Match[str], elapsed_s: float) -> None:
    done, total = int(step[1]), int(step[2] or 100)
    start, end = ("\r", "") if sys.stderr.isatty() else ("", "\n")
    print(
        f"{start}  compiling {done * 100 // total:3d} %  {elapsed_s:4.0f} s",
        end=end,
        file=sys.stderr,
        flush=True,
    )


def check_tools(variant: str) -> None:
    compiler = os.environ.get("CXX") or next(
        (name for name in ("c++", "g++", "clang++") if shutil.which(name)), None
    )
    if compiler is None or shutil.which(compiler.split()[0]) is None:
        fail(
            "a C++ compiler is needed to build llama.cpp; "
            "Debian and Ubuntu: apt-get install g++, macOS: xcode-select --install"
        )
    if variant == "cuda" and shutil.which("nvcc") is None and "CUDACXX" not in os.environ:
        fail("CUDA=1 needs the CUDA toolkit: nvcc is not on the PATH")


def wanted_variant() -> str | None:
    flags = [name for name in ("CUDA", "PORTABLE") if os.environ.get(name, "") not in ("", "0")]
    if len(flags) > 1:
        fail("CUDA=1 and PORTABLE=1 are two builds: give one of them")
    return flags[0].lower() if flags else None


def build_key(variant: str) -> str:
    """Names a build that runs here: a native one fits only CPUs with the same instructions."""
    told = (ROOT / ".dev" / "llama_build.cmake").read_text() + os.environ.get("CMAKE_ARGS", "")
    told += "" if variant == "portable" else cpu_features()
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    return f"{variant}-{platform.system().lower()}-{platform.machine()}-{digest}"


def cpu_features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def pinned_version() -> str:
    import tomllib  # an older Python has to get as far as being told that it is too old

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = [pin for pin in project["optional-dependencies"]["local"] if "llama" in pin]
    return str(pins[0].split("==")[1])


def installed_version() -> str | None:
    try:
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return None


def cache_folder() -> Path:
    if "SUTURE_CACHE" in os.environ:
        return Path(os.environ["SUTURE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suture"


def pip(*args: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *args]
    if subprocess.run(command).returncode != 0:
        fail(f"pip {args[0]} failed")


def fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
