"""A completer over a model that other inference servers run: what `serve --engine remote` serves.

Prompts are planned here, with the model's own tokenizer, and healing, detokenizing, stop strings
and shaping are ours; the servers evaluate and draw.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from suture.healing import Posterior, Vocabulary
from suture.server.codec import Codec, Specials
from suture.server.completion import Completions
from suture.server.counters import Measured, MeasuredBackend
from suture.server.decoding.drafts import DraftIndex
from suture.server.decoding.text_stream import TextStream
from suture.server.encoding import open_encoding
from suture.server.engine.remote.adapters import adapter_of
from suture.server.engine.remote.affinity import affinity_key
from suture.server.engine.remote.backend import Backend
from suture.server.engine.remote.fleet import BackendStatus, Fleet
from suture.server.engine.remote.generation import (
    RemoteGeneration,
    with_clean_end,
    with_whole_characters,
)
from suture.server.engine.remote.model_card import model_card
from suture.server.engine.remote.probe import Detected, detect, model_of, probe
from suture.server.engine.remote.protocol import Adapter, Affinity, Json
from suture.server.engine.remote.runner import RemoteRunner
from suture.server.engine.remote.served import Served
from suture.server.engine.remote.tokenizer import read_tokenizer
from suture.server.engine.remote.vllm import VllmStrict
from suture.server.errors import Loading
from suture.server.explanation import Explanation
from suture.server.one_model import OneModel
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import FimFamily, LayoutDefaults, detect_family
from suture.server.prompt.plan import PromptPlan
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult
from suture.server.routes.completer import ModelInfo, Slot, State
from suture.server.settings import Settings, read_keys
from suture.server.slots import slots_of
from suture.server.tls import trust_in_others
from suture.server.token_texts import token_texts

# Of a server that does not say how much context its model has.
DEFAULT_CONTEXT = 4096
# What an inference server reads of a prompt in a second, as long as nobody has measured it.
ASSUMED_SPEED = 4000.0
# Shorter prompts say little of how fast long ones are; and how much the latest one counts.
MIN_OBSERVED_TOKENS = 96
LATEST = 0.1
PROBES = Affinity(affinity_key("", "", "suture's probes"))


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model that backends run (`runner.Model`); `adapters` are theirs, in their order."""

    vocabulary: Vocabulary
    family: FimFamily | None
    budget: PromptBudget
    codec: Codec
    adapters: tuple[Adapter, ...]
    defaults: LayoutDefaults | None = None

    def check(self, request: CompletionRequest) -> None:
        # Any of them may be asked.
        for adapter in self.adapters:
            adapter.check(request)

    def fit(self, plan: PromptPlan) -> PromptPlan:
        # As the one wants it that can do least: any of them may be asked.
        unforced = [one.kind for one in self.adapters if one.best_level == "hygiene"]
        if unforced:
            kind = "openai-chat" if "openai-chat" in unforced else unforced[0]
            fit = with_clean_end(plan, kind, self.vocabulary, self.codec.encode)
        else:
            fit = with_whole_characters(plan, self.vocabulary)
        # Bytes that are said again may take a token each, which others had less of.
        n_kept, n_pending = len(fit.kept_ids), len(fit.pending)
        room = self.budget.output_room(fit.max_tokens, n_kept, n_pending)
        return replace(fit, max_tokens=room)

    def generation(
        self,
        request: CompletionRequest,
        plan: PromptPlan,
        text: TextStream,
        known: Callable[[], DraftIndex] | None = None,
    ) -> RemoteGeneration:
        encode = self.codec.encode
        return RemoteGeneration(request, plan, self.vocabulary, text, encode, _affinity(request))

    def observed(self, observe: Callable[[Posterior], None]) -> RemoteModel:
        return self


def _affinity(request: CompletionRequest) -> Affinity:
    """Requests for one file of one user are to meet the same replica."""
    file = request.path or request.session or request.prefix[:256]
    key = affinity_key(request.tenant or "", request.user or "", file)
    return Affinity(key, request.cache_salt)


class RemoteCompleter:
    """Completes with one model that backends run; `open()` on the event loop, `close()` at the end.

    `tokenizer` is the file that `vocabulary` and `codec` are from. Raises `SetupError` where there
    is no backend, or the key for it cannot be read.
    """

    def __init__(
        self, vocabulary: Vocabulary, codec: Codec, tokenizer: Path, settings: Settings
    ) -> None:
        self._vocabulary, self._codec = vocabulary, codec
        self._name = settings.engine_model
        self._family = detect_family(vocabulary, self._name or tokenizer.stem)
        self._path = tokenizer
        self._settings = settings
        backends = backends_of(settings)
        self._fleet: Fleet[Served] = Fleet(backends, self._probe, self._is_same)
        self._runner = RemoteRunner(
            self._fleet,
            self._vocabulary,
            settings.engine_parallel,
            settings.queue,
        )
        encoding = open_encoding(settings.encode_batch, settings.encode_wait_ms / 1000)
        self._completions = Completions(self._runner, encoding)
        self._texts = token_texts(self._vocabulary, self._codec, self._family)
        self._speed = ASSUMED_SPEED
        self._living: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to look for the backends, until the event loop ends; returns at once."""
        self._living = asyncio.get_running_loop().create_task(self._live())

    async def _live(self) -> None:
        self._fleet.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self._fleet.close()

    @property
    def model(self) -> ModelInfo:
        found = self._found
        return ModelInfo(
            name=self._name or (_plain(found[0].probed.model) if found else self._path.stem),
            path=str(self._path),
            n_ctx=self._n_ctx(found),
            n_vocab=self._vocabulary.n_vocab,
            n_params=None,
            size_bytes=None,
            fim=self._family is not None,
            family=self._family.name if self._family is not None else None,
            tokenizer=self._codec.tokenizer,
            detokenizer=self._codec.detokenizer,
            architecture=self._vocabulary.architecture or None,
            tokens=self._texts,
            device="remote",
        )

    def state(self) -> State:
        if not self._fleet.is_settled:
            return "loading"
        return "ready" if self._fleet.is_ready else "unreachable"

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """As `Completions.complete`; raises `Unavailable` where a backend is wanted and none is."""
        async with contextlib.aclosing(
            self._completions.complete(request, self._ready())
        ) as chunks:
            async for chunk in chunks:
                if chunk.result is not None:
                    self._observe_speed(chunk.result)
                yield chunk

    async def explain(self, request: CompletionRequest) -> Explanation:
        """As `Completions.explain`, with the levels that the backends have."""
        return await self._completions.explain(request, self._ready())

    async def tokenize(self, text: str, specials: Specials) -> Sequence[int]:
        """As `Completions.tokenize`."""
        return await self._completions.tokenize(text, specials, self._ready())

    def measured(self) -> Measured:
        return Measured(
            counters=self._runner.counters,
            spare=self._runner.spare,
            requests=self._completions.counters,
            encoding=self._completions.encode_counters,
            running=len(self._runner.running),
            waiting=self._runner.n_waiting,
            preparing=self._completions.n_preparing,
            backends=tuple(map(_measured, self._fleet.status)),
        )

    def slots(self) -> list[Slot | None]:
        return slots_of(self._runner.running, self._runner.n_places)

    def _observe_speed(self, result: CompletionResult) -> None:
        """Learn how fast prompts are read, of those of which it is told what was cached."""
        n_evaluated, ms = result.prompt.evaluated, result.timings.prompt_ms
        if not result.prompt.reused or n_evaluated < MIN_OBSERVED_TOKENS or ms <= 0:
            return
        self._speed += LATEST * (n_evaluated / ms * 1000 - self._speed)

    def cancel_all(self) -> None:
        self._runner.cancel_all()

    def close(self) -> None:
        self._runner.close()
        self._completions.close()

    @property
    def _found(self) -> list[Served]:
        """What is known of the backends that were probed, in the order in which they are named."""
        return [status.probed for status in self._fleet.status if status.probed is not None]

    def _n_ctx(self, found: Sequence[Served]) -> int:
        """The context that all have that were found; what the user says is a bound."""
        told = [served.probed.n_ctx for served in found if served.probed.n_ctx]
        bounds = [*told, *([self._settings.ctx] if self._settings.ctx else [])]
        return min(bounds, default=0)

    def _ready(self) -> RemoteModel:
        """The model as the backends have it. Raises `Unavailable` where none ever answered.

        What is known already, as the rest of an answer, asks no backend.
        """
        found = self._found
        if not found:
            if not self._fleet.is_settled:
                raise Loading("the inference servers are being looked at")
            self._runner.check_ready()
        budget = PromptBudget(
            self._n_ctx(found) or DEFAULT_CONTEXT, self._speed, self._settings.first_text_ms
        )
        adapters = tuple(served.adapter for served in found)
        return RemoteModel(self._vocabulary, self._family, budget, self._codec, adapters)

    async def _probe(self, backend: Backend) -> Served:
        """What a backend is and can. Raises a `SutureError` where it cannot be asked."""
        settings = self._settings
        server = await detect(backend.get)
        adapter = _adapter(settings, server)
        server = replace(server, kind=adapter.kind)
        model = model_of(server, settings.engine_model)

        def ask(body: Json, path: str) -> AsyncGenerator[object, None]:
            return backend.stream(path, body, adapter.headers(PROBES))

        card = await model_card(backend.get, model)
        probed = await probe(server, adapter, model, ask, self._vocabulary, self._codec.encode)
        return Served(probed, adapter, card)

    async def _is_same(self, backend: Backend, served: Served) -> bool:
        """Whether a backend says of its model what it said when it was probed, if anything."""
        return await model_card(backend.get, served.probed.model) in ("", served.card)


def _adapter(settings: Settings, server: Detected) -> Adapter:
    """How a server is spoken to: as the user says, or as what it is."""
    wanted = settings.engine_kind
    if wanted == "vllm-strict":
        return VllmStrict()
    return adapter_of(server.kind if wanted == "auto" else wanted, server.owner)


def _plain(name: str) -> str:
    """A model's name without the folder of the file that llama-server has it from."""
    return Path(name).name.removesuffix(".gguf") if name.startswith("/") else name


def _measured(status: BackendStatus[Served]) -> MeasuredBackend:
    probed = status.probed.probed if status.probed is not None else None
    return MeasuredBackend(
        name=status.name,
        state=status.state,
        why=status.why or (probed.why if probed is not None else ""),
        kind=probed.kind if probed is not None else None,
        version=probed.version if probed is not None else "",
        level=probed.level if probed is not None else None,
        running=status.counters.running,
        requests=status.counters.requests,
        failures={str(kind): n for kind, n in status.counters.failures.items()},
        first_event_s=status.counters.first_event_s,
    )


def backends_of(settings: Settings) -> list[Backend]:
    """The servers that the settings name. Raises `SetupError`."""
    key = None
    if settings.engine_key_file is not None:
        key = read_keys(settings.engine_key_file, "--engine-key-file")[0]
    return [
        Backend(url, key, trust_in_others(url), float(settings.stall_s))
        for url in settings.engine_url
    ]


class RemotePool(OneModel):
    """A completer over backends as a pool to serve (`ServedPool`)."""

    def __init__(self, completer: RemoteCompleter) -> None:
        super().__init__(completer)
        self._remote = completer
        self._is_open = False

    def start(self) -> None:
        """Nothing: backends are looked for on the event loop."""

    def tend(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._remote.open()

    def cancel_all(self) -> None:
        self._remote.cancel_all()

    def close(self) -> None:
        self._remote.close()


def build_pool(settings: Settings) -> RemotePool:
    """The model that the settings' servers run. Raises `SetupError`."""
    assert settings.model is not None, "who starts a worker finds the tokenizer"
    tokenizer = Path(settings.model)
    vocabulary, codec = read_tokenizer(tokenizer, settings)
    return RemotePool(RemoteCompleter(vocabulary, codec, tokenizer, settings))
