"""llama.cpp driven without any guard: the calls that end the process.

Run as `python raw_llama.py MODEL CASE`. Each case makes one call that the engine must refuse;
the process is expected to die of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["GGML_NO_BACKTRACE"] = "1"

from llama_cpp import llama_cpp as lib

N_BATCH = 32


def context(model: Any, n_outputs_max: int = 0, n_seq_max: int = 4) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 256, N_BATCH, N_BATCH
    params.n_seq_max, params.n_outputs_max = n_seq_max, n_outputs_max
    params.kv_unified = True
    return lib.llama_init_from_model(model, params)


def batch(n_tokens: int, n_seq_id: int = 1, logits: bool = True) -> Any:
    made = lib.llama_batch_init(n_tokens, 0, 1)
    made.n_tokens = n_tokens
    for i in range(n_tokens):
        made.token[i], made.pos[i], made.n_seq_id[i] = 100 + i, i, n_seq_id
        made.seq_id[i][0] = 0
        made.logits[i] = logits and i == n_tokens - 1
    return made


def batch_too_large(model: Any) -> None:
    lib.llama_decode(context(model), batch(N_BATCH + 1))


def sequence_id_too_high(model: Any) -> None:
    lib.llama_memory_seq_rm(lib.llama_get_memory(context(model)), 256, -1, -1)


def copy_to_sequence_id_too_high(model: Any) -> None:
    lib.llama_memory_seq_cp(lib.llama_get_memory(context(model)), 0, 256, -1, -1)


def sampling_a_row_without_logits(model: Any) -> None:
    made = context(model)
    lib.llama_decode(made, batch(2))
    lib.llama_sampler_sample(lib.llama_sampler_init_greedy(), made, 0)


def fewer_outputs_than_sequences(model: Any) -> None:
    context(model, n_outputs_max=2, n_seq_max=4)


def more_outputs_than_allowed(model: Any) -> None:
    made = context(model, n_outputs_max=4, n_seq_max=4)
    asked = batch(8)
    for i in range(8):
        asked.logits[i] = 1
    lib.llama_decode(made, asked)


def token_without_sequence(model: Any) -> None:
    lib.llama_decode(context(model), batch(2, n_seq_id=0))


def forbidden_token_accepted(model: Any) -> None:
    vocab = lib.llama_model_get_vocab(model)
    grammar = lib.llama_sampler_init_grammar(vocab, b'root ::= "yes"', b"root")
    lib.llama_sampler_accept(grammar, 100)


CASES: dict[str, Callable[[Any], None]] = {
    case.__name__: case
    for case in (
        batch_too_large,
        sequence_id_too_high,
        copy_to_sequence_id_too_high,
        sampling_a_row_without_logits,
        fewer_outputs_than_sequences,
        more_outputs_than_allowed,
        token_without_sequence,
        forbidden_token_accepted,
    )
}


def main() -> None:
    path, case = sys.argv[1:]
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    CASES[case](model)
    print("survived")


if __name__ == "__main__":
    main()
