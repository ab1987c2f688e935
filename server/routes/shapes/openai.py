"""What OpenAI's dialect answers with, and DeepSeek's, which is the same and a little more."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from suture.server.routes.shapes.suture import ErrorReason, SutureObject


class OpenAIErrorDetails(TypedDict):
    """What is wrong; `param` is the field."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str | None


class OpenAIError(TypedDict):
    """An error of OpenAI's dialect."""

    error: OpenAIErrorDetails
    suture: NotRequired[ErrorReason]


class Logprobs(TypedDict):
    """Lists with an entry for each token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None]] | None
    text_offset: list[int]
    bytes: list[list[int]]


class Choice(TypedDict):
    """A candidate, or a piece of one; `suture` is here where several are asked for."""

    text: str
    index: int
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None
    token_ids: NotRequired[list[int]]
    suture: NotRequired[SutureObject]


class CachedTokens(TypedDict):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class Usage(TypedDict):
    """What the answer took, in tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class CompletionHead(TypedDict):
    """What all of an answer has."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str


class Completion(CompletionHead):
    """A whole answer."""

    choices: list[Choice]
    usage: Usage
    suture: NotRequired[SutureObject]


class CompletionEvent(CompletionHead):
    """An event of a stream; the last one has `usage`, where it is asked for, and `suture`."""

    choices: list[Choice]
    usage: NotRequired[Usage | None]
    suture: NotRequired[SutureObject]


class DeepSeekUsage(Usage):
    """The same in DeepSeek's words too."""

    prompt_cache_hit_tokens: int
    prompt_cache_miss_tokens: int


class DeepSeekCompletion(CompletionHead):
    """A whole answer of DeepSeek's."""

    system_fingerprint: str
    choices: list[Choice]
    usage: DeepSeekUsage
    suture: NotRequired[SutureObject]


class DeepSeekEvent(CompletionHead):
    """An event of a stream of DeepSeek's."""

    system_fingerprint: str
    choices: list[Choice]
    usage: NotRequired[DeepSeekUsage | None]
    suture: NotRequired[SutureObject]


class ModelStatus(TypedDict):
    """Whether it is loaded, as llama-server's router says it."""

    value: str
    failed: NotRequired[bool]


class ModelCapabilities(TypedDict):
    """What it can do, as Mistral says it."""

    completion_chat: bool
    completion_fim: bool
    function_calling: bool
    vision: bool


class ListedModel(TypedDict):
    """A model, and whether it can fill in."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    type: Literal["base"]
    capabilities: ModelCapabilities
    max_context_length: int
    meta: dict[str, int | None]
    fim: dict[str, Any]
    status: ModelStatus


class ModelList(TypedDict):
    """The answer of `/v1/models`."""

    object: Literal["list"]
    data: list[ListedModel]
