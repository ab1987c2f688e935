"""One queue of texts, and the thread that makes tokens of them, several in one call.

  planner   who plans a prompt and waits for the tokens of one text at a time
  batch     texts that are encoded in one call, in the order in which they came
  encoder   a tokenizer with its special-token flags

Q1  A text has the tokens that its encoder gives it alone.
Q2  Texts of different encoders are never in one batch; what that costs is counted.
Q3  The thread waits for more texts only while somebody plans who may bring one, and never longer
    than `wait_s` after the oldest came.
Q4  An error is the error of the one text that has it. A text that nobody waits for any more is
    not encoded, and takes no other with it. After `close()` nobody waits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate

from suture.server.codec import MAX_TIKTOKEN_BYTES, Encoder
from suture.server.counters import EncodeCounters

# What comes later waits for the batch under way: for tens of milliseconds at most.
MAX_BATCH_BYTES = MAX_TIKTOKEN_BYTES

Tokens = Future[Sequence[int]]


@dataclass(frozen=True, slots=True)
class _Text:
    piece: bytes
    encoder: Encoder
    tokens: Tokens = field(default_factory=Future)
    came: float = field(default_factory=time.monotonic)


class EncodeQueue:
    """Encodes texts of any threads in batches of at most `max_texts` and `MAX_BATCH_BYTES`."""

    def __init__(self, max_texts: int, wait_s: float) -> None:
        self.counters = EncodeCounters()
        self._max_texts = max_texts
        self._wait_s = wait_s
        self._texts: list[_Text] = []
        self._n_planners = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve, name="encoding", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def planner(self) -> Iterator[None]:
        """While it lasts, another text may come."""
        with self._changed:
            self._n_planners += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_planners -= 1
                self._changed.notify()

    @property
    def has_one_planner(self) -> bool:
        """Whether there is nobody whose texts would be in one batch with the caller's."""
        return self._n_planners == 1

    def put(self, piece: bytes, encoder: Encoder) -> Tokens:
        """The tokens to come. Cancelling takes the text back; `close()` cancels."""
        text = _Text(piece, encoder)
        with self._changed:
            if self._closed:
                text.tokens.cancel()
            else:
                self._texts.append(text)
                self._changed.notify()
        return text.tokens

    def close(self) -> None:
        """Cancel what waits, and wait for the batch under way."""
        with self._changed:
            self._closed = True
            for text in self._texts:
                text.tokens.cancel()
            self._texts.clear()
            self._changed.notify()
        self._thread.join()

    def _serve(self) -> None:
        while batch := self._next_batch():
            live = [text for text in batch if text.tokens.set_running_or_notify_cancel()]
            if live:
                self.counters.batch_texts.observe(len(live))
                _encode(live)

    def _next_batch(self) -> list[_Text]:
        """The texts to encode next; none when the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._texts or self._closed)
            if self._texts:
                left_s = self._texts[0].came + self._wait_s - time.monotonic()
                self._changed.wait_for(self._is_complete, max(left_s, 0.0))
            return self._take() if self._texts else []

    def _is_complete(self) -> bool:
        """Whether waiting longer would bring nothing."""
        return self._closed or len(self._texts) >= min(self._max_texts, self._n_planners)

    def _take(self) -> list[_Text]:
        """The oldest text and those behind it that may be encoded with it."""
        encoder = self._texts[0].encoder
        alike = [text for text in self._texts if text.encoder == encoder]
        sizes = accumulate(len(text.piece) for text in alike)
        n_fitting = sum(n_bytes <= MAX_BATCH_BYTES for n_bytes in sizes)
        batch = alike[: max(min(n_fitting, self._max_texts), 1)]
        has_room = len(batch) == len(alike) < self._max_texts
        if has_room and len(alike) < len(self._texts):
            self.counters.batches_cut += 1
        taken = {id(text) for text in batch}
        self._texts = [text for text in self._texts if id(text) not in taken]
        return batch


def _encode(batch: Sequence[_Text]) -> None:
    """Tokens for all of them, in one call where the tokenizer has one for several texts."""
    encode_all = batch[0].encoder.encode_all
    if encode_all is not None and len(batch) > 1:
        try:
            encoded = encode_all([text.piece for text in batch])
        except BaseException:  # an extension's panic is no Exception
            pass  # one of them has it: each alone says which
        else:
            for text, ids in zip(batch, encoded, strict=True):
                text.tokens.set_result(ids)
            return
    for text in batch:
        _encode_alone(text)


def _encode_alone(text: _Text) -> None:
    try:
        ids = text.encoder.encode(text.piece)
    except BaseException as error:  # whose text it is gets whatever it is
        text.tokens.set_exception(error)
    else:
        text.tokens.set_result(ids)
