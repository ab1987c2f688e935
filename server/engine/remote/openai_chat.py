"""Any server with the OpenAI API's `/v1/chat/completions`.

A chat is asked to go on with a text, or for what belongs between two. Nothing can be forced, as
with `openai.py`. Where a server lets the assistant's turn be begun (`Prefill`), a text to be gone
on with stands in it:

  continue   vLLM, SGLang: `continue_final_message`
  prefix     Mistral, DeepSeek: `"prefix": true` in the message
  none       it stands in the user's turn
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from suture.healing import Vocabulary
from suture.server.engine.remote.affinity import routing_headers
from suture.server.engine.remote.drawing import check_asked, check_biases
from suture.server.engine.remote.events import (
    event_of,
    object_in,
    objects,
    openai_usage,
    text_in,
)
from suture.server.engine.remote.openai import ABLE, MAX_BIASES, common_fields, finish_of
from suture.server.engine.remote.protocol import (
    Affinity,
    Asked,
    BackendKind,
    Heard,
    Json,
    Level,
    Reader,
)
from suture.server.engine.remote.shown_prompt import parts_of
from suture.server.prompt.families import detect_family
from suture.server.request import CompletionRequest

Prefill = Literal["continue", "prefix", "none"]

_SERVER = "a chat"
_OPENING = ("pre", "suf", "mid")
_GO_ON = (
    "Go on with the text below, from the character after its last one. Answer with what comes next"
    " and nothing else: no introduction, no explanation, no code fence."
)
_GO_ON_IN_TURN = (
    "Begin a text. Answer with the text and nothing else: no introduction, no explanation, no code"
    " fence."
)
_FILL_IN = (
    "Text is missing between the two texts below. Answer with what belongs there and nothing else:"
    " no introduction, no explanation, no code fence, nothing that stands before or after it."
)


class OpenAIChat:
    """A server of which no more is known than its API; `prefill` is how a turn is begun."""

    kind: BackendKind = "openai-chat"
    path = "/v1/chat/completions"
    tells_ids = False
    best_level: Level = "hygiene"

    def __init__(self, prefill: Prefill = "none") -> None:
        self._prefill = prefill

    def check(self, request: CompletionRequest) -> None:
        check_asked(request, ABLE, _SERVER)
        check_biases(request, MAX_BIASES, _SERVER)

    def level(self, asked: Asked) -> Level:
        return "hygiene" if asked.pending and asked.level == "hygiene" else "none"

    def body(self, asked: Asked, model: str, vocabulary: Vocabulary) -> Json:
        texts = _texts(asked.prompt_ids, model, vocabulary)
        again = asked.pending.decode("utf-8", "replace") if asked.level == "hygiene" else ""
        body: Json = {"model": model, **common_fields(asked, vocabulary)}
        if texts.suffix is None and self._prefill != "none" and texts.prefix:
            turn: Json = {"role": "assistant", "content": texts.prefix}
            user = "\n\n".join(filter(None, (texts.extra, _GO_ON_IN_TURN)))
            body["messages"] = [{"role": "user", "content": user}, turn]
            if self._prefill == "prefix":
                turn["prefix"] = True
            else:
                body |= {"continue_final_message": True, "add_generation_prompt": False}
        else:
            body["messages"] = [{"role": "user", "content": _question(texts, again)}]
        return body

    def headers(self, affinity: Affinity) -> Mapping[str, str]:
        return routing_headers(affinity.key)

    def reader(self, vocabulary: Vocabulary) -> Reader:
        return _heard


@dataclass(frozen=True, slots=True)
class _Texts:
    """The texts of a prompt; `suffix` None where there is no hole."""

    prefix: str
    suffix: str | None
    extra: str


def _texts(prompt_ids: tuple[int, ...], model: str, vocabulary: Vocabulary) -> _Texts:
    """What the prompt shows, by the sentinels that its parts stand behind.

    Behind the middle's the prefix goes on: nothing else stands there.
    """
    roles = _roles(vocabulary, model)
    found = {"pre": "", "suf": "", "mid": "", "extra": ""}
    has_hole = False
    role = "extra" if roles.keys() & set(prompt_ids) else "pre"
    for control, text in parts_of(prompt_ids, vocabulary):
        if control is None:
            found[role] += text
        elif control in roles:
            role = roles[control]
            has_hole = has_hole or role == "suf"
    return _Texts(found["pre"] + found["mid"], found["suf"] if has_hole else None, found["extra"])


@lru_cache(maxsize=4)
def _roles(vocabulary: Vocabulary, model: str) -> Mapping[int, str]:
    """The sentinels at which a prompt's texts begin, by id."""
    family = detect_family(vocabulary, model)
    ids = {} if family is None else family.sentinel_ids
    return {token_id: role for role, token_id in ids.items() if role in _OPENING}


def _question(texts: _Texts, again: str) -> str:
    """The user's turn."""
    begin = f"Begin your answer with {again!r}." if again.strip() else ""
    if texts.suffix is None:
        shown = [("The text", texts.prefix)]
    else:
        shown = [("Before", texts.prefix), ("After", texts.suffix)]
    texts_of = [f"{name}:\n<<<\n{text}\n>>>" for name, text in shown]
    ask = _GO_ON if texts.suffix is None else _FILL_IN
    return "\n\n".join(filter(None, (texts.extra, ask, *texts_of, begin)))


def _heard(event: object) -> Heard | None:
    chunk = event_of(event)
    usage = openai_usage(chunk)
    choices = objects(chunk.get("choices"))
    if not choices:
        return None if usage is None else Heard(usage=usage)
    text = text_in(object_in(choices[0], "delta"), "content")
    finish = finish_of(choices[0])
    return Heard(text=text, finish=finish, usage=usage) if text or finish or usage else None
