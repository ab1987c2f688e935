"""llama.cpp's dialect: `POST /completion`, which is `/completions` too: text goes on as it is.

`prompt` is as in `prompts`: what clients send as a hole in the form of a family is that hole, and
all else is text that goes on. Several prompts have an array of answers. All other fields are those
of `/infill`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from suture.server.openapi.operation import Operation
from suture.server.request import CompletionRequest
from suture.server.routes.body import validate
from suture.server.routes.completer import ModelInfo
from suture.server.routes.delivery import Asked
from suture.server.routes.llama_cpp import GenerationFields, LlamaCppAnswer, LlamaCppDialect
from suture.server.routes.prompts import Prompts, read_prompt
from suture.server.routes.shapes.llama_cpp import LlamaCppAnswered, LlamaCppStreamed
from suture.server.settings import Settings


class CompletionBody(GenerationFields):
    """The body of `POST /completion`."""

    NOT_NULL: ClassVar[frozenset[str]] = frozenset({"prompt"})

    prompt: Prompts = Field(
        description="The text that goes on, or token ids and texts in a row, taken for their text;"
        " or several of these."
    )

    def to_requests(self, settings: Settings, model: ModelInfo) -> list[CompletionRequest]:
        """The same, in no dialect's words. Raises `Loading` for ids before the model is there."""
        self.check_prompts(len(self.prompt))
        fields = self.generation(settings, model)
        prompts = [read_prompt(parts, model) for parts in self.prompt]
        return [
            CompletionRequest(**fields | self.texts(prompt.text, prompt.hole)) for prompt in prompts
        ]


class LlamaCppCompletionDialect(LlamaCppDialect):
    """Bodies of `/completion`; answers and errors as everywhere in llama-server."""

    operation = Operation(
        "llama.cpp",
        "A text that goes on",
        (CompletionBody,),
        LlamaCppAnswered,
        streamed=LlamaCppStreamed,
        statuses=(500, 502, 503),
        example={"prompt": "import os\nimport nump", "temperature": 0, "n_predict": 8},
    )

    def parse(self, body: dict[str, Any], settings: Settings, model: ModelInfo) -> Asked:
        completion = validate(CompletionBody, body)
        requests = completion.to_requests(settings, model)
        first, *others = requests
        answer = LlamaCppAnswer(completion, requests, model)
        return Asked(first, answer, completion.stream, completion.wants_token_ids, others)
