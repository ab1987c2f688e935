"""The queue that encodes several texts in one call: who waits for whom, and who gets what."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suture.server.codec import Encoder
from suture.server.encode_queue import MAX_BATCH_BYTES, EncodeQueue

LONG_S = 20.0


class Recording:
    """A tokenizer of bytes plus `shift`, which keeps its batches and can be held up."""

    def __init__(self, shift: int = 0) -> None:
        self.shift = shift
        self.batches: list[list[bytes]] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()
        self.encoder = Encoder(self.encode, self.encode_all)

    def encode(self, piece: bytes) -> Sequence[int]:
        return self._encoded([piece])[0]

    def encode_all(self, pieces: Sequence[bytes]) -> Sequence[Sequence[int]]:
        return self._encoded(pieces)

    def ids(self, piece: bytes) -> list[int]:
        return [byte + self.shift for byte in piece]

    def _encoded(self, pieces: Sequence[bytes]) -> list[list[int]]:
        self.batches.append(list(pieces))
        self.entered.release()
        assert self.go.wait(LONG_S)
        if any(b"bad" in piece for piece in pieces):
            raise ValueError("bad")
        return list(map(self.ids, pieces))


@contextlib.contextmanager
def queue_of(
    max_texts: int, wait_s: float = 0.0, n_planners: int = 1
) -> Iterator[tuple[EncodeQueue, Recording]]:
    """A queue for so many planners, and a tokenizer."""
    queue, tokenizer = EncodeQueue(max_texts, wait_s), Recording()
    with contextlib.ExitStack() as planners:
        for _ in range(n_planners):
            planners.enter_context(queue.planner())
        try:
            yield queue, tokenizer
        finally:
            tokenizer.go.set()
            queue.close()


@contextlib.contextmanager
def held(queue: EncodeQueue, tokenizer: Recording) -> Iterator[None]:
    """The queue's thread is busy with a first text."""
    tokenizer.go.clear()
    first = queue.put(b"first", tokenizer.encoder)
    assert tokenizer.entered.acquire(timeout=LONG_S)
    yield
    tokenizer.go.set()
    assert first.result(LONG_S) == tokenizer.ids(b"first")


def results(tokens: Sequence[Future[Sequence[int]]]) -> list[list[int]]:
    return [list(each.result(LONG_S)) for each in tokens]


def test_q1_texts_that_came_meanwhile_are_encoded_in_one_call_in_their_order() -> None:
    with queue_of(3) as (queue, tokenizer):
        pieces = [b"a", b"bb", b"c", b"dd", b"e"]
        with held(queue, tokenizer):
            tokens = [queue.put(piece, tokenizer.encoder) for piece in pieces]
        assert results(tokens) == [tokenizer.ids(piece) for piece in pieces]
        assert tokenizer.batches == [[b"first"], pieces[:3], pieces[3:]]
        assert queue.counters.batch_texts.total == 6
        assert queue.counters.batches_cut == 0


def test_q1_a_tokenizer_of_one_text_at_a_time_gets_them_one_at_a_time() -> None:
    with queue_of(8) as (queue, tokenizer):
        tokenizer.encoder = Encoder(tokenizer.encode)
        with held(queue, tokenizer):
            tokens = [queue.put(piece, tokenizer.encoder) for piece in (b"a", b"b")]
        assert results(tokens) == [[97], [98]]
        assert tokenizer.batches == [[b"first"], [b"a"], [b"b"]]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40).filter(lambda piece: b"bad" not in piece), st.integers(0, 2)
        ),
        max_size=60,
    ),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.0005]),
)
def test_q1_q2_many_threads_get_what_their_encoder_gives_alone(
    texts: list[tuple[bytes, int]], max_texts: int, wait_s: float
) -> None:
    tokenizers = [Recording(shift) for shift in range(3)]
    with queue_of(max_texts, wait_s) as (queue, _), ThreadPoolExecutor(12) as threads:

        def ask(text: tuple[bytes, int]) -> Sequence[int]:
            piece, flags = text
            with queue.planner():
                return queue.put(piece, tokenizers[flags].encoder).result(LONG_S)

        got = list(threads.map(ask, texts))
    for (piece, flags), ids in zip(texts, got, strict=True):
        assert ids == tokenizers[flags].ids(piece)
    batches = [batch for tokenizer in tokenizers for batch in tokenizer.batches]
    assert max(map(len, batches), default=0) <= max_texts
    assert sum(map(len, batches)) == len(texts)
    assert queue.counters.batch_texts.total == len(texts)


def test_q2_other_flags_are_never_merged_and_each_cut_is_counted() -> None:
    with queue_of(8) as (queue, plain):
        markup = Recording(shift=1000)
        with held(queue, plain):
            tokens = [
                queue.put(b"a", plain.encoder),
                queue.put(b"b", markup.encoder),
                queue.put(b"c", plain.encoder),
                queue.put(b"d", markup.encoder),
            ]
        assert results(tokens) == [[97], [1098], [99], [1100]]
        assert plain.batches == [[b"first"], [b"a", b"c"]]
        assert markup.batches == [[b"b", b"d"]]
        assert queue.counters.batches_cut == 1


def test_q2_a_full_batch_was_not_cut_by_flags() -> None:
    with queue_of(2) as (queue, plain):
        markup = Recording(shift=1000)
        with held(queue, plain):
            tokens = [queue.put(b"a", plain.encoder), queue.put(b"b", plain.encoder)]
            tokens.append(queue.put(b"c", markup.encoder))
        assert results(tokens) == [[97], [98], [1099]]
        assert queue.counters.batches_cut == 0


def test_q3_who_plans_alone_does_not_wait_for_more() -> None:
    with queue_of(8, wait_s=LONG_S) as (queue, tokenizer):
        assert queue.has_one_planner
        assert queue.put(b"a", tokenizer.encoder).result(LONG_S / 2) == [97]


def test_q3_nobody_waits_where_all_who_plan_have_brought_a_text() -> None:
    with queue_of(8, wait_s=LONG_S, n_planners=3) as (queue, tokenizer):
        assert not queue.has_one_planner
        tokens = [queue.put(piece, tokenizer.encoder) for piece in (b"a", b"b", b"c")]
        assert [each.result(LONG_S / 2) for each in tokens] == [[97], [98], [99]]
        assert tokenizer.batches == [[b"a", b"b", b"c"]]


def test_q3_nobody_waits_where_a_batch_is_full() -> None:
    with queue_of(2, wait_s=LONG_S, n_planners=9) as (queue, tokenizer):
        tokens = [queue.put(piece, tokenizer.encoder) for piece in (b"a", b"b")]
        assert [each.result(LONG_S / 2) for each in tokens] == [[97], [98]]


def test_q3_a_text_waits_so_long_for_one_that_may_come() -> None:
    with queue_of(8, wait_s=0.05, n_planners=2) as (queue, tokenizer):
        began = time.monotonic()
        assert queue.put(b"a", tokenizer.encoder).result(LONG_S) == [97]
        assert 0.04 < time.monotonic() - began < LONG_S / 2


def test_q3_who_stops_planning_is_not_waited_for() -> None:
    with queue_of(8, wait_s=LONG_S) as (queue, tokenizer):
        with queue.planner():
            tokens = queue.put(b"a", tokenizer.encoder)
            time.sleep(0.02)
            assert not tokens.done()
        assert tokens.result(LONG_S / 2) == [97]


def test_q4_an_error_is_that_of_one_text() -> None:
    with queue_of(8) as (queue, tokenizer):
        with held(queue, tokenizer):
            pieces = (b"a", b"bad", b"c")
            tokens = [queue.put(piece, tokenizer.encoder) for piece in pieces]
        assert results([tokens[0], tokens[2]]) == [[97], [99]]
        with pytest.raises(ValueError, match="bad"):
            tokens[1].result(LONG_S)
        assert queue.put(b"d", tokenizer.encoder).result(LONG_S) == [100]


def test_q4_a_panic_of_an_extension_ends_neither_thread_nor_others() -> None:
    class Panic(BaseException):
        pass

    def panics(piece: bytes) -> Sequence[int]:
        raise Panic

    with queue_of(8) as (queue, tokenizer):
        with pytest.raises(Panic):
            queue.put(b"a", Encoder(panics)).result(LONG_S)
        assert queue.put(b"a", tokenizer.encoder).result(LONG_S) == [97]


def test_q4_a_text_taken_back_takes_no_other_with_it() -> None:
    with queue_of(8) as (queue, tokenizer):
        with held(queue, tokenizer):
            tokens = [queue.put(piece, tokenizer.encoder) for piece in (b"a", b"b", b"c")]
            assert tokens[1].cancel()
        assert results([tokens[0], tokens[2]]) == [[97], [99]]
        assert tokenizer.batches == [[b"first"], [b"a", b"c"]]


def test_q4_where_all_were_taken_back_the_queue_goes_on() -> None:
    with queue_of(8) as (queue, tokenizer):
        with held(queue, tokenizer):
            assert queue.put(b"a", tokenizer.encoder).cancel()
        assert queue.put(b"b", tokenizer.encoder).result(LONG_S) == [98]
        assert tokenizer.batches == [[b"first"], [b"b"]]


def test_q4_closing_ends_every_wait_but_that_for_the_batch_under_way() -> None:
    with queue_of(8) as (queue, tokenizer):
        tokenizer.go.clear()
        under_way = queue.put(b"a", tokenizer.encoder)
        assert tokenizer.entered.acquire(timeout=LONG_S)
        waiting = queue.put(b"b", tokenizer.encoder)
        closing = threading.Thread(target=queue.close)
        closing.start()
        with pytest.raises(CancelledError):
            waiting.result(LONG_S)
        with pytest.raises(CancelledError):
            queue.put(b"c", tokenizer.encoder).result(LONG_S)
        assert not under_way.done()
        tokenizer.go.set()
        closing.join(LONG_S)
        assert not closing.is_alive()
        assert under_way.result(0) == [97]


@pytest.mark.parametrize("size", [MAX_BATCH_BYTES // 2, MAX_BATCH_BYTES // 2 + 1])
def test_a_batch_is_bounded_in_bytes(size: int) -> None:
    pieces = [bytes([at]) * size for at in range(3)]
    with queue_of(8) as (queue, tokenizer):
        with held(queue, tokenizer):
            tokens = [queue.put(piece, tokenizer.encoder) for piece in pieces]
        results(tokens)
        n_fitting = MAX_BATCH_BYTES // size
        sizes = [len(batch) for batch in tokenizer.batches[1:]]
        assert sizes == ([2, 1] if n_fitting == 2 else [1, 1, 1])
