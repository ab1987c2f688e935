"""A text on its way through the queue and the engine, and its clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Generic, Protocol

from typing_extensions import TypeVar

from suture.server.counters import Phase
from suture.server.decoding.generation import Generation
from suture.server.errors import EngineError, SutureError
from suture.server.logs import without_values
from suture.server.prompt.plan import PromptPlan
from suture.server.request import CompletionChunk, CompletionRequest, FinishReason, Timings

Emit = Callable[[CompletionChunk | SutureError], None]

_log = logging.getLogger("suture.engine")


class Work(Protocol):
    """One text being made, by an engine of ours (`Generation`) or by another's."""

    finished: bool

    @property
    def request(self) -> CompletionRequest: ...

    @property
    def plan(self) -> PromptPlan: ...

    @property
    def prompt_ids(self) -> tuple[int, ...]: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def n_generated(self) -> int: ...

    def finish(self, reason: FinishReason) -> CompletionChunk: ...


W = TypeVar("W", bound=Work, default=Generation)


class Job(Generic[W]):
    """What a runner is given: a generation, and who is told of it.

    `emit` gets each chunk, and an error if one ends the job; it is called on the engine's
    thread, or on the thread that cancels a job which has not begun. `prompt_deadline_ms` counts
    from the submission to the first token drawn, `deadline_ms` from there. `place` is which of
    the `parallel` ones it has while it runs, `number` the how manieth that was submitted.
    `is_told` says that its end was told.
    """

    def __init__(
        self,
        generation: W,
        emit: Emit,
        deadline_ms: int | None = None,
        prompt_deadline_ms: int | None = None,
    ) -> None:
        self.generation = generation
        self.clock = Clock(deadline_ms, prompt_deadline_ms)
        self.end_early: FinishReason | None = None
        self.cancelled_at: float | None = None
        self.number = 0
        self.place = 0
        self.is_told = False
        self._emit = emit

    def end(self, reason: FinishReason) -> None:
        """End a job that does not run, with what it has."""
        self.tell(self.last(reason))

    def last(self, reason: FinishReason) -> CompletionChunk | SutureError:
        """The last chunk, or the error of one whose text cannot be made."""
        try:
            return self.generation.finish(reason)
        except Exception as error:
            return failure(error, "while its text was made")

    def tell(self, item: CompletionChunk | SutureError) -> None:
        """Hand over a chunk or an error; one that cannot be told must not stop the others.

        Nothing more is told after a result or an error.
        """
        if self.is_told:
            return
        self.is_told = isinstance(item, SutureError) or item.result is not None
        try:
            self._emit(item)
        except Exception as error:
            _log.error("an answer could not be handed over: %s", without_values(error))

    def should_end(self) -> FinishReason | None:
        """Why the job is to end now, if it is: it was cancelled, or its time is over."""
        if self.end_early is not None:
            return self.end_early
        return "deadline" if self.clock.past_deadline() else None


def failure(error: Exception, where: str) -> SutureError:
    """What a job is told of an exception that ends it; logs what nobody foresaw."""
    if isinstance(error, SutureError):
        return error
    _log.error("a request failed %s: %s", where, without_values(error))
    return EngineError(f"the engine failed: {type(error).__name__}")


class Clock:
    """Times one job: its wait, its prompt until the first token is drawn, then its generation."""

    def __init__(self, deadline_ms: int | None, prompt_deadline_ms: int | None) -> None:
        self._deadline_ms = deadline_ms
        self._prompt_deadline_ms = prompt_deadline_ms
        self._submitted = time.perf_counter()
        self._started: float | None = None
        self._first_token: float | None = None
        self._last_token = 0.0
        self._deadline_since: float | None = None

    @property
    def phase(self) -> Phase:
        if self._started is None:
            return "queued"
        return "prompt" if self._first_token is None else "decode"

    def submit(self) -> None:
        """The wait begins."""
        self._submitted = time.perf_counter()

    def begin(self) -> float | None:
        """The prompt begins; how many seconds the job has waited, None if it had begun before."""
        if self._started is not None:
            return None
        self._started = time.perf_counter()
        return self._started - self._submitted

    def token_drawn(self) -> float | None:
        """Note the time; how many seconds ago a token was drawn before, None for the first."""
        now, before = time.perf_counter(), self._last_token
        self._last_token = now
        if self._first_token is None:
            self._first_token = now
            return None
        return now - before

    def restart(self) -> None:
        """Another request goes on with the job: its deadlines begin now."""
        self._deadline_since = time.perf_counter()

    def past_deadline(self) -> bool:
        """Whether the time is over that the phase may take."""
        left_s = self.left_s()
        return left_s is not None and left_s <= 0

    def left_s(self) -> float | None:
        """Of the time that the phase may take, up to the first token or after it; None: all."""
        limit_ms, since = self._deadline_ms, self._first_token
        if since is None:
            limit_ms, since = self._prompt_deadline_ms, self._submitted
        if self._deadline_since is not None:
            since = max(since, self._deadline_since)
        return None if limit_ms is None else since + limit_ms / 1000 - time.perf_counter()

    def timings(self) -> Timings:
        now = time.perf_counter()
        started = now if self._started is None else self._started
        first = self._first_token or now
        return Timings((first - started) * 1000, (now - first) * 1000)
