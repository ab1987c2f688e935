"""Refact's dialect: `POST /v1/code-completion`, with a whole file and a place in it.

Lines count from 0 and end as editors' do (LF, CR LF, CR); `character` counts code points from 0.
Refact's clients put the text in the place of the rest of the cursor's line, which is brackets,
quotes and blanks then: so the model is not shown that rest, and writes it itself.

`no_cache`, `use_ast`, `use_vecdb`, `rag_tokens_n` and `client` are ignored, as where Refact has no
index. Errors have Refact's shape, `{"detail": …}`.
"""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from suture.server.errors import InvalidRequest
from suture.server.openapi.operation import Operation
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    Edit,
    ExtraText,
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
    Candidates,
    Count,
    Share,
    StopStrings,
    Text,
    no_lone_surrogates,
)
from suture.server.routes.shapes.refact import RefactCompletion, RefactError, RefactEvent
from suture.server.settings import Settings
from suture.server.sse import DONE, event

MAX_SOURCES = 1024

DEFAULTS = SamplingParams(temperature=0.2)
DEFAULT_MAX_TOKENS = 50

_FINISH_REASONS: dict[FinishReason, str] = {"stop": "stop", "eos": "stop", "suffix": "stop"}
_LINE_END = re.compile(r"\r\n|\n|\r")
# The rest of a line that Refact's clients replace: with any other they do not ask.
_REPLACED = re.compile(r"""[:\s(){},."'\];]*""")


def _sources(value: Any) -> Any:
    # Here, as an error of a field's own would name it by the path of a file.
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("must be an object of paths and texts")
    if len(value) > MAX_SOURCES:
        raise ValueError(f"must have at most {MAX_SOURCES} files")
    for path, text in value.items():
        no_lone_surrogates(path)
        no_lone_surrogates(text)
    return value


class _Part(BaseModel):
    """An object inside the body."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Cursor(_Part):
    """A place in one of the sources."""

    file: Text = Field(description="One of the sources.")
    line: Count = Field(description="From 0.")
    character: Count = Field(description="In code points from the start of the line.")


class Inputs(_Part):
    """Whole files, and the place to complete at; `multiline` false: the rest of its line alone."""

    sources: Annotated[
        dict[str, str],
        BeforeValidator(_sources),
        WithJsonSchema(
            {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "maxProperties": MAX_SOURCES,
            }
        ),
    ] = Field(description="Whole files by their paths; the last one is the newest.")
    cursor: Cursor
    multiline: bool = Field(description="false: the rest of the cursor's line alone.")


class Parameters(_Part):
    """How much is drawn, and how; 0 tokens are the default, as Refact has it."""

    max_new_tokens: Count | None = Field(
        default=None, description=f"Absent, and for 0, {DEFAULT_MAX_TOKENS}."
    )
    temperature: Annotated[float, Field(ge=0, le=1e6)] | None = None
    top_p: Share | None = None
    stop: StopStrings | None = None
    n: Candidates | None = None


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """A text cut at the cursor: `replaced` code points of what stood between are the client's."""

    prefix: str
    suffix: str
    replaced: int


def place_of(cursor: Cursor, text: str) -> CursorPlace:
    """Where `cursor` is in the text of its file; raises `InvalidRequest` if it is in no line."""
    start = 0
    for n_lines in range(cursor.line):
        end = _LINE_END.search(text, start)
        if end is None:
            message = f'"inputs.cursor.line" must be at most {n_lines}, the last line of the file'
            raise InvalidRequest(message, "inputs.cursor.line")
        start = end.end()
    line_end = _LINE_END.search(text, start)
    stop = len(text) if line_end is None else line_end.start()
    if cursor.character > stop - start:
        message = f'"inputs.cursor.character" must be at most {stop - start}, the end of the line'
        raise InvalidRequest(message, "inputs.cursor.character")
    at = start + cursor.character
    behind = stop if _REPLACED.fullmatch(text, at, stop) else at
    return CursorPlace(text[:at], text[behind:], behind - at)


class CodeCompletionBody(ExtensionFields):
    """The body of `POST /v1/code-completion`."""

    NOT_NULL: ClassVar[frozenset[str]] = frozenset({"inputs"})

    inputs: Inputs
    parameters: Parameters = Field(default_factory=Parameters)
    stream: bool = False

    @property
    def place(self) -> CursorPlace:
        """Where the cursor is; raises `InvalidRequest` where it is nowhere."""
        cursor, sources = self.inputs.cursor, self.inputs.sources
        if cursor.file not in sources:
            message = '"inputs.cursor.file" must be one of "inputs.sources"'
            raise InvalidRequest(message, "inputs.cursor.file")
        return place_of(cursor, sources[cursor.file])

    def to_request(
        self, place: CursorPlace, settings: Settings, model: ModelInfo
    ) -> CompletionRequest:
        """The same, in no dialect's words."""
        parameters, file = self.parameters, self.inputs.cursor.file
        max_tokens = min(parameters.max_new_tokens or DEFAULT_MAX_TOKENS, model.n_ctx or MAX_INT)
        extension = self.extension(settings, model, max_tokens)
        extension["path"] = self.path or file
        others = ((path, text) for path, text in self.inputs.sources.items() if path != file)
        return CompletionRequest(
            prefix=place.prefix,
            suffix=place.suffix,
            infill=True,
            extra=tuple(ExtraText(text, path) for path, text in others),
            shape=self.shape or ("auto" if self.inputs.multiline else "line"),
            on_incomplete=self.on_incomplete or "drop",
            sampling=self._sampling(),
            max_tokens=max_tokens,
            stop=tuple(stop for stop in parameters.stop or () if stop),
            n=parameters.n or 1,
            **extension,
        )

    def _sampling(self) -> SamplingParams:
        temperature, top_p = self.parameters.temperature, self.parameters.top_p
        return replace(
            DEFAULTS,
            temperature=DEFAULTS.temperature if temperature is None else temperature,
            top_p=DEFAULTS.top_p if top_p is None else top_p,
        )


class CodeCompletionAnswer:
    """The answer to one `/v1/code-completion` body."""

    def __init__(self, body: CodeCompletionBody, n_replaced: int, number: int, model: str) -> None:
        self._body = body
        self._n_replaced = n_replaced
        self._has_many = (body.parameters.n or 1) > 1
        self._head: dict[str, object] = {
            "snippet_telemetry_id": number,
            "model": model,
            "created": time.time(),
        }

    def delta(self, chunk: CompletionChunk) -> bytes:
        choice = {"index": chunk.index, "code_completion": chunk.text, "finish_reason": None}
        return event({"choices": [choice]} | self._head)

    def last(self, chunk: CompletionChunk, completed: Completed) -> bytes:
        end = {"choices": [self._choice(chunk.text, completed)]} | self._head
        return event(end | self._suture_of_one(completed))

    def end(self, candidates: list[Completed]) -> bytes:
        return DONE

    def whole(self, candidates: list[Completed]) -> object:
        return {
            "choices": [self._choice(one.text, one) for one in candidates],
            **self._head,
            "context": {},
            "cached": False,
            **self._suture_of_one(candidates[0]),
        }

    def _choice(self, text: str, completed: Completed) -> dict[str, object]:
        return {
            "index": completed.index,
            "code_completion": text,
            "finish_reason": _FINISH_REASONS.get(completed.result.finish, "length"),
        } | (self._suture(completed) if self._has_many else {})

    def _suture_of_one(self, completed: Completed) -> dict[str, object]:
        """Ours, beside the choices; where there are several, each has its own."""
        return {} if self._has_many else self._suture(completed)

    def _suture(self, completed: Completed) -> dict[str, object]:
        ids = completed.token_ids if self._body.wants_token_ids else None
        # In the document, what the client replaces still stands behind the cursor.
        edit = completed.result.edit or Edit(0, completed.text)
        edit = replace(edit, delete_after=self._n_replaced + edit.delete_after)
        result = replace(completed.result, edit=edit)
        return {"suture": suture_object(result, completed.text, ids)}


class RefactDialect:
    """Bodies, answers and errors as Refact's engine writes them."""

    operation = Operation(
        "Refact",
        "The text at a place in a file",
        (CodeCompletionBody,),
        RefactCompletion,
        streamed=RefactEvent | RefactError,
        statuses=(500, 501, 502, 503),
        example={
            "inputs": {
                "sources": {"area.py": "def area(w, h):\n    return \n"},
                "cursor": {"file": "area.py", "line": 1, "character": 11},
                "multiline": False,
            },
        },
    )
    error_shape = RefactError

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        completion = validate(CodeCompletionBody, body)
        place = completion.place
        request = completion.to_request(place, settings, model)
        number = next(self._numbers)
        answer = CodeCompletionAnswer(completion, place.replaced, number, model.name)
        return Asked(request, answer, completion.stream, sends_ids=False)

    def error_body(self, status: int, message: str, field: str | None) -> dict[str, object]:
        return {"detail": message}
