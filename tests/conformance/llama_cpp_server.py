"""llama.cpp's own server, from the `xllamacpp` wheel: no build, but a process of its own.

    python -m conformance.llama_cpp_server MODEL.gguf [--port N] [--ctx N] [--threads N] [--slots N]

Prints its URL once the model is loaded, and serves until it is ended.
"""

from __future__ import annotations

import argparse
import importlib
import signal
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=0, help="0 is any that is free")
    parser.add_argument("--ctx", type=int, default=8192, help="tokens, which the slots share")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=4)
    given = parser.parse_args()
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    params.n_ctx = given.ctx
    params.n_parallel = given.slots
    params.kv_unified = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    params.endpoint_metrics = params.endpoint_slots = True
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
