"""What Ollama's dialect answers with."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from suture.server.routes.shapes.suture import ErrorReason, SutureObject


class OllamaError(TypedDict):
    """An error of Ollama's dialect."""

    error: str
    suture: NotRequired[ErrorReason]


class OllamaToken(TypedDict):
    """A token; of half a character `token` has nothing, and `bytes` all."""

    token: str
    logprob: float
    bytes: list[int]


class OllamaScore(OllamaToken):
    """A token of the text, and the likeliest in its place."""

    top_logprobs: NotRequired[list[OllamaToken]]


class GeneratePiece(TypedDict):
    """A line of a stream that is not the last."""

    model: str
    created_at: str
    response: str
    done: Literal[False]
    token_ids: NotRequired[list[int]]
    logprobs: NotRequired[list[OllamaScore]]


class Generated(TypedDict):
    """A whole answer, and the last line of a stream, which has no text."""

    model: str
    created_at: str
    response: str
    done: Literal[True]
    done_reason: Literal["stop", "length", "load"]
    total_duration: Annotated[int, Field(description="In nanoseconds, as all durations.")]
    load_duration: int
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int
    suture: SutureObject
    token_ids: NotRequired[list[int]]
    logprobs: NotRequired[list[OllamaScore]]


OllamaStreamed = GeneratePiece | Generated | OllamaError


class OllamaDetails(TypedDict):
    """What kind of model it is."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaEntry(TypedDict):
    """A model in a list."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaTag(OllamaEntry):
    """A model that may be asked."""

    modified_at: str
    capabilities: list[str]


class OllamaRunning(OllamaEntry):
    """A model that is loaded."""

    expires_at: str
    size_vram: int
    context_length: int


class OllamaTags(TypedDict):
    """The answer of `/api/tags`."""

    models: list[OllamaTag]


class OllamaProcesses(TypedDict):
    """The answer of `/api/ps`."""

    models: list[OllamaRunning]


class OllamaShown(TypedDict):
    """The answer of `/api/show`."""

    modelfile: str
    parameters: str
    template: Annotated[str, Field(description="Has .Suffix where the model can fill in.")]
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class SutureVersion(TypedDict):
    """Our own version."""

    version: str


class OllamaVersion(TypedDict):
    """The answer of `/api/version`: of the Ollama that this may be taken for, and ours."""

    version: str
    suture: SutureVersion
