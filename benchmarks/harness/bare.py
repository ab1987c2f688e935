"""llama.cpp and nothing else: load a model, make a context, decode a token.

    python benchmarks/harness/bare.py MODEL N_CTX N_THREADS

One line of JSON, seconds of each; then it holds all of that until its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from suture.server.engine import libllama

# As our server has it, whose context takes tokens of several sequences in one batch.
N_BATCH = 512
N_SEQ_MAX = 64


def main() -> None:
    path, n_ctx, n_threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lib = libllama.load()
    started = time.perf_counter()
    params = lib.llama_model_default_params()
    params.use_extra_bufts = not libllama.has_amx()
    model = lib.llama_model_load_from_file(os.fsencode(path), params)
    loaded = time.perf_counter()
    context = make_context(lib, model, n_ctx, n_threads)
    made = time.perf_counter()
    decode(lib, context)
    decoded = time.perf_counter()
    seconds = {
        "load_s": loaded - started,
        "context_s": made - loaded,
        "decode_s": decoded - made,
    }
    print(json.dumps(seconds), flush=True)
    sys.stdin.read()


def make_context(lib: Any, model: Any, n_ctx: int, n_threads: int) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx = n_ctx
    params.n_batch = params.n_ubatch = N_BATCH
    params.n_seq_max = params.n_outputs_max = params.n_outputs_max_per_seq = N_SEQ_MAX
    params.n_threads = params.n_threads_batch = n_threads
    params.kv_unified = True
    return lib.llama_init_from_model(model, params)


def decode(lib: Any, context: Any) -> None:
    batch = lib.llama_batch_init(1, 0, 1)
    batch.n_tokens = 1
    batch.token[0], batch.pos[0], batch.n_seq_id[0] = 100, 0, 1
    batch.seq_id[0][0], batch.logits[0] = 0, 1
    if lib.llama_decode(context, batch) != 0:
        raise SystemExit("llama_decode failed")


if __name__ == "__main__":
    main()
