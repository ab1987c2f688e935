"""What Mistral's dialect answers with."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from suture.server.routes.shapes.openai import Usage
from suture.server.routes.shapes.suture import ErrorReason, SutureObject


class MistralError(TypedDict):
    """An error of Mistral's dialect; `param` is the field."""

    object: Literal["error"]
    message: str
    type: str
    param: str | None
    code: str | None
    suture: NotRequired[ErrorReason]


class Message(TypedDict):
    """The text, as a chat would have it."""

    role: Literal["assistant"]
    content: str
    tool_calls: None


class Delta(TypedDict):
    """A piece of the text."""

    role: NotRequired[Literal["assistant"]]
    content: str


class FimChoice(TypedDict):
    """The candidate."""

    index: int
    message: Message
    finish_reason: Literal["stop", "length"]
    token_ids: NotRequired[list[int]]


class FimDelta(TypedDict):
    """A piece of the candidate; the last one has a `finish_reason`."""

    index: int
    delta: Delta
    finish_reason: Literal["stop", "length"] | None
    token_ids: NotRequired[list[int]]


class FimHead(TypedDict):
    """What all of an answer has."""

    id: str
    created: int
    model: str


class FimCompletion(FimHead):
    """A whole answer."""

    object: Literal["chat.completion"]
    choices: list[FimChoice]
    usage: Usage
    suture: SutureObject


class FimEvent(FimHead):
    """An event of a stream; the last one has `usage` and `suture`."""

    object: Literal["chat.completion.chunk"]
    choices: list[FimDelta]
    usage: NotRequired[Usage]
    suture: NotRequired[SutureObject]
