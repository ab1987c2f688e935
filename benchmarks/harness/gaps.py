"""The time between two evaluations: what Python does for a step."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.texts import long_text
from suture.healing import TokenTransducer, Vocabulary
from suture.server.counters import Counters
from suture.server.decoding.generation import Generation
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.abort import AbortFlag
from suture.server.engine.job import Job
from suture.server.engine.llama import LlamaEngine
from suture.server.engine.protocol import Batch, Engine, Logits
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import ScriptedEngine, speaking_model
from suture.server.engine.tokenizer import LlamaTokenizer
from suture.server.errors import SutureError
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult
from suture.server.timed_text import TimedText

N_TEXT_BYTES = 8_000
PROMPT_BYTES = 120
N_SCRIPTED, N_ON_MODEL = 256, 64
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Gaps:
    """Medians over the steps in which every stream draws one token."""

    n_steps: int
    median_us: float
    evaluation_ms: float


class Uncounted(Counters):
    """Counts nothing."""

    def evaluated(self, n_places: int) -> None: ...

    def drafted(self, n_proposed: int, n_accepted: int) -> None: ...

    def drawn(self, gap_s: float | None) -> None: ...

    def ended(self, result: CompletionResult, n_evaluated: int) -> None: ...


def scripted_gaps(path: Path, n_streams: int, counted: bool) -> Gaps:
    """An engine that says our own sources, in this model's vocabulary."""
    vocabulary = Vocabulary.from_gguf(path)
    tokenizer = LlamaTokenizer(path)

    def engine() -> Engine:
        model = speaking_model(vocabulary, long_text(N_TEXT_BYTES).encode())
        return ScriptedEngine(vocabulary, tokenizer.encode, model)

    return _gaps(engine, n_streams, N_SCRIPTED, counted)


def model_gaps(path: Path, n_threads: int, n_streams: int, counted: bool) -> Gaps:
    return _gaps(
        lambda: LlamaEngine(path, n_threads=n_threads, n_ctx=4096), n_streams, N_ON_MODEL, counted
    )


def _gaps(make_engine: Callable[[], Engine], n_streams: int, n_tokens: int, counted: bool) -> Gaps:
    steps: list[tuple[float, float]] = []

    def timed_engine() -> Engine:
        engine = make_engine()
        evaluate = engine.evaluate

        def timed(batch: Batch, abort: AbortFlag | None = None) -> list[Logits]:
            is_whole = len(batch) == n_streams == sum(len(tree) for _, tree in batch)
            started = time.perf_counter()
            rows = evaluate(batch, abort)
            ended = time.perf_counter()
            # A step that is not whole parts those before and after.
            steps.append((started, ended) if is_whole else (float("nan"), float("nan")))
            return rows

        engine.evaluate = timed  # type: ignore[method-assign]
        return engine

    scheduler = Scheduler(timed_engine, parallel=n_streams)
    if not counted:
        scheduler.counters = Uncounted()
    scheduler.start()
    try:
        _generate(scheduler, n_streams, n_tokens, counted)
    finally:
        scheduler.close()
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(steps)]
    gaps = [gap for gap in gaps if gap == gap]
    evaluations = [ended - started for started, ended in steps if started == started]
    return Gaps(len(gaps), statistics.median(gaps) * 1e6, statistics.median(evaluations) * 1e3)


def _generate(scheduler: Scheduler, n_streams: int, n_tokens: int, counted: bool) -> None:
    engine = scheduler.wait_ready()
    transducer = TokenTransducer(engine.vocabulary)
    budget = PromptBudget(engine.n_ctx, 1e6, 60_000)
    ended = threading.Semaphore(0)

    def emit(item: CompletionChunk | SutureError) -> None:
        if isinstance(item, SutureError):
            print(item)
        if isinstance(item, SutureError) or item.result is not None:
            ended.release()

    text = long_text(N_TEXT_BYTES)
    for n in range(n_streams):
        request = CompletionRequest(
            prefix=text[: PROMPT_BYTES + n], max_tokens=n_tokens, ignore_eos=True, healing="off"
        )
        plan = plan_prompt(request, engine.vocabulary, None, engine.encode, budget)
        stream = byte_stream(request, plan, transducer)
        said = TimedText(stream, scheduler.counters) if counted else stream
        scheduler.submit(Job(Generation(request, plan, engine.vocabulary, said), emit))
    for _ in range(n_streams):
        if not ended.acquire(timeout=TIMEOUT_S):
            raise SystemExit("the scheduler did not answer")
