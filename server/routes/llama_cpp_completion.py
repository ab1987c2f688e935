"""llama.cpp's dialect: `POST /completion`, which is `/completions` too: text goes on as it is.

`prompt` is text, or token ids and texts in a row, of which the text is taken: it is tokenized
anew and begins with what every prompt of the model begins with, as llama-server does with text.
All else is as in `/infill`. Text that looks like a control token is text.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from suture.server.errors import InvalidRequest, Loading
from suture.server.request import CompletionRequest
from suture.server.routes.body import validate
from suture.server.routes.completer import ModelInfo
from suture.server.routes.delivery import Asked
from suture.server.routes.fields import no_lone_surrogates
from suture.server.routes.llama_cpp import GenerationFields, LlamaCppAnswer, LlamaCppDialect
from suture.server.settings import Settings
from suture.server.token_texts import NoText

MAX_PARTS = 2**18

_KINDS = "must be text, or an array of token ids and texts"


def _prompt(value: Any) -> list[int | str]:
    """One prompt in any of the forms that llama-server has for it."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list | dict):
        value = value[0]
    if isinstance(value, dict):
        if value.get("multimodal_data"):
            raise ValueError("with multimodal_data is not supported")
        value = value.get("prompt_string")
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(_KINDS)
    return _parts(value)


def _parts(values: list[Any]) -> list[int | str]:
    if not 0 < len(values) <= MAX_PARTS:
        raise ValueError(f"must have 1 to {MAX_PARTS} items, not {len(values)}")
    kinds = {type(item) for item in values}
    if kinds & {list, dict} or (kinds == {str} and len(values) > 1):
        raise ValueError("with several prompts is not supported yet")
    if not kinds <= {int, str}:
        raise ValueError(_KINDS)
    return [no_lone_surrogates(item) if isinstance(item, str) else item for item in values]


class CompletionBody(GenerationFields):
    """The body of `POST /completion`."""

    NOT_NULL: ClassVar[frozenset[str]] = frozenset({"prompt"})

    prompt: Annotated[list[Any], BeforeValidator(_prompt)]

    def to_request(self, settings: Settings, model: ModelInfo) -> CompletionRequest:
        """The same, in no dialect's words. Raises `Loading` for ids before the model is there."""
        return CompletionRequest(
            prefix=self._text(model),
            shape=self.shape or "raw",
            on_incomplete=self.on_incomplete or "replace",
            **self.generation(settings, model),
        )

    def _text(self, model: ModelInfo) -> str:
        if [*map(type, self.prompt)] == [str]:
            return str(self.prompt[0])
        if model.tokens is None:
            raise Loading("Loading model", retry_after=2)
        try:
            return model.tokens.prompt_text(self.prompt)
        except NoText as error:
            raise InvalidRequest(f'"prompt" {error}', "prompt") from None


class LlamaCppCompletionDialect(LlamaCppDialect):
    """Bodies of `/completion`; answers and errors as everywhere in llama-server."""

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        completion = validate(CompletionBody, body)
        request = completion.to_request(settings, model)
        answer = LlamaCppAnswer(completion, request, model.name)
        return Asked(request, answer, completion.stream, completion.wants_token_ids)
