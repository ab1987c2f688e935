"""llama.cpp's dialect: `POST /infill`, `GET /health` and `GET /slots`.

The text before the cursor is `input_prefix` + `prompt`. Sampling defaults are llama-server's.

Accepted without effect, as they only concern speed, slots or pings: `cache_prompt`,
`n_cache_reuse`, `id_slot`, `timings_per_token`, `n_keep`, `sse_ping_interval`, and `n_indent`, of
which shaping knows more.
Streams end without `[DONE]`. `response_fields` picks fields of an answer that is not streamed;
the `suture` object is always in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from suture.server.errors import InvalidRequest, Unavailable
from suture.server.openapi.operation import Operation, Parameter, described
from suture.server.request import (
    Alternative,
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    ExtraText,
    FinishReason,
    SamplingParams,
    ScoredToken,
)
from suture.server.routes.body import validate
from suture.server.routes.candidates import Completed
from suture.server.routes.completer import ModelInfo, Pool, Slot, model_asked_for, why_unready
from suture.server.routes.delivery import Asked, error_response
from suture.server.routes.extension import ExtensionFields, finite, suture_object
from suture.server.routes.fields import (
    MAX_INT,
    Candidates,
    Integer,
    Number,
    Probs,
    SamplingFields,
    StopStrings,
    Text,
    check_token_id,
)
from suture.server.routes.grammars import GrammarFields
from suture.server.routes.samplers import LogitBias, SamplerNames, of_others, only_listed
from suture.server.routes.shapes.llama_cpp import (
    LlamaCppAnswered,
    LlamaCppError,
    LlamaCppHealth,
    LlamaCppSlot,
    LlamaCppStreamed,
)
from suture.server.settings import Settings
from suture.server.sse import encode_json, event

MAX_EXTRA = 1024

DEFAULTS = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)

_WITHOUT_EFFECT = "Without effect: it only concerns speed or slots."
_STOP_TYPES: dict[FinishReason, str] = {"stop": "word", "eos": "eos", "suffix": "eos"}
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "unavailable_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


class ExtraChunk(BaseModel):
    """A piece of another file."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    text: Text
    filename: Text | None = None


class GenerationFields(ExtensionFields, GrammarFields, SamplingFields):
    """What `/infill` and `/completion` have in common: all but the texts."""

    NOT_YET: ClassVar[dict[str, tuple[Any, ...]]] = {
        "adaptive_target": (-1,),
        "grammar_lazy": (False,),
        "grammar_triggers": ([],),
        "image_data": ([],),
        "lora": ([],),
        "mirostat": (0,),
        "return_progress": (False,),
    }

    SAMPLING = DEFAULTS

    n_predict: Annotated[Integer, Field(ge=-1)] | None = Field(
        default=None,
        description="Tokens at most; -1, as absent, is all that fit; 0 only reads the prompt.",
    )
    max_tokens: Annotated[Integer, Field(ge=-1)] | None = Field(
        default=None, description="The same, where there is no n_predict."
    )
    stop: StopStrings = Field(default_factory=list)
    stream: bool = False
    samplers: SamplerNames | None = Field(
        default=None,
        description="The samplers that apply, in their order, by names or letters, none twice.",
    )
    logit_bias: LogitBias = Field(
        default_factory=list,
        description="Pairs of a token id and what is added to its logit; false is never drawn.",
    )
    response_fields: Annotated[list[Text], Field(max_length=256, fail_fast=True)] = Field(
        default_factory=list,
        description="The fields, such as timings/prompt_n, that an answer has which is not "
        "streamed; none is all.",
    )
    t_max_predict_ms: Number = Field(
        default=0, description="The text ends so long after its first token; 0 is off."
    )
    t_max_prompt_ms: Number = Field(
        default=0, description="The most time from the request to the first token; 0 is off."
    )
    n_cmpl: Candidates | None = Field(
        default=None, description="So many candidates: above 1 the answer is an array."
    )
    n: Candidates | None = Field(default=None, description="The same, where there is no n_cmpl.")
    n_indent: Integer = Field(
        default=0,
        description="Without effect: the file says where a text leaves the cursor's block.",
    )
    n_keep: Integer = Field(default=0, description=_WITHOUT_EFFECT)
    n_cache_reuse: Integer = Field(default=0, description=_WITHOUT_EFFECT)
    id_slot: Integer = Field(default=-1, description=_WITHOUT_EFFECT)
    cache_prompt: bool = Field(default=True, description=_WITHOUT_EFFECT)
    timings_per_token: bool = Field(default=False, description=_WITHOUT_EFFECT)
    n_probs: Probs = Field(
        default=0,
        description="Log probabilities of the text's tokens, and of so many of the likeliest in "
        "each one's place; 0 is off.",
    )
    post_sampling_probs: bool = Field(
        default=False, description="true is refused beside n_probs: not supported yet."
    )

    def generation(self, settings: Settings, model: ModelInfo) -> dict[str, Any]:
        """These fields as arguments of a `CompletionRequest`, but for what a route decides."""
        max_tokens = self._max_tokens(model)
        if self.n_probs and self.post_sampling_probs:
            # Without `n_probs` it says nothing.
            message = '"post_sampling_probs" is not supported yet'
            raise InvalidRequest(message, "post_sampling_probs")
        sampling = self._sampling(model)
        names = self.samplers
        return {
            "sampling": sampling if names is None else only_listed(sampling, names),
            "sampling_of_others": None if names is None else of_others(sampling, names),
            "grammar": self.gbnf,
            "grammar_field": self.grammar_field,
            "max_tokens": max_tokens,
            "stop": tuple(stop for stop in self.stop if stop),
            "n": self.n_cmpl or self.n or 1,
            "n_probs": self.n_probs or None,
            "prompt_deadline_ms": self._prompt_deadline(settings, max_tokens),
            "deadline_ms": _limit(self.t_max_predict_ms),
            **self.extension(settings, model, max_tokens),
        }

    def _prompt_deadline(self, settings: Settings, max_tokens: int) -> int | None:
        """Never less than prompts are sized for, twice over, as others may run.

        Editors send half a second, and a millisecond to warm the cache, as llama-server ignores
        it: they keep an empty answer for good, and nobody waits for what is warmed.
        """
        limit = _limit(self.t_max_prompt_ms) if max_tokens else None
        return None if limit is None else max(limit, 2 * settings.first_text_ms)

    def _max_tokens(self, model: ModelInfo) -> int:
        asked = self.max_tokens if self.n_predict is None else self.n_predict
        limit = model.n_ctx or MAX_INT
        return limit if asked is None or asked == -1 else min(asked, limit)

    def _sampling(self, model: ModelInfo) -> SamplingParams:
        biases = tuple(
            (check_token_id(token_id, model.n_vocab, "logit_bias"), bias)
            for token_id, bias in self.logit_bias
        )
        return replace(self.sampling(model.n_ctx), logit_bias=biases)


class InfillBody(GenerationFields):
    """The body of `POST /infill`."""

    NOT_NULL: ClassVar[frozenset[str]] = frozenset(
        {"input_prefix", "input_suffix", "input_extra", "prompt"}
    )

    input_prefix: Text = Field(description="The text before the cursor, up to prompt.")
    input_suffix: Text = Field(description="The text after the cursor, empty or not.")
    prompt: Text = Field(default="", description="What stands between input_prefix and the cursor.")
    input_extra: Annotated[list[ExtraChunk], Field(max_length=MAX_EXTRA, fail_fast=True)] = Field(
        default_factory=list, description="Text from other files, the newest last."
    )

    def to_request(self, settings: Settings, model: ModelInfo) -> CompletionRequest:
        """The same, in no dialect's words."""
        return CompletionRequest(
            prefix=self.input_prefix + self.prompt,
            suffix=self.input_suffix,
            infill=True,
            extra=tuple(ExtraText(chunk.text, chunk.filename) for chunk in self.input_extra),
            shape=self.shape or "auto",
            on_incomplete=self.on_incomplete or "drop",
            **self.generation(settings, model),
        )


@dataclass(frozen=True, slots=True)
class LlamaCppAnswer:
    """The answer to one `/infill` or `/completion` body, which may have made several requests."""

    body: GenerationFields
    requests: Sequence[CompletionRequest]
    model: ModelInfo

    def delta(self, chunk: CompletionChunk) -> bytes:
        return b'data: {"index":%d,"content":%s,"tokens":%s,"stop":false%s}\n\n' % (
            chunk.index,
            encode_json(chunk.text),
            encode_json(self._ids(chunk.token_ids)),
            self._probabilities_of(chunk),
        )

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        end = self._end(completed)
        end |= {"content": chunk.text, "tokens": self._ids(chunk.token_ids)}
        if self.body.n_probs:
            end["completion_probabilities"] = _probabilities(chunk.scores)
        return event(end)

    def end(self, candidates: list[Completed]) -> bytes:
        return b""

    def whole(self, candidates: list[Completed]) -> object:
        answers = [self._whole_one(one) for one in candidates]
        # Also where only one is left of several.
        return answers if sum(request.n for request in self.requests) > 1 else answers[0]

    def _whole_one(self, completed: Completed) -> dict[str, object]:
        answer = self._end(completed)
        if self.body.n_probs:
            answer["completion_probabilities"] = _probabilities(completed.scores)
        if not self.body.response_fields:
            return answer
        picked = _pick(answer, self.body.response_fields)
        return picked | {"suture": answer["suture"]}

    def _probabilities_of(self, chunk: CompletionChunk) -> bytes:
        if not self.body.n_probs:
            return b""
        return b',"completion_probabilities":' + encode_json(_probabilities(chunk.scores))

    def _ids(self, token_ids: tuple[int, ...] | list[int]) -> list[int]:
        return list(token_ids) if self.body.wants_token_ids else []

    def _end(self, completed: Completed) -> dict[str, object]:
        result, text = completed.result, completed.text
        ids = completed.token_ids if self.body.wants_token_ids else None
        prompt, timings = result.prompt, result.timings
        return {
            "index": completed.index,
            "content": text,
            "tokens": ids or [],
            "id_slot": self.body.id_slot,
            "stop": True,
            "model": self.model.name,
            "tokens_predicted": result.completion_tokens,
            "tokens_evaluated": prompt.tokens,
            "tokens_cached": prompt.tokens + result.completion_tokens,
            "generation_settings": self._settings(result),
            "has_new_line": "\n" in text,
            "truncated": prompt.truncated,
            "stop_type": _STOP_TYPES.get(result.finish, "limit"),
            "stopping_word": result.stop_match or "",
            "timings": {
                "cache_n": prompt.reused,
                **_timings("prompt", prompt.evaluated, timings.prompt_ms),
                **_timings("predicted", result.completion_tokens, timings.predicted_ms),
            },
            "suture": suture_object(result, text, ids),
        }

    def _settings(self, result: CompletionResult) -> dict[str, object]:
        # All but the texts is the same in all of them.
        request = self.requests[0]
        return sampling_settings(request.sampling) | {
            # llama.vscode shows how full it is.
            "n_ctx": self.model.n_ctx,
            "n_predict": request.max_tokens,
            "seed": -1 if result.seed is None else result.seed,
            "n_probs": self.body.n_probs,
            "stop": list(request.stop),
            "ignore_eos": request.ignore_eos,
            "grammar": request.grammar or "",
            "stream": self.body.stream,
        }


def sampling_settings(sampling: SamplingParams) -> dict[str, object]:
    """The samplers' part of `generation_settings`."""
    settings = asdict(sampling)
    del settings["logit_bias"], settings["seed"]
    return settings


def _probabilities(scores: Sequence[ScoredToken]) -> list[dict[str, object]]:
    return [
        _probability(score) | {"top_logprobs": [_probability(one) for one in score.top]}
        for score in scores
    ]


def _probability(token: ScoredToken | Alternative) -> dict[str, object]:
    """As llama-server has it: of half a character the text has nothing, and `bytes` all."""
    return {
        "id": token.token_id,
        "token": token.piece.decode("utf-8", "ignore"),
        "bytes": list(token.piece),
        "logprob": finite(token.logprob),
    }


def _limit(ms: float) -> int | None:
    return math.ceil(ms) if ms > 0 else None


def _timings(what: str, n: int, ms: float) -> dict[str, float]:
    return {
        f"{what}_n": n,
        f"{what}_ms": ms,
        f"{what}_per_token_ms": ms / n if n else 0.0,
        f"{what}_per_second": 1000 * n / ms if ms else 0.0,
    }


def _pick(answer: dict[str, object], paths: list[str]) -> dict[str, object]:
    """The fields at `paths` such as `timings/prompt_n`, each under its whole path."""
    picked: dict[str, object] = {}
    for path in paths:
        value: object = answer
        for key in path.split("/"):
            if not isinstance(value, dict) or key not in value:
                break
            value = value[key]
        else:
            picked[path] = value
    return picked


class LlamaCppDialect:
    """Bodies, answers and errors as llama-server writes them."""

    operation = Operation(
        "llama.cpp",
        "The text at a cursor",
        (InfillBody,),
        LlamaCppAnswered,
        streamed=LlamaCppStreamed,
        statuses=(500, 501, 502, 503),
        example={
            "input_prefix": "def area(width, height):\n    return width * ",
            "input_suffix": "\n\n\nprint(area(2, 3))\n",
            "temperature": 0,
            "n_predict": 16,
        },
    )
    error_shape = LlamaCppError

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        infill = validate(InfillBody, body)
        request = infill.to_request(settings, model)
        answer = LlamaCppAnswer(infill, [request], model)
        return Asked(request, answer, infill.stream, infill.wants_token_ids)

    def error_body(self, status: int, message: str, field: str | None) -> dict[str, object]:
        kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else None)
        error = {"code": status, "message": message, "type": kind or "invalid_request_error"}
        return {"error": error}


MODEL_QUERY = Parameter(
    "model", "A served model's name; any other shows the default one.", {"type": "string"}
)


class Health:
    """`GET /health`: 503 until the first model is loaded, as llama-server has it, or on a stall."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._stall_s = settings.stall_s

    @described(
        Operation(
            "llama.cpp", "Whether requests are served", answer=LlamaCppHealth, statuses=(503,)
        )
    )
    async def get(self, request: Request) -> Response:
        if error := why_unready(self._pool, self._stall_s):
            return error_response(LlamaCppDialect(), error)
        return Response(encode_json({"status": "ok"}), media_type="application/json")


class Slots:
    """`GET /slots`: what runs, in llama-server's words, without the texts.

    They are those of the `model` in the query. With `fail_on_no_slot` it is 503 where every slot
    is busy.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @described(
        Operation(
            "llama.cpp",
            "What runs in each slot",
            answer=list[LlamaCppSlot],
            statuses=(503,),
            queries=(
                MODEL_QUERY,
                Parameter("fail_on_no_slot", "503 where no slot is free.", {"type": "string"}),
            ),
        )
    )
    async def get(self, request: Request) -> Response:
        model = model_asked_for(self._pool, request.query_params)
        slots = model.slots()
        if request.query_params.get("fail_on_no_slot") and None not in slots:
            return error_response(LlamaCppDialect(), Unavailable("no slot available"))
        n_ctx = model.info.n_ctx
        shown = [_shown(i, slot, n_ctx) for i, slot in enumerate(slots)]
        return Response(encode_json(shown), media_type="application/json")


def _shown(slot_id: int, slot: Slot | None, n_ctx: int) -> dict[str, object]:
    # All slots share one context. Drafts come from the text at hand: no model speculates.
    place: dict[str, object] = {"id": slot_id, "n_ctx": n_ctx, "speculative": False}
    if slot is None:
        return place | {"is_processing": False}
    sampling = asdict(slot.sampling)
    # Breakers are text of the request.
    del sampling["logit_bias"], sampling["dry_sequence_breakers"]
    seed = -1 if slot.sampling.seed is None else slot.sampling.seed
    n_left = slot.max_tokens - slot.n_generated
    return place | {
        "is_processing": True,
        "id_task": slot.number,
        "n_prompt_tokens": slot.n_prompt_tokens,
        "params": {
            "n_predict": slot.max_tokens,
            **sampling,
            "seed": seed,
            "ignore_eos": slot.ignore_eos,
        },
        "next_token": [
            {"has_next_token": n_left > 0, "n_remain": n_left, "n_decoded": slot.n_generated}
        ],
    }
