"""What llama.cpp's dialect answers with."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from suture.server.routes.shapes.suture import ErrorReason, SutureObject


class LlamaCppErrorDetails(TypedDict):
    """What is wrong; `code` is the status."""

    code: int
    message: str
    type: str


class LlamaCppError(TypedDict):
    """An error of llama.cpp's dialect."""

    error: LlamaCppErrorDetails
    suture: NotRequired[ErrorReason]


class LlamaCppProbability(TypedDict):
    """A token; of half a character `token` has nothing, and `bytes` all."""

    id: int
    token: str
    bytes: list[int]
    logprob: float | None


class LlamaCppScore(LlamaCppProbability):
    """A token of the text, and the likeliest in its place."""

    top_logprobs: list[LlamaCppProbability]


class LlamaCppTimings(TypedDict):
    """How long reading and writing took."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class LlamaCppCompletion(TypedDict):
    """A whole candidate, and the last event of a stream, whose `content` is the last piece."""

    index: int
    content: str
    tokens: Annotated[list[int], Field(description="The ids, where they are asked for.")]
    id_slot: int
    stop: Literal[True]
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    tokens_cached: int
    generation_settings: dict[str, Any]
    has_new_line: bool
    truncated: bool
    stop_type: Literal["word", "eos", "limit"]
    stopping_word: str
    timings: LlamaCppTimings
    suture: SutureObject
    completion_probabilities: NotRequired[list[LlamaCppScore]]


class LlamaCppPicked(TypedDict):
    """A candidate with `response_fields`: those, each under its whole path, and ours."""

    suture: SutureObject


class LlamaCppPiece(TypedDict):
    """An event of a stream that is not its candidate's last."""

    index: int
    content: str
    tokens: list[int]
    stop: Literal[False]
    completion_probabilities: NotRequired[list[LlamaCppScore]]


LlamaCppOne = LlamaCppCompletion | LlamaCppPicked
LlamaCppAnswered = LlamaCppOne | list[LlamaCppOne]
LlamaCppStreamed = LlamaCppPiece | LlamaCppCompletion | LlamaCppError


class LlamaCppHealth(TypedDict):
    """The answer of `/health`."""

    status: Literal["ok"]


class LlamaCppNextToken(TypedDict):
    """How far a slot has come."""

    has_next_token: bool
    n_remain: int
    n_decoded: int


class LlamaCppSlot(TypedDict):
    """One of the places where requests run; what is not required is of one that is busy."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    id_task: NotRequired[int]
    n_prompt_tokens: NotRequired[int]
    params: NotRequired[dict[str, Any]]
    next_token: NotRequired[list[LlamaCppNextToken]]


class LlamaCppProps(TypedDict):
    """The answer of `/props`."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: Annotated[str, Field(description="The file's name, without its folder.")]
    chat_template: str
    chat_template_caps: dict[str, Any]
    modalities: dict[str, bool]
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    bos_token: str
    eos_token: str
    build_info: str
    is_sleeping: bool


class LlamaCppTokenPiece(TypedDict):
    """A token and its text, or its bytes where these are no whole text."""

    id: int
    piece: str | list[int]


class LlamaCppTokens(TypedDict):
    """The answer of `/tokenize`."""

    tokens: list[int] | list[LlamaCppTokenPiece]


class LlamaCppContent(TypedDict):
    """The answer of `/detokenize`."""

    content: str


class LlamaCppSuccess(TypedDict):
    """What was asked for is done, or begun."""

    success: Literal[True]
