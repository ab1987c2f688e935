"""Ollama's dialect: `POST /api/generate`.

A `suffix` that is not empty makes it an infill, also with an empty prompt; without one the text
goes on left to right, as with a model whose template is the prompt alone. A prompt with sentinels
of its own, which is what `raw` is for, is read back to its hole (`raw_prompts`); beside `raw` the
`suffix` is ignored, as Ollama does. With neither prompt nor suffix nothing is generated: clients
ask so for the model to be loaded, or with `keep_alive` 0 to be unloaded.

Sampling defaults are Ollama's. Of `options` these are accepted without effect, as they are about
how a model is loaded, or the text goes on past its context, which it does not here: `num_ctx`,
`num_batch`, `num_gpu`, `num_keep`, `num_thread`, `main_gpu`, `use_mmap` and `draft_num_predict`,
and beside them `shift` and, but for that 0, `keep_alive`.
Streams are lines of JSON, and streaming is the default. There is no `context` in an answer, and
so none to be sent back.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from suture.server.errors import InfillUnsupported, InvalidRequest, RequestError
from suture.server.models.names import plain_name
from suture.server.openapi.operation import Operation
from suture.server.request import (
    Alternative,
    CompletionChunk,
    CompletionRequest,
    FinishReason,
    SamplingParams,
    ScoredToken,
)
from suture.server.routes.body import validate
from suture.server.routes.candidates import Completed
from suture.server.routes.completer import ModelInfo
from suture.server.routes.delivery import Asked, Wants
from suture.server.routes.extension import ExtensionFields, suture_object
from suture.server.routes.fields import MAX_INT, Integer, SamplingFields, StopStrings, Text
from suture.server.routes.grammars import JSON_OBJECT, GrammarFields
from suture.server.routes.raw_prompts import Hole, hole_of, read_hole, read_raw_hole
from suture.server.routes.shapes.ollama import Generated, OllamaError, OllamaStreamed
from suture.server.settings import Settings
from suture.server.sse import line

DEFAULTS = SamplingParams(temperature=0.8, top_k=40, top_p=0.9)
MAX_TOP_LOGPROBS = 20

# "length" is the one reason of Ollama's that says that there would have been more.
_DONE_REASONS: dict[FinishReason, str] = {"stop": "stop", "eos": "stop", "suffix": "stop"}
# Clients read these as numbers, and JSON has no infinity.
_LEAST_LOGPROB = -3.4e38
_WITHOUT_EFFECT = "Without effect."
_DURATION = re.compile(r"[+-]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)")


class ModelNotFound(RequestError):
    """A model is asked for by a name that none of those that are served has."""

    status = 404

    def __init__(self, asked: str) -> None:
        name = _one_line(asked[:128])
        super().__init__(f"model '{name}' not found: GET /api/tags lists those of this server")


class InsertUnsupported(InfillUnsupported):
    """The model cannot fill in, in the status that Ollama has for it."""

    status = 400


def check_model(asked: str | None, answering: str) -> None:
    """Raise `ModelNotFound` unless `asked`, if it says anything, names the model that answers."""
    if asked and plain_name(asked) != plain_name(answering):
        raise ModelNotFound(asked)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


def _an_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    return value


def _format(value: Any) -> Any:
    if value == "":
        return None
    if value == "json":
        return JSON_OBJECT
    if not isinstance(value, dict):
        raise ValueError('must be "json" or a JSON schema, which is an object')
    return value


def _keep_alive(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_duration = isinstance(value, str) and len(value) < 64 and _DURATION.fullmatch(value)
    if not (is_number or is_duration):
        raise ValueError('must be a number of seconds or a duration such as "5m"')
    return value


def _think(value: Any) -> Any:
    if value is True or value in ("low", "medium", "high", "max"):
        raise ValueError("is not supported: the model does not think before it answers")
    if value is not False:
        raise ValueError('must be true, false, "low", "medium", "high" or "max"')
    return value


class Options(SamplingFields):
    """The `options` of a body."""

    SAMPLING = DEFAULTS

    num_predict: Integer = Field(
        default=-1, description="Tokens at most; negative, all that fit; 0 only reads the prompt."
    )
    stop: StopStrings = Field(default_factory=list)
    num_ctx: Integer = Field(default=0, description=_WITHOUT_EFFECT)
    num_batch: Integer = Field(default=0, description=_WITHOUT_EFFECT)
    num_gpu: Integer = Field(default=-1, description=_WITHOUT_EFFECT)
    num_keep: Integer = Field(default=0, description=_WITHOUT_EFFECT)
    num_thread: Integer = Field(default=0, description=_WITHOUT_EFFECT)
    main_gpu: Integer = Field(default=0, description=_WITHOUT_EFFECT)
    use_mmap: bool = Field(default=True, description=_WITHOUT_EFFECT)
    draft_num_predict: Integer = Field(default=0, description=_WITHOUT_EFFECT)

    def max_tokens(self, model: ModelInfo) -> int:
        """How many tokens may be generated: all that fit, where the number is negative."""
        limit = model.n_ctx or MAX_INT
        return limit if self.num_predict < 0 else min(self.num_predict, limit)


class GenerateBody(ExtensionFields, GrammarFields):
    """The body of `POST /api/generate`."""

    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {
        "_debug_render_only": (False,),
        "context": ([],),
        "images": ([],),
        "template": ("",),
        "truncate": (True,),
    }
    SCHEMA_FIELDS = ("json_schema", "format")

    model: Text | None = Field(
        default=None,
        description="A served model's name, with or without :latest; none, or an empty one, asks "
        "the default one, and any other is a 404.",
    )
    prompt: Text = Field(
        default="", description="The text before the cursor, or one with sentinels of its own."
    )
    suffix: Text = Field(
        default="",
        description="The text after the cursor; without one the text goes on left to right.",
    )
    system: Text = Field(
        default="", description="Ignored in a hole, and refused elsewhere: there is no chat."
    )
    stream: bool = True
    raw: bool = Field(default=False, description="The prompt has sentinels; suffix is ignored.")
    format: Annotated[
        Any,
        BeforeValidator(_format),
        WithJsonSchema({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]}),
    ] = Field(default=None, description='"json" is any object; or a JSON schema.')
    options: Annotated[Options, BeforeValidator(_an_object)] = Field(default_factory=Options)
    keep_alive: Annotated[
        Any,
        BeforeValidator(_keep_alive),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "number"},
                    {"type": "string", "maxLength": 63, "pattern": f"^{_DURATION.pattern}$"},
                ]
            }
        ),
    ] = Field(
        default=None,
        description="0 without prompt and suffix has the model unloaded; else without effect.",
    )
    think: Annotated[bool, BeforeValidator(_think), WithJsonSchema({"const": False})] = Field(
        default=False, description="The model does not think before it answers."
    )
    shift: bool = Field(default=True, description=_WITHOUT_EFFECT)
    logprobs: bool = Field(default=False, description="Log probabilities of the text's tokens.")
    top_logprobs: Annotated[Integer, Field(ge=0, le=MAX_TOP_LOGPROBS)] = Field(
        default=0, description="With logprobs: of so many of the likeliest in each one's place."
    )

    @property
    def only_loads(self) -> bool:
        """Whether there is no text to go on with: a model is loaded, and unloaded, by that."""
        return not self.prompt and (self.raw or not self.suffix)

    @property
    def only_unloads(self) -> bool:
        """Whether that is what is asked for: elsewhere a model stays for as long as we say."""
        return self.only_loads and self.keep_alive is not None and _is_zero(self.keep_alive)

    def to_request(self, settings: Settings, model: ModelInfo) -> CompletionRequest:
        """The same, in no dialect's words."""
        check_model(self.model, model.name)
        hole = self._hole(model)
        self._check(hole is not None)
        max_tokens = 0 if self.only_loads else self.options.max_tokens(model)
        extension = self.extension(settings, model, max_tokens)
        return CompletionRequest(
            sampling=self.options.sampling(model.n_ctx),
            grammar=self.gbnf,
            grammar_field=self.grammar_field,
            max_tokens=max_tokens,
            stop=tuple(stop for stop in self.options.stop if stop),
            n_probs=self.top_logprobs if self.logprobs else None,
            **extension | self.texts(self.prompt, hole),
        )

    def _hole(self, model: ModelInfo) -> Hole | None:
        """The texts around the cursor; None where there is none, and the prompt goes on."""
        if self.raw:
            hole = read_raw_hole(self.prompt, model.family)
        elif self.suffix:
            hole = hole_of(self.prompt, self.suffix)
        else:
            # Some clients send their own sentinels through a template that is the prompt alone.
            hole = read_hole(self.prompt, model.family)
        # Before its file is read nothing is known of a model, nor what it can.
        if hole is not None and hole.suffix.strip() and model.n_ctx and not model.fim:
            raise InsertUnsupported(f'"{model.name}" does not support insert')
        return hole

    def _check(self, is_infill: bool) -> None:
        if self.system and self.raw:
            raise InvalidRequest('"system" cannot be had beside "raw"', "system")
        if self.system and not is_infill:
            raise InvalidRequest('"system" is not supported: there is no chat here', "system")


def _is_zero(duration: str | float) -> bool:
    return not re.search("[1-9]", duration) if isinstance(duration, str) else duration == 0


@dataclass(frozen=True, slots=True)
class GenerateAnswer:
    """The answer to one `/api/generate` body; `started_ns` is when it came."""

    body: GenerateBody
    model: str
    started_ns: int

    def delta(self, chunk: CompletionChunk) -> bytes:
        return line(
            self._head()
            | {"response": chunk.text, "done": False}
            | self._ids(chunk.token_ids)
            | self._logprobs(chunk.scores)
        )

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        # Clients do not look for text in the line that is the last one: Ollama's has none.
        has_more = chunk.text or chunk.scores or self._ids(chunk.token_ids).get("token_ids")
        end = line(self._head() | {"response": ""} | self._end(completed))
        return self.delta(chunk) + end if has_more else end

    def end(self, candidates: list[Completed]) -> bytes:
        return b""

    def whole(self, candidates: list[Completed]) -> object:
        completed = candidates[0]
        return (
            self._head()
            | {"response": completed.text}
            | self._end(completed)
            | self._ids(tuple(completed.token_ids))
            | self._logprobs(completed.scores)
        )

    def _head(self) -> dict[str, object]:
        created_at = datetime.now(UTC).isoformat(timespec="microseconds")
        return {"model": self.model, "created_at": created_at.replace("+00:00", "Z")}

    def _ids(self, token_ids: tuple[int, ...]) -> dict[str, object]:
        return {"token_ids": token_ids} if self.body.wants_token_ids else {}

    def _logprobs(self, scores: tuple[ScoredToken, ...]) -> dict[str, object]:
        return {"logprobs": [_scored(score) for score in scores]} if scores else {}

    def _end(self, completed: Completed) -> dict[str, object]:
        result = completed.result
        ids = completed.token_ids if self.body.wants_token_ids else None
        total_ns = time.monotonic_ns() - self.started_ns
        is_load = self.body.only_loads and not self.body.only_unloads
        return {
            "done": True,
            "done_reason": self._done_reason(result.finish),
            "total_duration": total_ns,
            # How long a text waited for its model is in the total alone.
            "load_duration": total_ns if is_load else 0,
            "prompt_eval_count": result.prompt.tokens,
            "prompt_eval_duration": _ns(result.timings.prompt_ms),
            "eval_count": result.completion_tokens,
            "eval_duration": _ns(result.timings.predicted_ms),
            "suture": suture_object(result, completed.text, ids),
        }

    def _done_reason(self, finish: FinishReason) -> str:
        if self.body.only_unloads:
            return "unload"
        return "load" if self.body.only_loads else _DONE_REASONS.get(finish, "length")


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _scored(score: ScoredToken) -> dict[str, object]:
    top = [_token(one) for one in score.top]
    return _token(score) | ({"top_logprobs": top} if top else {})


def _token(token: ScoredToken | Alternative) -> dict[str, object]:
    """As Ollama has it: of half a character the text has nothing, and `bytes` all."""
    return {
        "token": token.piece.decode("utf-8", "ignore"),
        "logprob": max(token.logprob, _LEAST_LOGPROB),
        "bytes": list(token.piece),
    }


class OllamaDialect:
    """Bodies, answers and errors as Ollama writes them."""

    operation = Operation(
        "Ollama",
        "The text at a cursor, or a text that goes on; streamed unless asked otherwise",
        (GenerateBody,),
        Generated,
        streamed=OllamaStreamed,
        statuses=(404, 500, 501, 502, 503),
        example={
            "prompt": "def area(w, h):\n    return w * ",
            "suffix": "\n",
            "options": {"temperature": 0, "num_predict": 16},
        },
    )
    error_shape = OllamaError

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        started_ns = time.monotonic_ns()
        generate = validate(GenerateBody, body)
        request = generate.to_request(settings, model)
        answer = GenerateAnswer(generate, generate.model or model.name, started_ns)
        # As with Ollama a request waits until its model is there.
        wants: Wants = "unloaded" if generate.only_unloads else "loaded"
        return Asked(request, answer, generate.stream, generate.wants_token_ids, wants=wants)

    def error_body(self, status: int, message: str, field: str | None) -> dict[str, object]:
        return {"error": message}
