"""Completers over models on this machine: what `serve` serves and `complete --local` asks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from suture.healing import CanonicalPairs, Encode, Vocabulary
from suture.server.calibration.profile import read_profile
from suture.server.codec import Codec, Specials, choose_codec, read_tiktoken
from suture.server.completion import Completions, LoadedModel
from suture.server.counters import Measured
from suture.server.decoding.covering import Coverings
from suture.server.encoding import open_encoding
from suture.server.engine.footprint import file_context_length, model_bytes
from suture.server.engine.libllama import installed_version
from suture.server.engine.llama import LlamaEngine, read_vocabulary
from suture.server.engine.memory import DESCRIPTIONS
from suture.server.engine.protocol import Engine
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.speed import measure_prefill, warm_up
from suture.server.engine.thread import EngineThread
from suture.server.engine.threads import best_thread_count
from suture.server.errors import EngineError, Loading, SetupError
from suture.server.explanation import Explanation
from suture.server.known_speed import KnownSpeed
from suture.server.pool import ModelPool
from suture.server.pooled_model import Source
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import detect_family
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult
from suture.server.routes.completer import ModelInfo, Slot, State
from suture.server.settings import Settings
from suture.server.slots import slots_of
from suture.server.token_texts import token_texts

T = TypeVar("T")

# How long others wait for their turns while nothing of a loading is the engine's.
GIVE_WAY_S = 0.005
# Shorter prompts say little of how fast long ones are.
MIN_OBSERVED_TOKENS = 96

_log = logging.getLogger("suture.engine")


class LocalCompleter:
    """Completes with one GGUF model; `start()` begins to load it, `close()` frees it."""

    def __init__(
        self, path: Path, name: str, settings: Settings, thread: EngineThread | None = None
    ) -> None:
        self._path = path
        self._name = name
        self._settings = settings
        self._loaded: LoadedModel | None = None
        self._info = ModelInfo(name, str(path), 0, 0, None, None, False, None)
        self._scheduler = Scheduler(self._load, settings.queue, settings.parallel, thread)
        encoding = open_encoding(settings.encode_batch, settings.encode_wait_ms / 1000)
        self._completions = Completions(self._scheduler, encoding)

    @property
    def model(self) -> ModelInfo:
        return self._info

    def state(self) -> State:
        if self._scheduler.state == "loading":
            return "loading"
        self._ready()
        return "stalled" if self._scheduler.stalled_s > self._settings.stall_s else "ready"

    def start(self) -> None:
        self._scheduler.start()

    def wait_ready(self) -> None:
        """Block until the model is loaded. Raises the error that loading failed with."""
        self._scheduler.wait_ready()

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """As `Completions.complete`; raises `Loading` until the model is loaded."""
        chunks = self._completions.complete(request, self._ready())
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if chunk.result is not None:
                    self._observe_speed(chunk.result)
                yield chunk

    async def explain(self, request: CompletionRequest) -> Explanation:
        """As `Completions.explain`; raises `Loading` until the model is loaded."""
        return await self._completions.explain(request, self._ready())

    async def tokenize(self, text: str, specials: Specials) -> Sequence[int]:
        """As `Completions.tokenize`; raises `Loading` until the model is loaded."""
        return await self._completions.tokenize(text, specials, self._ready())

    def measured(self) -> Measured:
        return Measured(
            counters=self._scheduler.counters,
            spare=self._scheduler.spare,
            requests=self._completions.counters,
            encoding=self._completions.encode_counters,
            running=self._scheduler.n_running,
            waiting=self._scheduler.n_waiting,
            preparing=self._completions.n_preparing,
            prefill_tokens_per_s=(
                0.0 if self._loaded is None else self._loaded.budget.prefill_tokens_per_s
            ),
        )

    def slots(self) -> list[Slot | None]:
        return slots_of(self._scheduler.running, self._settings.parallel)

    def _observe_speed(self, result: CompletionResult) -> None:
        """Believe a faster prompt than was measured: the machine was busy then, and is not now."""
        n_evaluated, ms = result.prompt.evaluated, result.timings.prompt_ms
        if self._loaded is None or n_evaluated < MIN_OBSERVED_TOKENS or ms <= 0:
            return
        speed = n_evaluated / ms * 1000
        if speed > self._loaded.budget.prefill_tokens_per_s:
            budget = replace(self._loaded.budget, prefill_tokens_per_s=speed)
            self._loaded = replace(self._loaded, budget=budget)

    def _ready(self) -> LoadedModel:
        """The loaded model. Raises `Loading`, or what loading or the engine failed with."""
        self._scheduler.check_ready()
        if self._loaded is None:
            raise Loading("Loading model", retry_after=2)
        return self._loaded

    def cancel_all(self) -> None:
        self._scheduler.cancel_all()

    def close(self) -> None:
        # Planning reads the model's vocabulary: it has to end before the model is freed.
        self._completions.close()
        self._scheduler.close()
        if self._loaded is not None:
            known = _known_speed(self._info.device, self._path, self._settings)
            known.keep(self._loaded.budget.prefill_tokens_per_s)

    def _load(self) -> Engine:
        """Load, warm up and measure; on the engine's thread."""
        engine, loaded = load_model(
            self._path, self._name, self._settings, self._scheduler.may_load_on
        )
        family, codec = loaded.family, loaded.codec
        self._info = ModelInfo(
            name=self._name,
            path=str(self._path),
            n_ctx=engine.n_ctx,
            n_vocab=engine.vocabulary.n_vocab,
            n_params=engine.n_params,
            size_bytes=engine.size_bytes,
            fim=family is not None,
            family=family.name if family is not None else None,
            tokenizer=codec.tokenizer,
            detokenizer=codec.detokenizer,
            memory=engine.memory,
            architecture=engine.vocabulary.architecture or None,
            tokens=token_texts(engine.vocabulary, codec, family),
            device=engine.device,
        )
        self._loaded = loaded
        return engine


def load_model(
    path: Path, name: str, settings: Settings, may_go_on: Callable[[], bool]
) -> tuple[LlamaEngine, LoadedModel]:
    """The model of a file, warm and measured, on the thread that its engine is for.

    `may_go_on` is asked while weights are loaded, and between what is measured.
    """
    engine: LlamaEngine
    # Python's part is done beside the engine's thread, which others have turns on. While llama.cpp
    # loads the weights, nothing else needs Python; measuring needs all cores.
    beside = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")
    try:
        vocabulary = _result(
            beside.submit(read_vocabulary, path, settings.vocabulary_cache), may_go_on
        )
        fast = beside.submit(read_tiktoken, settings.tokenizer, vocabulary)
        pairs = beside.submit(_pairs_of, vocabulary, lambda piece: engine.encode(piece))
        engine = LlamaEngine(
            path,
            n_threads=settings.threads or best_thread_count(),
            n_ctx=settings.ctx,
            n_gpu_layers=-1 if settings.gpu_layers == "auto" else settings.gpu_layers,
            on_progress=lambda share: may_go_on(),
            vocabulary=vocabulary,
        )
        try:
            tiktoken = _result(fast, may_go_on)
            names = settings.tokenizer, settings.detokenizer
            codec = beside.submit(choose_codec, *names, vocabulary, engine, tiktoken)
            with _ended(codec, may_go_on):
                known = _result(pairs, may_go_on), _result(codec, may_go_on)
            return engine, _measure(engine, path, name, settings, *known, may_go_on)
        except BaseException:
            engine.close()
            raise
    finally:
        # Where loading failed, what is still being read is wanted no more, and not waited for.
        beside.shutdown(wait=False, cancel_futures=True)


def _result(work: Future[T], may_go_on: Callable[[], bool]) -> T:
    """What comes of work beside the engine's thread, where others have turns meanwhile.

    Raises `EngineError` where loading may not go on.
    """
    while not _is_done(work):
        if not may_go_on():
            raise EngineError("the loading was given up")
    return work.result()


@contextlib.contextmanager
def _ended(work: Future[T], may_go_on: Callable[[], bool]) -> Iterator[None]:
    """A block behind which nothing of `work` runs, as it asks the engine; others have turns."""
    try:
        yield
    finally:
        while not (work.cancel() or _is_done(work)):
            may_go_on()


def _is_done(work: Future[T]) -> bool:
    return bool(wait([work], GIVE_WAY_S).done)


def _pairs_of(vocabulary: Vocabulary, encode: Encode) -> CanonicalPairs:
    """Which tokens may follow which, with what is slow to ask the first time asked."""
    pairs = CanonicalPairs(vocabulary, encode)
    pairs.learn_blanks()
    return pairs


def _measure(
    engine: LlamaEngine,
    path: Path,
    name: str,
    settings: Settings,
    pairs: CanonicalPairs,
    codec: Codec,
    may_go_on: Callable[[], bool],
) -> LoadedModel:
    """Find out what the model can do and how fast it is here."""
    family = detect_family(engine.vocabulary, name)
    if not engine.can_branch:
        _log.warning("memory: %s: %s", engine.memory, DESCRIPTIONS[engine.memory])
    profile = read_profile(settings.profiles, path, family)
    speed = _speed(engine, _known_speed(engine.device, path, settings), may_go_on)
    budget = PromptBudget(engine.n_ctx, speed, settings.first_text_ms)
    coverings = None
    if codec.heals:
        coverings = Coverings(engine.vocabulary, pairs, can_branch=engine.can_branch)
    defaults = profile.defaults if profile is not None else None
    return LoadedModel(engine, family, budget, codec, coverings, defaults)


def _speed(engine: LlamaEngine, known: KnownSpeed, may_go_on: Callable[[], bool]) -> float:
    """How fast the engine reads prompts, which is warm then."""
    if (speed := known.read()) is not None:
        warm_up(engine)
        return speed
    speed = measure_prefill(engine, may_go_on)
    known.keep(speed)
    return speed


def _known_speed(device: str, path: Path, settings: Settings) -> KnownSpeed:
    """What is known of how fast a model is read here, with all that this depends on."""
    conditions = {
        "device": device,
        "gpu_layers": settings.gpu_layers,
        "llama_cpp": installed_version(),
        "threads": settings.threads or best_thread_count(),
    }
    return KnownSpeed(settings.speeds, path, conditions)


def build_completer(settings: Settings) -> LocalCompleter:
    """A completer for the model file that the settings name, not yet started."""
    if settings.model is None:
        raise SetupError("no model file is named")
    path = Path(settings.model)
    return LocalCompleter(path, path.stem, settings)


def build_pool(settings: Settings) -> ModelPool:
    """The models whose files the settings name, none of them loaded yet."""
    if settings.model is None:
        raise SetupError("no model file is named")
    paths = [Path(name) for name in (settings.model, *settings.also_serve)]
    return ModelPool([_source(path, settings) for path in paths], settings)


def _source(path: Path, settings: Settings) -> Source:
    return Source(
        name=path.stem,
        path=path,
        open=lambda thread: LocalCompleter(path, path.stem, settings, thread),
        survey=lambda: survey(path, settings),
        n_bytes=lambda: model_bytes(path, settings.ctx),
    )


def survey(path: Path, settings: Settings) -> ModelInfo:
    """What a model's file says before it is loaded. Raises `ModelError`."""
    vocabulary = read_vocabulary(path, settings.vocabulary_cache)
    family = detect_family(vocabulary, path.stem)
    return ModelInfo(
        name=path.stem,
        path=str(path),
        n_ctx=file_context_length(path, vocabulary.architecture, settings.ctx),
        n_vocab=vocabulary.n_vocab,
        n_params=None,
        size_bytes=path.stat().st_size,
        fim=family is not None,
        family=family.name if family is not None else None,
        architecture=vocabulary.architecture or None,
    )


@contextlib.contextmanager
def local_completer(settings: Settings) -> Iterator[LocalCompleter]:
    """A completer whose model is loaded, closed at the end. Raises `SetupError`."""
    completer = build_completer(settings)
    completer.start()
    try:
        completer.wait_ready()
        yield completer
    finally:
        completer.close()
