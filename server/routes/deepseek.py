"""DeepSeek's dialect: `POST /beta/completions`, its fill-in-the-middle API.

Bodies, answers and errors are OpenAI's, within DeepSeek's own limits: an answer is at most 4K
tokens long, which is also the default. `usage` says what came from the cache in its words.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from suture.server.openapi.operation import Operation
from suture.server.routes.body import validate
from suture.server.routes.candidates import Completed
from suture.server.routes.completer import ModelInfo
from suture.server.routes.delivery import Asked
from suture.server.routes.fields import Integer, Probs, StopStrings, stops_schema
from suture.server.routes.openai import (
    CompletionsAnswer,
    CompletionsBody,
    OpenAIDialect,
    logprobs_schema,
    n_logprobs,
)
from suture.server.routes.prompts import Prompts
from suture.server.routes.shapes.openai import DeepSeekCompletion, DeepSeekEvent, OpenAIError
from suture.server.settings import Settings
from suture.server.version import VERSION

MAX_TOKENS = 4096
MAX_STOPS = 16
MAX_LOGPROBS = 20


def _few_stops(stops: list[str]) -> list[str]:
    if len(stops) > MAX_STOPS:
        raise ValueError(f"must be at most {MAX_STOPS} strings, not {len(stops)}")
    return stops


def _a_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


Penalty = Annotated[float, Field(ge=-2, le=2)]


class DeepSeekBody(CompletionsBody):
    """The body of `POST /beta/completions`."""

    DEFAULT_MAX_TOKENS: ClassVar[int] = MAX_TOKENS

    prompt: Annotated[Prompts, BeforeValidator(_a_text), WithJsonSchema({"type": "string"})] = (
        Field(description="The text before the cursor.")
    )
    max_tokens: Annotated[Integer, Field(ge=1, le=MAX_TOKENS)] | None = Field(
        default=None, description=f"Absent, {MAX_TOKENS}."
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: Annotated[
        StopStrings, AfterValidator(_few_stops), WithJsonSchema(stops_schema(MAX_STOPS))
    ] = Field(default_factory=list)
    logprobs: Annotated[
        Annotated[Probs, Field(le=MAX_LOGPROBS)] | None,
        BeforeValidator(n_logprobs),
        WithJsonSchema(logprobs_schema(MAX_LOGPROBS)),
    ] = None


class DeepSeekAnswer(CompletionsAnswer):
    """The answer to one `/beta/completions` body."""

    def __init__(self, body: DeepSeekBody, model: str) -> None:
        super().__init__(body, model, system_fingerprint=f"suture-{VERSION}")

    def usage(self, candidates: list[Completed]) -> dict[str, object]:
        prompts = self.prompts(candidates)
        n_reused = sum(prompt.reused for prompt in prompts)
        return super().usage(candidates) | {
            "prompt_cache_hit_tokens": n_reused,
            "prompt_cache_miss_tokens": sum(prompt.tokens for prompt in prompts) - n_reused,
        }


class DeepSeekDialect(OpenAIDialect):
    """Bodies and answers as DeepSeek's API writes them; errors as OpenAI's does."""

    operation = Operation(
        "DeepSeek",
        "A text that goes on, or the text at a cursor",
        (DeepSeekBody,),
        DeepSeekCompletion,
        streamed=DeepSeekEvent | OpenAIError,
        statuses=(500, 501, 502, 503),
        example={"prompt": "def area(w, h):\n    return ", "suffix": "\n", "max_tokens": 16},
    )

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        completions = validate(DeepSeekBody, body)
        first, *others = completions.to_requests(settings, model)
        answer = DeepSeekAnswer(completions, model.name)
        return Asked(first, answer, completions.stream, completions.wants_token_ids, others)
