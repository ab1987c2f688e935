"""Any server with the OpenAI API's `/v1/completions`: text in, text out.

Nothing can be forced, and token ids are not told. The prompt's end is cleaned instead
(`healing.hygiene`), and control tokens stand in the prompt by their text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suture.healing import Vocabulary
from suture.server.engine.remote.affinity import routing_headers
from suture.server.engine.remote.drawing import biases_of, check_asked, check_biases, drawing
from suture.server.engine.remote.events import event_of, objects, openai_usage, text_in
from suture.server.engine.remote.protocol import (
    Affinity,
    Asked,
    BackendKind,
    Heard,
    Json,
    Level,
    Reader,
)
from suture.server.engine.remote.shown_prompt import shown_prompt
from suture.server.request import CompletionRequest

MAX_BIASES = 300
_MAX_STOPS = 4
ABLE = frozenset({"top_p", "presence_penalty", "frequency_penalty", "logit_bias"})
_FINISHES: Mapping[object, Any] = {"length": "length", "content_filter": "abort"}


class OpenAI:
    """A server of which no more is known than its API."""

    kind: BackendKind = "openai"
    path = "/v1/completions"
    tells_ids = False
    best_level: Level = "hygiene"

    def check(self, request: CompletionRequest) -> None:
        check_asked(request, ABLE, "a server of the OpenAI API")
        check_biases(request, MAX_BIASES, "a server of the OpenAI API")

    def level(self, asked: Asked) -> Level:
        return "hygiene" if asked.pending and asked.level == "hygiene" else "none"

    def body(self, asked: Asked, model: str, vocabulary: Vocabulary) -> Json:
        return {
            "model": model,
            "prompt": shown_prompt(asked.prompt_ids, vocabulary),
            **common_fields(asked, vocabulary),
        }

    def headers(self, affinity: Affinity) -> Mapping[str, str]:
        return routing_headers(affinity.key)

    def reader(self, vocabulary: Vocabulary) -> Reader:
        return _heard


def common_fields(asked: Asked, vocabulary: Vocabulary) -> Json:
    """What completions and chats are asked for alike."""
    drawn = drawing(asked.sampling)
    fields: Json = {
        "max_tokens": max(asked.max_tokens, 1),
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": drawn.temperature,
        "top_p": drawn.top_p,
    }
    if drawn.presence_penalty:
        fields["presence_penalty"] = drawn.presence_penalty
    if drawn.frequency_penalty:
        fields["frequency_penalty"] = drawn.frequency_penalty
    if asked.sampling.seed is not None:
        fields["seed"] = asked.sampling.seed % 2**63
    if biases := biases_of(asked.sampling):
        fields["logit_bias"] = biases
    # Its own ends a server knows; a sentinel may be none of them, and then shows as text.
    if ends := sorted(vocabulary.text_of(i) for i in asked.end_ids & vocabulary.control_ids):
        fields["stop"] = ends[:_MAX_STOPS]
    return fields


def finish_of(choice: Mapping[str, Any]) -> Any:
    """Why a choice has ended; None while it goes on."""
    finish = choice.get("finish_reason")
    return None if finish is None else _FINISHES.get(finish, "stop")


def _heard(event: object) -> Heard | None:
    chunk = event_of(event)
    usage = openai_usage(chunk)
    choices = objects(chunk.get("choices"))
    if not choices:
        return None if usage is None else Heard(usage=usage)
    return Heard(text=text_in(choices[0], "text"), finish=finish_of(choices[0]), usage=usage)
