"""Tabby's dialect: a `POST /v1/completions` with `segments`, and what its clients ask beside it.

OpenAI's route has the same path: a body without `segments` is OpenAI's. Errors are OpenAI's in
both, as Tabby's clients look at the status alone. Answers are never streamed. `git_url`,
`clipboard`, scores and, outside its mode, `edit_history` are ignored: Tabby logs them, or has an
index of repositories for them.
"""

from __future__ import annotations

import os
import platform
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from suture.server.counters import ShownCounters
from suture.server.errors import InvalidRequest
from suture.server.openapi.operation import Operation, Parameter, described
from suture.server.request import CompletionChunk, CompletionRequest, ExtraText, SamplingParams
from suture.server.routes.body import read_json, validate
from suture.server.routes.candidates import Completed
from suture.server.routes.completer import ModelInfo, Pool, why_unready
from suture.server.routes.delivery import Asked, error_response
from suture.server.routes.extension import ExtensionFields, suture_object
from suture.server.routes.fields import MAX_INT, Count, RequestBody, SamplingFields, Text
from suture.server.routes.openai import CompletionsBody, OpenAIDialect
from suture.server.routes.shapes.openai import Completion
from suture.server.routes.shapes.tabby import TabbyCompletion, TabbyHealthState, TabbySetting
from suture.server.settings import Settings
from suture.server.sse import encode_json
from suture.server.version import VERSION

MAX_SNIPPETS = 1024

DEFAULTS = SamplingParams(temperature=0.1)
# Tabby's own, which no request changes.
MAX_TOKENS = 64

_CPU_INFO = Path("/proc/cpuinfo")
_NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")


class _Part(BaseModel):
    """An object inside a body."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Snippet(_Part):
    """A declaration or a piece of code in another file."""

    filepath: Text
    body: Text


Snippets = Annotated[list[Snippet], Field(max_length=MAX_SNIPPETS, fail_fast=True)]


class Segments(_Part):
    """The text around the cursor, and what may help; an empty suffix is the end of the file."""

    prefix: Text = Field(description="The text before the cursor.")
    suffix: Text | None = Field(
        default=None, description="The text after it; none is the end of the file."
    )
    filepath: Text | None = Field(default=None, description="Of the file being completed.")
    declarations: Snippets | None = None
    relevant_snippets_from_changed_files: Snippets | None = None
    relevant_snippets_from_recently_opened_files: Snippets | None = None

    @property
    def extra(self) -> tuple[ExtraText, ...]:
        """The snippets, what Tabby would take first last: the last ones stay where room is short.

        That is also the order in which they change from key to key.
        """
        best_first = (
            *(self.declarations or ()),
            *(self.relevant_snippets_from_changed_files or ()),
            *(self.relevant_snippets_from_recently_opened_files or ()),
        )
        return tuple(ExtraText(snippet.body, snippet.filepath) for snippet in best_first[::-1])


_REFUSED = WithJsonSchema({"type": "null", "description": "Refused: see /v1/explain."})
_UNSET = WithJsonSchema({"enum": [False, None], "description": "Refused: see /v1/explain."})


class DebugOptions(_Part):
    """What those who measure Tabby ask for."""

    raw_prompt: Annotated[Text | None, _REFUSED] = None
    return_snippets: Annotated[bool | None, _UNSET] = None
    return_prompt: Annotated[bool | None, _UNSET] = None
    disable_retrieval_augmented_code_completion: bool | None = Field(
        default=None, description="true: without the snippets."
    )


class SegmentsBody(ExtensionFields, SamplingFields):
    """The body of Tabby's `POST /v1/completions`."""

    NOT_NULL: ClassVar[frozenset[str]] = frozenset({"segments"})

    SAMPLING = DEFAULTS

    segments: Segments
    mode: Annotated[
        Text,
        WithJsonSchema({"type": "string", "not": {"const": "next_edit_suggestion"}}),
    ] = Field(default="standard", description="Any but next_edit_suggestion is the standard one.")
    debug_options: DebugOptions | None = None

    def to_request(self, settings: Settings, model: ModelInfo) -> CompletionRequest:
        """The same, in no dialect's words."""
        self._check_supported()
        max_tokens = min(MAX_TOKENS, model.n_ctx or MAX_INT)
        debug = self.debug_options or DebugOptions()
        alone = bool(debug.disable_retrieval_augmented_code_completion)
        extension = self.extension(settings, model, max_tokens)
        extension["path"] = self.path or self.segments.filepath
        return CompletionRequest(
            prefix=self.segments.prefix,
            suffix=self.segments.suffix or "",
            infill=True,
            extra=() if alone else self.segments.extra,
            shape=self.shape or "auto",
            on_incomplete=self.on_incomplete or "drop",
            sampling=self.sampling(model.n_ctx),
            max_tokens=max_tokens,
            **extension,
        )

    def _check_supported(self) -> None:
        if self.mode == "next_edit_suggestion":  # any other one is the standard one in Tabby, too
            raise InvalidRequest('"mode" next_edit_suggestion is not supported', "mode")
        debug = self.debug_options or DebugOptions()
        for name in ("raw_prompt", "return_snippets", "return_prompt"):
            if getattr(debug, name) not in (None, False):
                field = f"debug_options.{name}"
                raise InvalidRequest(f'"{field}" is not supported: see /v1/explain', field)


class SegmentsAnswer:
    """The answer to one body with `segments`: its text is to be inserted at the cursor."""

    def __init__(self, body: SegmentsBody) -> None:
        self._body = body

    def whole(self, candidates: list[Completed]) -> object:
        [completed] = candidates
        ids = completed.token_ids if self._body.wants_token_ids else None
        answer: dict[str, object] = {
            "id": f"cmpl-{uuid.uuid4()}",
            "choices": [{"index": 0, "text": completed.text}],
            "mode": "standard",
            "suture": suture_object(completed.result, completed.text, ids),
        }
        # Tabby has it wherever there are options, with nothing in it where nothing was asked for.
        return answer if self._body.debug_options is None else answer | {"debug_data": {}}

    def delta(self, chunk: CompletionChunk) -> bytes:
        raise AssertionError("Tabby has no streams")

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        raise AssertionError("Tabby has no streams")

    def end(self, candidates: list[Completed]) -> bytes:
        raise AssertionError("Tabby has no streams")


class TabbyDialect(OpenAIDialect):
    """Bodies and answers of Tabby where there are `segments`, and OpenAI's elsewhere."""

    operation = replace(
        OpenAIDialect.operation,
        summary="A text that goes on, or the text at a cursor; with segments, Tabby's",
        bodies=(CompletionsBody, SegmentsBody),
        answer=Completion | TabbyCompletion,
    )

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        if body.get("segments") is None:
            return super().parse(body, settings, model)
        segments = validate(SegmentsBody, body)
        request = segments.to_request(settings, model)
        return Asked(request, SegmentsAnswer(segments), streamed=False, sends_ids=False)


class Event(RequestBody):
    """What a user did with a text."""

    type: Literal["view", "select", "dismiss"]
    completion_id: Text
    choice_index: Count
    view_id: Text | None = None
    elapsed: Count | None = None


class Events:
    """`POST /v1/events`: counted, and nothing of it kept or sent on."""

    def __init__(self, counters: ShownCounters) -> None:
        self._counters = counters

    @described(
        Operation(
            "Tabby",
            "Counts what a user did with a text",
            (Event,),
            queries=(Parameter("select_kind", '"line": only its first line.', {"type": "string"}),),
            example={"type": "view", "completion_id": "cmpl-1", "choice_index": 0},
        )
    )
    async def post(self, request: Request) -> Response:
        try:
            event = validate(Event, await read_json(request))
        except ClientDisconnect:
            return Response(status_code=400)  # to nobody
        is_line = event.type == "select" and request.query_params.get("select_kind") == "line"
        self._counters.events[event.type, "line" if is_line else "all"] += 1
        return Response()


class TabbyHealth:
    """`GET /v1/health`: what answers here, 503 while it cannot; older clients ask with POST."""

    def __init__(self, pool: Pool, settings: Settings) -> None:
        self._pool = pool
        self._stall_s = settings.stall_s
        self._machine: dict[str, object] = {
            "arch": platform.machine(),
            "cpu_info": cpu_name(),
            "cpu_count": os.cpu_count() or 1,
            "cuda_devices": nvidia_gpus(),
        }

    @described(Operation("Tabby", "What answers here", answer=TabbyHealthState, statuses=(503,)))
    async def get(self, request: Request) -> Response:
        if error := why_unready(self._pool, self._stall_s):
            return error_response(OpenAIDialect(), error)
        model = self._pool.models[0].info
        health = {
            # llama-server's clients ask for this path too, and read no more than this.
            "status": "ok",
            "model": model.name,
            "device": model.device,
            **self._machine,
            "version": {
                # No number: clients would take it for one of Tabby's, and us for a very old one.
                "git_describe": "suture",
                "git_sha": "",
                "build_date": "",
                "build_timestamp": "",
            },
            "webserver": False,
            "suture": VERSION,
        }
        return Response(encode_json(health), media_type="application/json")


def cpu_name(cpu_info: Path = _CPU_INFO) -> str:
    """What the CPU calls itself, or "unknown"."""
    try:
        lines = cpu_info.read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def nvidia_gpus(folder: Path = _NVIDIA_GPUS) -> list[str]:
    """The names of NVIDIA's GPUs that the kernel knows."""
    texts: list[str] = []
    try:
        for gpu in sorted(folder.iterdir()):
            texts.append((gpu / "information").read_text("utf-8", "replace"))
    except OSError:
        return []
    lines = [line for text in texts for line in text.splitlines() if line.startswith("Model:")]
    return [line.removeprefix("Model:").strip() for line in lines]


class ServerSetting:
    """`GET /v1beta/server_setting`: asks clients not to report their use to Tabby's makers."""

    @described(Operation("Tabby", "What clients are asked to do", answer=TabbySetting))
    async def get(self, request: Request) -> Response:
        setting = {"disable_client_side_telemetry": True}
        return Response(encode_json(setting), media_type="application/json")
