"""OpenAI's dialect: `POST /v1/completions`.

A `suffix` that is not empty makes it an infill; without one the text goes on left to right, but
for a hole in the form of a family (`prompts`). The choices of several prompts count on. Sampling
defaults are OpenAI's. llama.cpp's sampling names are understood too, as llama-server does, and
`max_completion_tokens`, which some clients have from the chat API. Streams end with `[DONE]`,
except after an error.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from suture.healing import display_name
from suture.server.errors import InvalidRequest
from suture.server.openapi.operation import Operation
from suture.server.request import (
    Alternative,
    CompletionChunk,
    CompletionRequest,
    FinishReason,
    PromptReport,
    SamplingParams,
    ScoredToken,
)
from suture.server.routes.body import validate
from suture.server.routes.candidates import Completed
from suture.server.routes.completer import ModelInfo
from suture.server.routes.delivery import Asked
from suture.server.routes.extension import ExtensionFields, finite, suture_object
from suture.server.routes.fields import (
    MAX_BIASES,
    MAX_INT,
    MAX_PROBS,
    Candidates,
    Count,
    Probs,
    SamplingFields,
    StopStrings,
    Text,
    check_token_id,
)
from suture.server.routes.grammars import FormatFields
from suture.server.routes.prompts import Parts, Prompts, prompt_text, read_prompt
from suture.server.routes.raw_prompts import hole_of
from suture.server.routes.shapes.openai import Completion, CompletionEvent, OpenAIError
from suture.server.settings import Settings
from suture.server.sse import DONE, encode_json, event

DEFAULTS = SamplingParams(temperature=1.0)

# "length" is the one reason of OpenAI's that says that there would have been more.
_FINISH_REASONS: dict[FinishReason, str] = {"stop": "stop", "eos": "stop", "suffix": "stop"}


def n_logprobs(value: Any) -> Any:
    """A number of log probabilities; false, as clients of the chat API write it, is none."""
    return None if value is False else value


def logprobs_schema(most: int) -> dict[str, Any]:
    """What `n_logprobs` takes, up to `most`."""
    return {"anyOf": [{"type": "integer", "minimum": 0, "maximum": most}, {"const": False}]}


def _logit_bias(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("must be an object of token ids and biases")
    if len(value) > MAX_BIASES:
        raise ValueError(f"must be at most {MAX_BIASES} biases, not {len(value)}")
    for token, bias in value.items():
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            raise ValueError("must have token ids as keys")
        if type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise ValueError("must have numbers from -100 to 100 as biases")
    return {int(token): float(bias) for token, bias in value.items()}


class StreamOptions(BaseModel):
    """What a stream holds beside the text."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    include_usage: bool | None = None


class CompletionsBody(ExtensionFields, FormatFields, SamplingFields):
    """The body of `POST /v1/completions`."""

    NOT_NULL: ClassVar[frozenset[str]] = frozenset({"prompt"})
    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {"echo": (False,)}

    DEFAULT_MAX_TOKENS: ClassVar[int] = 16

    SAMPLING = DEFAULTS

    prompt: Prompts = Field(
        description="The text before the cursor, or token ids that say it; several make so many"
        " choices."
    )
    suffix: Text = Field(
        default="",
        description="The text after the cursor; without one the text goes on left to right.",
    )
    max_tokens: Count | None = Field(
        default=None, description=f"Absent, {DEFAULT_MAX_TOKENS}; 0 only reads the prompt."
    )
    max_completion_tokens: Count | None = Field(
        default=None, description="The same under the chat API's name, where that is absent."
    )
    stop: StopStrings = Field(default_factory=list)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Candidates | None = Field(
        default=None,
        description="So many choices, or fewer where some come to the same text.",
    )
    best_of: Candidates | None = Field(
        default=None, description="As many as `n`, or 1: all that are made are answered."
    )
    logprobs: Annotated[
        Probs | None,
        BeforeValidator(n_logprobs),
        WithJsonSchema(logprobs_schema(MAX_PROBS)),
    ] = Field(
        default=None,
        description="Log probabilities of the text's tokens, and of so many of the likeliest in "
        "each one's place.",
    )
    logit_bias: Annotated[
        dict[int, float],
        BeforeValidator(_logit_bias),
        WithJsonSchema(
            {
                "type": "object",
                "maxProperties": MAX_BIASES,
                "propertyNames": {"pattern": "^[0-9]{1,9}$"},
                "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
            }
        ),
    ] = Field(
        default_factory=dict, description="Added to the logits of token ids; -100 is never drawn."
    )

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def to_requests(self, settings: Settings, model: ModelInfo) -> list[CompletionRequest]:
        """The same, in no dialect's words; raises `Loading` for ids before the model is there."""
        n = self.n or 1
        if self.best_of not in (None, 1, n):
            raise InvalidRequest('"best_of" other than "n" is not supported', "best_of")
        self.check_prompts(len(self.prompt))
        max_tokens = min(self._max_tokens, model.n_ctx or MAX_INT)
        biases = tuple(
            (check_token_id(token_id, model.n_vocab, "logit_bias"), bias)
            for token_id, bias in self.logit_bias.items()
        )
        fields = {
            "sampling": replace(self.sampling(model.n_ctx), logit_bias=biases),
            "grammar": self.gbnf,
            "grammar_field": self.grammar_field,
            "max_tokens": max_tokens,
            "stop": tuple(stop for stop in self.stop if stop),
            "n": n,
            "n_probs": self.logprobs,
            **self.extension(settings, model, max_tokens),
        }
        return [CompletionRequest(**fields | self._texts(parts, model)) for parts in self.prompt]

    @property
    def _max_tokens(self) -> int:
        asked = (self.max_tokens, self.max_completion_tokens, self.DEFAULT_MAX_TOKENS)
        return next(number for number in asked if number is not None)

    def _texts(self, parts: Parts, model: ModelInfo) -> dict[str, Any]:
        if self.suffix:
            return self.texts("", hole_of(prompt_text(parts, model), self.suffix))
        prompt = read_prompt(parts, model)
        return self.texts(prompt.text, prompt.hole)


class CompletionsAnswer:
    """The answer to one `/v1/completions` body; `more` stands beside the model in all of it."""

    def __init__(self, body: CompletionsBody, model: str, **more: object) -> None:
        self._body = body
        self._head: dict[str, object] = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            **more,
        }
        # All of a stream's events but the last of each choice differ in little.
        self._before = b"data: " + encode_json(self._head)[:-1] + b',"choices":[{"text":'
        usage = b',"usage":null' if body.includes_usage else b""
        self._after = b"}]" + usage + b"}\n\n"

    def delta(self, chunk: CompletionChunk) -> bytes:
        choice = b',"index":%d,"logprobs":%s,"finish_reason":null' % (
            chunk.index,
            encode_json(self._logprobs(chunk.scores)),
        )
        if self._body.wants_token_ids:
            choice += b',"token_ids":' + encode_json(chunk.token_ids)
        return self._before + encode_json(chunk.text) + choice + self._after

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        end = self._head | {"choices": [self._choice(chunk, completed)]}
        if self._body.includes_usage:
            return event(end | {"usage": None})
        return event(end | self._suture_of_one(completed))

    def end(self, candidates: list[Completed]) -> bytes:
        if not self._body.includes_usage:
            return DONE
        usage = self._head | {"choices": [], "usage": self.usage(candidates)}
        return event(usage | self._suture_of_one(candidates[0])) + DONE

    def whole(self, candidates: list[Completed]) -> object:
        return self._head | {
            "choices": [
                self._choice(
                    CompletionChunk(one.text, tuple(one.token_ids), scores=one.scores), one
                )
                for one in candidates
            ],
            "usage": self.usage(candidates),
            **self._suture_of_one(candidates[0]),
        }

    def usage(self, candidates: list[Completed]) -> dict[str, object]:
        """What the answer took, in tokens."""
        prompts = self.prompts(candidates)
        n_prompt = sum(prompt.tokens for prompt in prompts)
        n_completion = sum(one.result.completion_tokens + one.n_merged for one in candidates)
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": n_completion,
            "total_tokens": n_prompt + n_completion,
            "prompt_tokens_details": {"cached_tokens": sum(prompt.reused for prompt in prompts)},
        }

    def prompts(self, candidates: list[Completed]) -> list[PromptReport]:
        """What became of each prompt, which is read once for all its candidates."""
        return [one.result.prompt for one in candidates[:: self._body.n or 1]]

    def _choice(self, chunk: CompletionChunk, completed: Completed) -> dict[str, object]:
        choice: dict[str, object] = {
            "text": chunk.text,
            "index": completed.index,
            "logprobs": self._logprobs(chunk.scores),
            "finish_reason": _finish_reason(completed),
        }
        if self._body.wants_token_ids:
            choice["token_ids"] = chunk.token_ids
        return choice | (self._suture(completed) if self._has_many else {})

    def _logprobs(self, scores: Sequence[ScoredToken]) -> dict[str, object] | None:
        """The legacy lists; null where none were asked for, or no token's text begins here."""
        if self._body.logprobs is None or not scores:
            return None
        has_top = self._body.logprobs > 0
        return {
            "tokens": [display_name(score.piece) for score in scores],
            "token_logprobs": [finite(score.logprob) for score in scores],
            "top_logprobs": [_top(score) for score in scores] if has_top else None,
            "text_offset": [score.offset for score in scores],
            "bytes": [list(score.piece) for score in scores],
        }

    def _suture_of_one(self, completed: Completed) -> dict[str, object]:
        """Ours, beside the choices; where there are several, each has its own."""
        return {} if self._has_many else self._suture(completed)

    @property
    def _has_many(self) -> bool:
        return (self._body.n or 1) * len(self._body.prompt) > 1

    def _suture(self, completed: Completed) -> dict[str, object]:
        ids = completed.token_ids if self._body.wants_token_ids else None
        return {"suture": suture_object(completed.result, completed.text, ids)}


def _top(score: ScoredToken) -> dict[str, float | None]:
    """The likeliest tokens and this one by what they say, the likelier of two that say the same."""
    top: dict[str, float | None] = {}
    every: tuple[Alternative | ScoredToken, ...] = (*score.top, score)
    for one in every:
        top.setdefault(display_name(one.piece), finite(one.logprob))
    return top


def _finish_reason(completed: Completed) -> str:
    return _FINISH_REASONS.get(completed.result.finish, "length")


class OpenAIDialect:
    """Bodies, answers and errors as OpenAI's API writes them."""

    operation = Operation(
        "OpenAI",
        "A text that goes on, or the text at a cursor",
        (CompletionsBody,),
        Completion,
        streamed=CompletionEvent | OpenAIError,
        statuses=(500, 501, 502, 503),
        example={"prompt": "import os\nimport nump", "max_tokens": 8, "temperature": 0},
    )
    error_shape = OpenAIError

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        completions = validate(CompletionsBody, body)
        first, *others = completions.to_requests(settings, model)
        answer = CompletionsAnswer(completions, model.name)
        return Asked(first, answer, completions.stream, completions.wants_token_ids, others)

    def error_body(self, status: int, message: str, field: str | None) -> dict[str, object]:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        error = {"message": message, "type": kind, "param": field, "code": None}
        return {"error": error}
