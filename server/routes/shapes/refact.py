"""What Refact's dialect answers with."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from suture.server.routes.shapes.suture import ErrorReason, SutureObject


class RefactError(TypedDict):
    """An error of Refact's dialect."""

    detail: str
    suture: NotRequired[ErrorReason]


class RefactChoice(TypedDict):
    """A candidate, or a piece of one; `suture` is here where several are asked for."""

    index: int
    code_completion: str
    finish_reason: Literal["stop", "length"] | None
    suture: NotRequired[SutureObject]


class RefactEvent(TypedDict):
    """An event of a stream."""

    choices: list[RefactChoice]
    snippet_telemetry_id: int
    model: str
    created: float
    suture: NotRequired[SutureObject]


class RefactCompletion(RefactEvent):
    """A whole answer."""

    context: dict[str, Any]
    cached: bool


class RefactCaps(TypedDict):
    """The answer of `/v1/caps`, as Refact's engine writes it."""

    cloud_name: str
    telemetry_basic_dest: str
    telemetry_basic_retrieve_my_own: str
    completion_models: dict[str, dict[str, Any]]
    chat_models: dict[str, dict[str, Any]]
    embedding_model: dict[str, Any]
    completion_default_model: str
    chat_default_model: str
    chat_thinking_model: str
    chat_light_model: str
    caps_version: int
    customization: str
    hf_tokenizer_template: str
    metadata: dict[str, Any]
