"""`suture serve` around the worker that plays a script: `python fake_serve.py KIND [FLAG ...]`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from suture.server import cli
from suture.server.commands import serve
from suture.server.worker_process import start_worker

WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))

if __name__ == "__main__":
    kind, *flags = sys.argv[1:]
    vars(serve).update(
        start_worker=partial(start_worker, command=(*WORKER, kind)),
        # There is no model to be found, nor anything to run it with.
        with_model_files=lambda settings: settings,
        require_pulled=lambda settings: None,
        require_llama_cpp=lambda: None,
    )
    sys.exit(cli.main(["serve", *flags]))
