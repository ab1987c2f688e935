"""What the routes and the command line ask of the part that completes.

`complete()` is an async generator, and closing it (`aclose`, or cancelling the task that waits in
it) is how a completion is cancelled. It raises a `SutureError` before its first chunk, or an
`EngineError` after it; the last chunk of each candidate has its `result`.

A request with `infill` and a blank suffix is served by any model: one without FIM sentinels
completes it left to right, and raises `InfillUnsupported` where the suffix is not blank.
`max_tokens` is at most the model's context; how much room the prompt leaves is the completer's.

Several models may be served, each by a completer of its own while it is loaded. The routes ask the
pool for the model that a request names, and keep it from being unloaded while they use it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from suture.server.codec import Choice, Specials
from suture.server.counters import Measured
from suture.server.engine.protocol import Memory
from suture.server.errors import (
    InvalidRequest,
    Loading,
    Stalled,
    SutureError,
    Unavailable,
    Unreachable,
)
from suture.server.explanation import Explanation
from suture.server.request import CompletionChunk, CompletionRequest, SamplingParams
from suture.server.token_texts import TokenTexts

State = Literal["loading", "ready", "stalled", "unreachable"]
ModelState = Literal["unloaded", "loading", "ready", "stalled", "unreachable", "failed"]
PROVIDER = "suture"
LOADED: frozenset[ModelState] = frozenset({"ready", "stalled"})


class NoSuchModel(InvalidRequest):
    """A model is named that is not served, where that is an error."""

    status = 404

    def __init__(self, message: str) -> None:
        super().__init__(message, "model")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that is served; `fim` says whether it can fill in the middle, `device` what it
    runs on: "cpu", or a GPU's backend such as "cuda".

    `family` is that of its sentinels, `architecture` what its file says. Sizes are 0 until the file
    was read, `n_ctx` then being what the context will be; choices not yet made are None.
    """

    name: str
    path: str
    n_ctx: int
    n_vocab: int
    n_params: int | None
    size_bytes: int | None
    fim: bool
    family: str | None
    tokenizer: Choice | None = None
    detokenizer: Choice | None = None
    memory: Memory | None = None
    architecture: str | None = None
    tokens: TokenTexts | None = None
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Slot:
    """What one of the places where requests run is at; of its texts there is nothing in it.

    `number` tells requests apart. `max_tokens` may be generated, `n_generated` are.
    """

    number: int
    n_prompt_tokens: int
    n_generated: int
    max_tokens: int
    sampling: SamplingParams
    ignore_eos: bool


class Completer(Protocol):
    """Completes requests with one model."""

    @property
    def model(self) -> ModelInfo:
        """What is known of the model so far."""
        ...

    def state(self) -> State:
        """Whether requests are served yet; raises the `SutureError` that loading failed with.

        Stalled: there is work, and no step of it was completed within the set time. Unreachable:
        other servers run the model, and none of them answers.
        """
        ...

    def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        """The text of a completion, chunk by chunk, the candidates' in turns."""
        ...

    async def explain(self, request: CompletionRequest) -> Explanation:
        """What becomes of a request, and why; cancelling the task that waits for it ends it."""
        ...

    async def tokenize(self, text: str, specials: Specials) -> Sequence[int]:
        """The token ids of a text by itself, with none added."""
        ...

    def measured(self) -> Measured:
        """Everything for `/v1/status` and `/metrics`."""
        ...

    def slots(self) -> list[Slot | None]:
        """An entry for each request that may run at once, None where none does."""
        ...


class ServedCompleter(Completer, Protocol):
    """A completer with a model to load and to free."""

    def start(self) -> None:
        """Begin to load; returns at once."""
        ...

    def cancel_all(self) -> None:
        """End every completion with its text so far."""
        ...

    def close(self) -> None:
        """Stop what runs and free the model; returns when that is done."""
        ...


class ServedModel(Protocol):
    """One of the models that may be served, loaded or not."""

    @property
    def info(self) -> ModelInfo:
        """What is known of it so far."""
        ...

    @property
    def n_bytes(self) -> int:
        """What it takes in memory while it is loaded; 0 while that is not known."""
        ...

    def state(self) -> ModelState:
        """Failed: it could not be loaded. Raises what its engine ended with."""
        ...

    def lease(self) -> AbstractContextManager[Completer]:
        """Its completer, which is not closed before the block ends.

        Where it is not loaded, begins to load it, and raises `Loading` or why it cannot be.
        """
        ...

    def load(self) -> None:
        """Begin to load it, if it is not; returns at once. Raises `Unavailable` or `RequestError`
        where there is no room for it."""
        ...

    def unload(self) -> None:
        """Have it freed, if it is loaded, as soon as no request runs."""
        ...

    def slots(self) -> list[Slot | None]:
        """An entry for each request that may run at once, None where none does."""
        ...


@runtime_checkable
class Pool(Protocol):
    """The models that are served."""

    @property
    def models(self) -> Sequence[ServedModel]:
        """All of them, the default one first."""
        ...

    def named(self, name: str) -> ServedModel | None:
        """The model of that name, also as Ollama's clients write it."""
        ...

    def state(self) -> State:
        """Whether requests are served; raises the `SutureError` with which they no longer are."""
        ...

    def measured(self) -> Measured:
        """Everything for `/v1/status` and `/metrics`, of all models together."""
        ...


class ServedPool(Pool, Protocol):
    """A pool with a default model to load, and models to free."""

    def start(self) -> None:
        """Begin to load the default model; returns at once."""
        ...

    def tend(self) -> None:
        """Do what is due: to be called now and then."""
        ...

    def cancel_all(self) -> None:
        """End every completion with its text so far."""
        ...

    def close(self) -> None:
        """Stop what runs and free all models; returns when that is done."""
        ...


def model_asked_for(pool: Pool, asked: Mapping[str, object]) -> ServedModel:
    """The model that a body or a query names by `model`; the default one where it names none.

    What an unknown name means is the dialect's: here it names none. Refact's clients put who
    provides a model before its name.
    """
    name = asked.get("model")
    if not isinstance(name, str):
        return pool.models[0]
    return pool.named(name) or pool.named(name.removeprefix(f"{PROVIDER}/")) or pool.models[0]


def why_unready(pool: Pool, stall_s: float) -> Unavailable | None:
    """Why no requests are served; None where they are.

    Raises the `SutureError` with which they no longer are. `stall_s` is what a stall was told by.
    """
    state = pool.state()
    if state == "loading":
        return Loading("Loading model")
    if state == "stalled":
        return Stalled(f"the engine has work and no step of it in {stall_s} s")
    if state == "unreachable":
        return Unreachable("no inference server answers that runs the model")
    return None


def shown_state(model: ServedModel) -> ModelState:
    """Its state; failed also where its engine has, which ends the server at once."""
    try:
        return model.state()
    except SutureError:
        return "failed"
