"""The generations that run side by side: one evaluation a step, for all of them.

What draws a token goes first; of the prompts that are still read, one at a time gets a chunk, a
small one where others draw, so that nobody's long prompt stalls another's typing. A prompt that
begins as one does that is being read waits for it, and forks from it. Where the cache is full the
generation that began last steps aside until there is room, and is read in again.

X1  after a cancel at most the chunk under way is evaluated. It is aborted where nobody else is in
    it, or where who is waits less for a redo without it than for its end. What is read for a
    request that a newer one supersedes is most often what that one begins with, and is no loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from suture.server.counters import Counters
from suture.server.decoding.drafts import DraftWidth
from suture.server.decoding.step_costs import StepCosts
from suture.server.engine.abort import AbortFlag
from suture.server.engine.job import Job, failure
from suture.server.engine.kv import KvCache, common_length
from suture.server.engine.protocol import Aborted, Engine, Logits, SequenceId
from suture.server.engine.tree import TokenTree
from suture.server.errors import EngineError, RequestError, SutureError, Unavailable
from suture.server.request import CompletionChunk

PREFILL_CHUNK = 64  # an abort then takes effect within some 10 ms; larger ones are hardly faster
PREFILL_SLICE = 16  # beside others that draw tokens: six times their own step, on two cores


class _Run:
    """A job on the engine. `tree` is what it wants evaluated, of which `n_done` nodes are.

    `sequence` is None until it begins, and while it has stepped aside. `n_read` counts the
    prompt's tokens as they are evaluated. `counters` are those that it counts in.
    """

    def __init__(self, job: Job, counters: Counters) -> None:
        self.job = job
        self.counters = counters
        self.sequence: SequenceId | None = None
        self.n_read = 0
        self.want(TokenTree.chain(()), 0)

    def want(self, tree: TokenTree, n_before: int) -> None:
        """Another tree, on top of `n_before` tokens; nothing of it is evaluated."""
        self.tree = tree
        self.n_before = n_before
        self.n_done = 0
        # A long prompt asks for many chunks.
        self._n_trunk = tree.trunk_length()

    @property
    def salt(self) -> str | None:
        return _salt(self.job)

    @property
    def n_left(self) -> int:
        return len(self.tree) - self.n_done

    def chunk(self, n_tokens: int) -> TokenTree:
        """The next part of the tree: a part of its trunk, or all that is left."""
        if self.n_left <= n_tokens or self.n_done >= self._n_trunk:
            return self.tree.after(self.n_done)
        end = min(self.n_done + n_tokens, self._n_trunk)
        return TokenTree.chain(self.tree.tokens[self.n_done : end], wants=())


class Runs:
    """The jobs that run, one step after the other. Every outcome is told to the job it is of.

    Raises only where the engine cannot even free what a failed job held.
    """

    def __init__(
        self, engine: Engine, counters: Counters, waiting: Callable[[], Sequence[Job]]
    ) -> None:
        self._engine = engine
        self._waiting = waiting
        self._counters = counters
        self._kv = KvCache(engine)
        self._costs = StepCosts()
        # What is drafted and does not come true is cut back, which some architectures cannot do.
        self._width = DraftWidth(self._costs) if engine.can_branch else None
        # In the order in which they began; those without a sequence wait for room.
        self._runs: list[_Run] = []
        self._last_read: _Run | None = None
        self._evaluation: _Evaluation | None = None
        self._show_memory()

    @property
    def jobs(self) -> list[Job]:
        return [run.job for run in self._runs]

    def begin(self, job: Job, counters: Counters) -> None:
        """Take a job in, to be counted in `counters`; it gets its sequence in the next step."""
        counters.jobs += 1
        self._runs.append(_Run(job, counters))

    def step(self, most: int = PREFILL_CHUNK) -> None:
        """One evaluation for all jobs that have something to evaluate.

        `most` are the most tokens of a prompt that is read while none of them draws.
        """
        for run in list(self._runs):
            if (reason := run.job.should_end()) is not None:
                self._end(run, run.job.last(reason))
        for run in list(self._runs):
            if run.sequence is not None or self._is_being_read(run):
                continue
            if not self._settle(run):
                break
        batch = self._compose(most)
        while batch and not self._kv.make_room(sum(len(chunk) for _, chunk in batch)):
            self._step_aside()
            batch = self._compose(most)
        evaluated = self._evaluate(batch)
        for run, chunk, rows in evaluated:
            self._take(run, chunk, rows)
        self._show_memory()

    def reconsider(self) -> None:
        """Have the evaluation under way end, if it should by now. Any thread may say so."""
        evaluation = self._evaluation
        if evaluation is not None:
            evaluation.reconsider()

    def _show_memory(self) -> None:
        counters, kv = self._counters, self._kv
        counters.cells_free = self._engine.n_free
        counters.sequences_running = kv.n_running
        counters.sequences_idle = kv.n_idle
        counters.sequences_saved = kv.n_saved

    def _settle(self, run: _Run) -> bool:
        """Give a run its sequence; False where those before it must end first."""
        generation = run.job.generation
        is_first = run is self._runs[0]
        tokens, salt = generation.tokens, run.salt
        if not is_first and not self._kv.has_room_for(tokens, salt):
            return False
        try:
            run.sequence = self._kv.start(tokens, salt)
        except EngineError as error:
            if is_first:
                self._fail(run, error)
            return False
        n_reused = len(self._engine.tokens(run.sequence))
        waited_s = run.job.clock.begin()
        if waited_s is not None:
            generation.reuse(n_reused)
            run.counters.prompt_tokens += len(generation.prompt_ids)
            run.counters.reused_tokens += n_reused
            run.counters.queue_s.observe(waited_s)
            if self._width is not None:
                self._width.begin_text()
        self._want_more(run)
        return True

    def _is_being_read(self, run: _Run) -> bool:
        """Whether another run is reading what this one's prompt begins with, for it too."""
        if not self._engine.can_branch:
            return False
        prompt_ids = run.job.generation.prompt_ids
        for other in self._runs:
            if other.sequence is None or other.job.clock.phase != "prompt":
                continue
            if other.salt != run.salt:
                continue
            n_read = len(self._engine.tokens(other.sequence))
            n_common = common_length(other.job.generation.prompt_ids, prompt_ids)
            if n_common > n_read:
                return True
        return False

    def _compose(self, most: int) -> list[tuple[_Run, TokenTree]]:
        """What the next evaluation is of: all that draw a token, and a piece of one prompt."""
        runs = [run for run in self._runs if run.sequence is not None]
        drawing = [run for run in runs if run.n_left <= PREFILL_SLICE]
        reading = [run for run in runs if run.n_left > PREFILL_SLICE]
        batch: list[tuple[_Run, TokenTree]] = []
        for run in drawing:
            chunk = run.chunk(PREFILL_SLICE)
            if not self._fits(chunk, batch):
                break
            batch.append((run, chunk))
        if reading:
            run = self._next_to_read(reading)
            chunk = run.chunk(min(PREFILL_SLICE if batch else most, self._engine.n_batch))
            if self._fits(chunk, batch):
                batch.append((run, chunk))
        return batch

    def _fits(self, chunk: TokenTree, batch: list[tuple[_Run, TokenTree]]) -> bool:
        """Whether the engine takes a chunk beside others; alone it is tried whatever it has.

        One with covers has many rows, and each of its leaves is a sequence while it is evaluated.
        """
        if not batch:
            return True
        chunks = [chunk, *(other for _, other in batch)]
        n_tokens, n_rows = sum(map(len, chunks)), sum(len(other.wants) for other in chunks)
        n_leaves = sum(len(other.leaves()) for other in chunks if not other.is_chain)
        n_free = self._engine.n_sequences - self._kv.n_running - self._kv.n_idle
        has_rows = n_tokens <= self._engine.n_batch and n_rows <= self._engine.n_rows
        return has_rows and (n_leaves <= n_free or not self._engine.can_branch)

    def _next_to_read(self, reading: list[_Run]) -> _Run:
        """Prompts take turns: the one after the one that was read last."""
        if self._last_read in reading:
            at = reading.index(self._last_read) + 1
            reading = [*reading[at:], *reading[:at]]
        self._last_read = reading[0]
        return reading[0]

    def _step_aside(self) -> None:
        """The cache is full: the run that began last gives its cells up; a lone one ends."""
        holding = [run for run in self._runs if run.sequence is not None]
        run = holding[-1]
        if len(holding) == 1:
            # Healed tokens came on top of what the plan made room for.
            self._end(run, run.job.last("length"))
            return
        assert run.sequence is not None
        self._kv.finish(run.sequence)
        run.sequence = None

    def _evaluate(
        self, batch: list[tuple[_Run, TokenTree]]
    ) -> list[tuple[_Run, TokenTree, Logits]]:
        """The rows of each part; none where the batch fails, and each was tried and taken alone."""
        if not batch:
            return []
        evaluation = self._evaluation = _Evaluation(self._when_to_abort(batch))
        evaluation.reconsider()
        started = time.perf_counter()
        try:
            parts = [(run.sequence, chunk) for run, chunk in batch if run.sequence is not None]
            rows = self._engine.evaluate(parts, evaluation.abort)
        except Aborted:
            self._fail_lost()
            return []
        except Exception as error:
            if len(batch) > 1:
                self._fail_lost()
                self._evaluate_each(batch)
                return []
            self._fail(batch[0][0], failure(error, "in the engine"))
            self._fail_lost()
            return []
        finally:
            self._evaluation = None
        self._observe_cost(batch, time.perf_counter() - started)
        self._counters.evaluated(len(batch))
        return [(run, chunk, row) for (run, chunk), row in zip(batch, rows, strict=True)]

    def _evaluate_each(self, batch: list[tuple[_Run, TokenTree]]) -> None:
        for pair in batch:
            if pair[0] not in self._runs:
                continue
            for run, chunk, rows in self._evaluate([pair]):
                # At once: the next evaluation overwrites the rows.
                self._take(run, chunk, rows)

    def _fail_lost(self) -> None:
        """Tell those to retry whose sequences a failure of the engine has emptied."""
        for run in list(self._runs):
            if run.sequence is None:
                continue
            if len(self._engine.tokens(run.sequence)) < run.n_before + run.n_done:
                self._fail(run, Unavailable("what was read was lost with another request"))

    def _when_to_abort(self, batch: list[tuple[_Run, TokenTree]]) -> Callable[[], bool]:
        """Asked by any thread while the batch is evaluated: is its end not worth waiting for?

        What it answers changes with who is cancelled and who waits; as time goes by, only to no.
        """
        parts = [(run.job, len(chunk)) for run, chunk in batch]
        jobs = [job for job, _ in parts]
        n_all = sum(n_tokens for _, n_tokens in parts)
        costs, can_redo = self._costs, self._engine.can_branch
        superseded = _Superseded(batch, self._engine, self._waiting)
        started = time.perf_counter()

        def should_abort() -> bool:
            if all(job.end_early is None for job in jobs):
                return False
            n_live = sum(n_tokens for job, n_tokens in parts if job.end_early is None)
            n_live += superseded.n_wanted()
            elapsed_s = time.perf_counter() - started
            return n_live == 0 or (can_redo and costs.is_redone_sooner(n_live, n_all, elapsed_s))

        return should_abort

    def _observe_cost(self, batch: list[tuple[_Run, TokenTree]], seconds: float) -> None:
        n_tokens = sum(len(chunk) for _, chunk in batch)
        n_rows = sum(len(chunk.wants) for _, chunk in batch)
        # Rows that nobody wants make a short evaluation cheaper than what drafts are weighed by.
        if n_rows == n_tokens or n_tokens > PREFILL_SLICE:
            self._costs.observe(n_tokens, seconds)

    def _take(self, run: _Run, chunk: TokenTree, rows: Logits) -> None:
        """Feed the rows of a part that was evaluated, if it is the last; commit what is kept."""
        assert run.sequence is not None
        n_before, generation = run.n_done, run.job.generation
        run.n_done += len(chunk)
        n_drafted = generation.n_drafted
        if run.job.clock.phase != "decode":
            n_beside = 0 if run.n_left else n_drafted + generation.n_covers
            run.n_read += len(chunk) - n_beside
            run.counters.evaluated_tokens += len(chunk) - n_beside
            run.counters.cover_tokens += 0 if run.n_left else generation.n_covers
        if run.n_left or run.job.end_early is not None:
            # Covers and drafts have not been looked at.
            run.n_done = n_before + chunk.trunk_length() + 1
            self._engine.commit(run.sequence, chunk.trunk_length())
            return
        try:
            chunk_of_text = generation.feed(rows)
        except Exception as error:
            self._fail(run, failure(error, "while its text was made"))
            return
        self._engine.commit(run.sequence, generation.kept - n_before)
        run.counters.drawn(run.job.clock.token_drawn())
        if n_drafted:
            run.counters.drafted(n_drafted, n_drafted - generation.n_rejected)
        if generation.finished:
            assert chunk_of_text is not None
            self._end(run, chunk_of_text)
            return
        if chunk_of_text is not None:
            run.job.tell(chunk_of_text)
        self._want_more(run)

    def _want_more(self, run: _Run) -> None:
        assert run.sequence is not None
        # Beside others a draft's tokens cost what theirs do, and pay seldom.
        width = self._width if len(self._runs) == 1 else None
        n_before = len(self._engine.tokens(run.sequence))
        try:
            tree = run.job.generation.tree(n_before, width)
        except Exception as error:
            # A grammar may not take the text before the cursor.
            self._fail(run, failure(error, "before its prompt was read"))
            return
        run.want(tree, n_before)

    def _end(self, run: _Run, chunk: CompletionChunk | SutureError) -> None:
        if isinstance(chunk, SutureError):
            self._fail(run, chunk)
            return
        self._runs.remove(run)
        if run.sequence is not None:
            run.counters.longest_sequence = max(
                run.counters.longest_sequence, len(self._engine.tokens(run.sequence))
            )
            self._kv.finish(run.sequence)
        assert chunk.result is not None
        result = replace(chunk.result, timings=run.job.clock.timings())
        run.counters.ended(result, run.n_read)
        if result.finish in ("cancelled", "superseded", "deadline"):
            run.counters.ended_early[result.finish, run.job.clock.phase] += 1
        if run.job.cancelled_at is not None:
            run.counters.cancel_s.observe(time.perf_counter() - run.job.cancelled_at)
        run.job.tell(replace(chunk, result=result))

    def _fail(self, run: _Run, error: SutureError) -> None:
        if not isinstance(error, RequestError):
            run.counters.failed(run.n_read)
        run.job.generation.close()
        self._runs.remove(run)
        run.job.tell(error)
        if run.sequence is not None:
            self._kv.discard(run.sequence)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """One that is under way."""

    should_abort: Callable[[], bool]
    abort: AbortFlag = field(default_factory=AbortFlag)

    def reconsider(self) -> None:
        if self.should_abort():
            self.abort.set()


class _Superseded:
    """What a batch reads for requests that newer ones supersede. Any thread may ask."""

    def __init__(
        self,
        batch: list[tuple[_Run, TokenTree]],
        engine: Engine,
        waiting: Callable[[], Sequence[Job]],
    ) -> None:
        # With what was read before them: later the engine's thread has it change.
        self._parts = [
            (run.job, tuple(engine.tokens(run.sequence)), chunk)
            for run, chunk in batch
            if run.sequence is not None and run.job.clock.phase == "prompt"
        ]
        self._waiting = waiting

    def n_wanted(self) -> int:
        """How many of its tokens will be evaluated again at once, if they are not now.

        Until the newer request comes, which is being planned, all of them.
        """
        wanted = (
            len(chunk)
            for job, before, chunk in self._parts
            if job.end_early == "superseded" and self._is_wanted(_salt(job), before, chunk)
        )
        return sum(wanted)

    def _is_wanted(self, salt: str | None, before: tuple[int, ...], chunk: TokenTree) -> bool:
        jobs = self._waiting()
        if not jobs:
            return True
        read = [*before, *chunk.tokens]
        shared = (
            common_length(job.generation.prompt_ids, read) for job in jobs if _salt(job) == salt
        )
        return max(shared, default=0) > len(before)


def _salt(job: Job) -> str | None:
    """What others must have too, to share what is read for the job."""
    return job.generation.request.cache_salt
