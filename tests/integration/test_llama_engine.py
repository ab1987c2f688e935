"""The tree primitive on a real model: what is evaluated together equals what is evaluated apart."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from suture.server.engine.abort import AbortFlag
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.protocol import Aborted, Logits, SequenceId
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError, ModelError

pytestmark = pytest.mark.model

PROMPT = b"def count(path):\n    with open(path) as file:\n        return"


def evaluate(engine: LlamaEngine, sequence: SequenceId, tree: TokenTree) -> Logits:
    [rows] = engine.evaluate([(sequence, tree)])
    return rows.copy()


def prompted(engine: LlamaEngine, piece: bytes = PROMPT) -> SequenceId:
    """A sequence that holds the text."""
    sequence = engine.open()
    ids = engine.encode(piece)
    evaluate(engine, sequence, TokenTree.chain(ids))
    engine.commit(sequence, len(ids) - 1)
    return sequence


def row_after(engine: LlamaEngine, tokens: Iterable[int]) -> Logits:
    """The logits after these tokens, computed in one chain on a sequence of its own."""
    sequence = engine.open()
    rows = evaluate(engine, sequence, TokenTree.chain(list(tokens)))
    engine.release(sequence)
    row: Logits = rows[0]
    return row


def close_to(left: Logits, right: Logits) -> bool:
    # The shape of a batch moves quantized logits by some tenths; another token by whole units.
    difference = (left - left.mean()) - (right - right.mean())
    return bool(np.abs(difference).mean() < 0.3)


def test_each_path_of_a_tree_has_the_logits_of_its_own_chain(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    prompt = list(engine.tokens(sequence))
    a, b, c, d, e = engine.encode(b" sum len file")[:3] + engine.encode(b"(x")[:2]
    tree = TokenTree((a, b, c, d, e), (-1, -1, 0, 0, 1), (0, 1, 2, 3, 4))
    rows = evaluate(engine, sequence, tree)
    assert not close_to(rows[0], rows[1]) and not close_to(rows[2], rows[3])
    for node in range(5):
        path = [tree.tokens[i] for i in tree.path(node)]
        assert close_to(rows[node], row_after(engine, prompt + path)), node


def test_commit_keeps_one_path_and_drops_the_rest(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    prompt = list(engine.tokens(sequence))
    a, b, c = engine.encode(b" sum len file")[:3]
    evaluate(engine, sequence, TokenTree((a, b, c), (-1, -1, 0), (2,)))
    engine.commit(sequence, 2)
    assert list(engine.tokens(sequence)) == [*prompt, a, c]
    next_row = evaluate(engine, sequence, TokenTree.chain([b]))[0]
    assert close_to(next_row, row_after(engine, [*prompt, a, c, b]))


def test_two_trees_in_one_batch_do_not_see_each_other(engine: LlamaEngine) -> None:
    first, second = prompted(engine), prompted(engine, b"The capital of France")
    tokens = [list(engine.tokens(sequence)) for sequence in (first, second)]
    a, b = engine.encode(b" is len")[:2]
    fork = TokenTree((a, b), (-1, -1), (0, 1))
    rows = [row.copy() for row in engine.evaluate([(first, fork), (second, fork)])]
    for i in range(2):
        for j, token in enumerate((a, b)):
            assert close_to(rows[i][j], row_after(engine, [*tokens[i], token]))


def test_what_is_not_committed_leaves_no_trace(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    tokens = list(engine.tokens(sequence))
    probe = TokenTree.chain(engine.encode(b" len"))
    before = evaluate(engine, sequence, probe)
    evaluate(engine, sequence, TokenTree((5, 6, 7), (-1, -1, 0), (1, 2)))
    assert np.array_equal(evaluate(engine, sequence, probe), before)
    assert list(engine.tokens(sequence)) == tokens


def test_a_sequence_cut_back_goes_on_as_if_never_longer(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    tokens = list(engine.tokens(sequence))
    assert engine.truncate(sequence, 4) == 4
    row = evaluate(engine, sequence, TokenTree.chain(tokens[4:]))[0]
    assert close_to(row, row_after(engine, tokens))


@pytest.mark.parametrize("branching", [False, True])
def test_an_abort_cuts_every_sequence_of_the_batch_back(
    engine: LlamaEngine, branching: bool
) -> None:
    first, second = prompted(engine), prompted(engine, b"import os\n")
    held = [list(engine.tokens(sequence)) for sequence in (first, second)]
    long_chain = TokenTree.chain([100 + i for i in range(300)])
    tree = TokenTree((5, 6, 7), (-1, -1, 0), (1, 2)) if branching else TokenTree.chain([5, 6, 7])
    abort = AbortFlag()
    timer = threading.Timer(0.05, abort.set)
    timer.start()
    with pytest.raises(Aborted):
        engine.evaluate([(first, long_chain), (second, tree)], abort)
    timer.join()
    for sequence, tokens in zip((first, second), held, strict=True):
        assert list(engine.tokens(sequence)) == tokens
        row = evaluate(engine, sequence, TokenTree.chain([9]))[0]
        assert close_to(row, row_after(engine, [*tokens, 9]))


def test_a_full_context_is_an_error_that_changes_nothing(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    fill = TokenTree.chain([100] * 256, wants=())
    with pytest.raises(EngineError, match="no room left"):
        for _ in range(20):
            engine.evaluate([(sequence, fill)])
            engine.commit(sequence, 255)
    held = len(engine.tokens(sequence))
    assert 1024 < held <= engine.n_ctx
    engine.truncate(sequence, 16)
    assert evaluate(engine, sequence, TokenTree.chain([9])).shape[0] == 1


def test_leaves_give_their_sequence_ids_back(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    fork = TokenTree(tuple(range(100, 130)), (-1,) * 30, (0,))
    for _ in range(5):
        evaluate(engine, sequence, fork)
    engine.commit(sequence, 3)
    assert [engine.open() for _ in range(60)]


def test_released_sequences_are_empty_when_opened_again(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    engine.release(sequence)
    again = engine.open()
    assert list(engine.tokens(again)) == []
    ids = engine.encode(PROMPT)
    assert close_to(evaluate(engine, again, TokenTree.chain(ids))[0], row_after(engine, ids))


def test_loading_can_be_stopped(small_model: Path) -> None:
    shares: list[float] = []

    def stop(share: float) -> bool:
        shares.append(share)
        return False

    with pytest.raises(ModelError, match="cannot load"):
        LlamaEngine(small_model, n_threads=1, on_progress=stop)
    assert len(shares) == 1


def test_only_the_engines_thread_may_call_it(engine: LlamaEngine) -> None:
    caught: list[BaseException] = []

    def call() -> None:
        try:
            engine.open()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "thread" in str(caught[0])


def test_another_thread_may_encode(engine: LlamaEngine) -> None:
    encoded: list[list[int]] = []
    thread = threading.Thread(target=lambda: encoded.append(engine.encode(PROMPT)))
    thread.start()
    thread.join()
    assert encoded == [engine.encode(PROMPT)]


def test_f1_sentinels_in_user_text_are_text(engine: LlamaEngine) -> None:
    ids = engine.encode(b"x = '<|endoftext|>' <|im_start|>")
    assert not any(engine.vocabulary.is_special(token_id) for token_id in ids)


def next_row(engine: LlamaEngine, sequence: SequenceId, token: int) -> Logits:
    row: Logits = evaluate(engine, sequence, TokenTree.chain([token]))[0]
    return row


def test_a_fork_goes_on_as_its_source_would_and_shares_its_cells(engine: LlamaEngine) -> None:
    source = prompted(engine)
    n_free = engine.n_free
    token = engine.encode(b" len")[0]
    expected = next_row(engine, source, token)
    whole, half = engine.fork(source, 10_000), engine.fork(source, 5)

    assert engine.n_free == n_free
    assert close_to(next_row(engine, whole, token), expected)
    engine.commit(whole, 0)
    assert list(engine.tokens(half)) == list(engine.tokens(source))[:5]
    assert close_to(
        next_row(engine, half, token), row_after(engine, [*engine.tokens(source)[:5], token])
    )
    assert (engine.only_here(source), engine.only_here(whole)) == (0, 1)
    engine.release(source)
    assert close_to(
        next_row(engine, whole, token), row_after(engine, [*engine.tokens(whole), token])
    )


def test_sequences_of_different_length_are_evaluated_together(engine: LlamaEngine) -> None:
    source = prompted(engine)
    fork = engine.fork(source, 7)
    token = engine.encode(b" sum")[0]
    longer, shorter = engine.evaluate(
        [(source, TokenTree.chain([token])), (fork, TokenTree.chain([token]))]
    )

    assert close_to(longer[0].copy(), row_after(engine, [*engine.tokens(source), token]))
    assert close_to(shorter[0].copy(), row_after(engine, [*engine.tokens(fork), token]))


def test_what_was_saved_is_loaded_again_after_its_sequence_is_gone(engine: LlamaEngine) -> None:
    sequence = prompted(engine)
    token = engine.encode(b" len")[0]
    expected = next_row(engine, sequence, token)
    saved = engine.save(sequence)
    n_free = engine.n_free
    engine.release(sequence)
    assert engine.n_free == n_free + len(saved.tokens)
    loaded = engine.load(saved)

    assert tuple(engine.tokens(loaded)) == saved.tokens
    assert engine.n_free == n_free
    assert close_to(next_row(engine, loaded, token), expected)


def test_what_does_not_fit_is_not_loaded(engine: LlamaEngine) -> None:
    saved = engine.save(prompted(engine))
    filler = engine.open()
    while engine.n_free >= len(saved.tokens):
        n = min(engine.n_batch, engine.n_free - len(saved.tokens) + 1)
        evaluate(engine, filler, TokenTree.chain([5] * n, wants=()))
        engine.commit(filler, n - 1)

    with pytest.raises(EngineError, match="no room"):
        engine.load(saved)
    engine.release(filler)
    assert tuple(engine.tokens(engine.load(saved))) == saved.tokens


def test_counted_cells_are_the_librarys(engine: LlamaEngine) -> None:
    """As many tokens fit as are said to be free, with forks that were cut and released."""
    source = prompted(engine)
    fork = engine.fork(source, 6)
    engine.truncate(source, 9)
    engine.release(source)
    n = engine.n_free
    assert n == engine.n_ctx - len(engine.tokens(fork))
    filler = engine.open()
    while n:
        size = min(n, engine.n_batch)
        evaluate(engine, filler, TokenTree.chain([5] * size, wants=()))
        engine.commit(filler, size - 1)
        n -= size
    with pytest.raises(EngineError, match="no room"):
        evaluate(engine, filler, TokenTree.chain([5]))
