"""The calls of raw_llama.py made through the engine, which must refuse each and live on.

Run as `python guarded_llama.py MODEL CASE`; prints the refusal, then completes a token to show
that nothing was harmed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from suture.server.engine import llama
from suture.server.engine.grammar import Grammar
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.protocol import SequenceId
from suture.server.engine.tree import TokenTree


def batch_too_large(engine: LlamaEngine, sequence: SequenceId) -> None:
    engine.evaluate([(sequence, TokenTree.chain([100] * (engine.n_batch + 1)))])


def sequence_id_too_high(engine: LlamaEngine, sequence: SequenceId) -> None:
    engine.truncate(SequenceId(256), 0)


def copy_to_sequence_id_too_high(engine: LlamaEngine, sequence: SequenceId) -> None:
    # Leaves get ids of their own, and no more than are free: 70 do not fit.
    forks = TokenTree((5, *range(100, 170)), (-1,) + (0,) * 70, (0,))
    engine.evaluate([(sequence, forks)])


def sampling_a_row_without_logits(engine: LlamaEngine, sequence: SequenceId) -> None:
    engine.evaluate([(sequence, TokenTree.chain([100, 101], wants=()))])
    engine._row(0)


def fewer_outputs_than_sequences(engine: LlamaEngine, sequence: SequenceId) -> None:
    llama.N_ROWS = llama.N_SEQ_MAX - 1
    engine._make_context(Path("model.gguf"), 0, 1)


def more_outputs_than_allowed(engine: LlamaEngine, sequence: SequenceId) -> None:
    n = engine.n_rows + 1
    engine.evaluate([(sequence, TokenTree.chain([100] * n, wants=range(n)))])


def token_without_sequence(engine: LlamaEngine, sequence: SequenceId) -> None:
    engine._batch.clear()
    engine._batch.add(TokenTree.chain([100]), 0, [[]])


def forbidden_token_accepted(engine: LlamaEngine, sequence: SequenceId) -> None:
    Grammar(engine.vocab, 'root ::= "yes"', engine.vocabulary).accept(100)


CASES: dict[str, Callable[[LlamaEngine, SequenceId], None]] = {
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
    engine = LlamaEngine(Path(path), n_threads=1, n_ctx=2048)
    sequence = engine.open()
    try:
        CASES[case](engine, sequence)
    except Exception as error:
        print(f"refused: {type(error).__name__}: {error}")
    [rows] = engine.evaluate([(sequence, TokenTree.chain([100]))])
    assert rows.shape == (1, engine.vocabulary.n_vocab)
    engine.close()
    print("lives")


if __name__ == "__main__":
    main()
