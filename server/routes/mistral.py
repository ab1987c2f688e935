"""Mistral's dialect: `POST /v1/fim/completions`.

A `suffix` that is not empty makes it an infill; without one the text goes on left to right, as
Mistral says it does. Answers are chat-shaped: the text is a message's `content`, or a `delta`'s.
Mistral leaves the temperature to the model; here it is `DEFAULTS`'. llama.cpp's sampling names are
understood too. `metadata` and `prompt_cache_key` say nothing about the text and are ignored.
Streams end with `[DONE]`, except after an error.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from suture.server.openapi.operation import Operation
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    FinishReason,
    SamplingParams,
)
from suture.server.routes.body import validate
from suture.server.routes.candidates import Completed
from suture.server.routes.completer import ModelInfo
from suture.server.routes.delivery import Asked
from suture.server.routes.extension import ExtensionFields, suture_object
from suture.server.routes.fields import (
    MAX_INT,
    Count,
    SamplingFields,
    StopStrings,
    Text,
)
from suture.server.routes.grammars import FormatFields
from suture.server.routes.raw_prompts import hole_of
from suture.server.routes.shapes.mistral import FimCompletion, FimEvent, MistralError
from suture.server.settings import Settings
from suture.server.sse import DONE, event

DEFAULTS = SamplingParams(temperature=0.3)

_FINISH_REASONS: dict[FinishReason, str] = {"stop": "stop", "eos": "stop", "suffix": "stop"}
_ERROR_TYPES = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    429: "rate_limited",
    501: "not_supported",
    503: "service_unavailable",
}


class FimBody(ExtensionFields, FormatFields, SamplingFields):
    """The body of `POST /v1/fim/completions`."""

    NOT_NULL: ClassVar[frozenset[str]] = frozenset({"prompt"})
    NOT_YET: ClassVar[Mapping[str, tuple[Any, ...]]] = {"n": (1,)}

    SAMPLING = DEFAULTS

    prompt: Text = Field(description="The text before the cursor.")
    suffix: Text = Field(
        default="",
        description="The text after the cursor; without one the text goes on left to right.",
    )
    max_tokens: Count | None = Field(
        default=None, description="Absent, as much as there is room for."
    )
    stop: StopStrings = Field(default_factory=list)
    stream: bool = False
    random_seed: Count | None = Field(default=None, description="Goes before seed.")
    metadata: dict[str, Any] | None = Field(default=None, description="Ignored.")
    prompt_cache_key: Text | None = Field(default=None, description="Ignored.")

    def to_request(self, settings: Settings, model: ModelInfo) -> CompletionRequest:
        """The same, in no dialect's words."""
        limit = model.n_ctx or MAX_INT
        max_tokens = limit if self.max_tokens is None else min(self.max_tokens, limit)
        sampling = self.sampling(model.n_ctx)
        if self.random_seed is not None:
            sampling = replace(sampling, seed=self.random_seed)
        hole = hole_of(self.prompt, self.suffix) if self.suffix else None
        return CompletionRequest(
            sampling=sampling,
            grammar=self.gbnf,
            grammar_field=self.grammar_field,
            max_tokens=max_tokens,
            stop=tuple(stop for stop in self.stop if stop),
            **self.extension(settings, model, max_tokens) | self.texts(self.prompt, hole),
        )


class FimAnswer:
    """The answer to one `/v1/fim/completions` body."""

    def __init__(self, body: FimBody, model: str) -> None:
        self._body = body
        self._head: dict[str, object] = {
            "id": uuid.uuid4().hex,
            "created": int(time.time()),
            "model": model,
        }
        self._begun = False

    def delta(self, chunk: CompletionChunk) -> bytes:
        choice: dict[str, object] = {"index": 0, "delta": self._message(chunk.text)}
        return event(self._chunk() | {"choices": [choice | self._end(chunk.token_ids, None)]})

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        choice: dict[str, object] = {"index": 0, "delta": self._message(chunk.text)}
        choice |= self._end(chunk.token_ids, _finish_reason(completed))
        end = {"choices": [choice], "usage": _usage(completed)}
        return event(self._chunk() | end | self._suture(completed))

    def end(self, candidates: list[Completed]) -> bytes:
        return DONE

    def whole(self, candidates: list[Completed]) -> object:
        (completed,) = candidates
        message = {"role": "assistant", "content": completed.text, "tool_calls": None}
        choice: dict[str, object] = {"index": 0, "message": message}
        choice |= self._end(completed.token_ids, _finish_reason(completed))
        answer = {"object": "chat.completion", "choices": [choice], "usage": _usage(completed)}
        return self._head | answer | self._suture(completed)

    def _chunk(self) -> dict[str, object]:
        return self._head | {"object": "chat.completion.chunk"}

    def _message(self, text: str) -> dict[str, object]:
        """A stream's next piece; only the first one says whose it is, as clients join them all."""
        role: dict[str, object] = {} if self._begun else {"role": "assistant"}
        self._begun = True
        return role | {"content": text}

    def _end(self, token_ids: Sequence[int], reason: str | None) -> dict[str, object]:
        ids = {"token_ids": token_ids} if self._body.wants_token_ids else {}
        return {"finish_reason": reason, **ids}

    def _suture(self, completed: Completed) -> dict[str, object]:
        ids = completed.token_ids if self._body.wants_token_ids else None
        return {"suture": suture_object(completed.result, completed.text, ids)}


def _finish_reason(completed: Completed) -> str:
    return _FINISH_REASONS.get(completed.result.finish, "length")


def _usage(completed: Completed) -> dict[str, object]:
    prompt, n_completion = completed.result.prompt, completed.result.completion_tokens
    return {
        "prompt_tokens": prompt.tokens,
        "completion_tokens": n_completion,
        "total_tokens": prompt.tokens + n_completion,
        "prompt_tokens_details": {"cached_tokens": prompt.reused},
    }


class MistralDialect:
    """Bodies, answers and errors as Mistral's API writes them."""

    operation = Operation(
        "Mistral",
        "The text at a cursor, or a text that goes on",
        (FimBody,),
        FimCompletion,
        streamed=FimEvent | MistralError,
        statuses=(500, 501, 502, 503),
        example={"prompt": "def area(w, h):\n    return ", "suffix": "\n", "max_tokens": 16},
    )
    error_shape = MistralError

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        fim = validate(FimBody, body)
        request = fim.to_request(settings, model)
        return Asked(request, FimAnswer(fim, model.name), fim.stream, fim.wants_token_ids)

    def error_body(self, status: int, message: str, field: str | None) -> dict[str, object]:
        kind = "internal_server_error" if status >= 500 else "invalid_request_error"
        return {
            "object": "error",
            "message": message,
            "type": _ERROR_TYPES.get(status, kind),
            "param": field,
            "code": None,
        }
