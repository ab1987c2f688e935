"""`suture serve` for all editors of a user: it ends some time after the last of them.

Started by the first bridge (`launch.py`), with its record as an open descriptor, whose lock says
that it lives. The settings are the user's, but for address and port.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

from suture.lsp.launch import Folder, run_folder
from suture.server import cli
from suture.server.settings import load_settings

CHECK_S = 5.0


def main() -> int:
    """Serve until no editor has lived for a while; the exit status of `suture serve`."""
    parser = argparse.ArgumentParser(prog="suture.lsp.shared_server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--idle-minutes", type=float, required=True)
    args = parser.parse_args()
    folder = run_folder(load_settings())
    watch = threading.Thread(target=end_when_idle, args=(folder, args.idle_minutes * 60))
    watch.daemon = True
    watch.start()
    return cli.main(["serve", "--host", "127.0.0.1", "--port", str(args.port)])


def end_when_idle(folder: Folder, idle_s: float, check_s: float = CHECK_S) -> None:
    """Ask this process to stop once no editor has lived for so long."""
    needed_at = time.monotonic()
    while time.monotonic() - needed_at < idle_s:
        time.sleep(min(check_s, idle_s))
        if folder.has_editors():
            needed_at = time.monotonic()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
