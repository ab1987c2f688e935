"""How completions are asked for and answered in the dialects that servers share.

A dialect turns an `Ask` into a path and a body, and the JSON of an answer, or of one event of a
stream, into a `Part`. Greedy unless the ask says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A completion to ask for; `suffix` None is text that goes on left to right.

    `more` are fields of the dialect that is spoken, beside the others.
    """

    prefix: str
    suffix: str | None = None
    max_tokens: int = 16
    stop: tuple[str, ...] = ()
    stream: bool = False
    endless: bool = False
    more: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """An answer, or one event of a stream: None is what it does not say.

    `finish` is `length` or `stop`. `n_evaluated` are tokens of the prompt that were not cached.
    """

    text: str
    finish: str | None = None
    n_prompt: int | None = None
    n_evaluated: int | None = None
    n_generated: int | None = None


class Dialect(Protocol):
    """One family of routes. `hole` is the path that fills in."""

    name: str
    hole: str

    def request(self, ask: Ask, model: str) -> tuple[str, Json]:
        """The path and the body."""
        ...

    def part(self, payload: Json) -> Part: ...


class LlamaCpp:
    """llama-server's `/infill` and `/completion`."""

    name = "llama.cpp"
    hole = "/infill"

    def request(self, ask: Ask, model: str) -> tuple[str, Json]:
        body: Json = {"n_predict": ask.max_tokens, "temperature": 0, "cache_prompt": True}
        body |= {"stop": list(ask.stop), "stream": ask.stream, "ignore_eos": ask.endless}
        if ask.suffix is None:
            return "/completion", body | {"prompt": ask.prefix} | dict(ask.more)
        texts = {"input_prefix": ask.prefix, "input_suffix": ask.suffix}
        return "/infill", body | texts | dict(ask.more)

    def part(self, payload: Json) -> Part:
        if not payload["stop"]:
            return Part(payload["content"])
        finish = "length" if payload["stop_type"] == "limit" else "stop"
        return Part(
            payload["content"],
            finish,
            payload.get("tokens_evaluated"),
            payload.get("timings", {}).get("prompt_n"),
            payload.get("tokens_predicted"),
        )


class OpenAI:
    """OpenAI's `/v1/completions`, with `suffix`."""

    name = "openai"
    hole = "/v1/completions"

    def request(self, ask: Ask, model: str) -> tuple[str, Json]:
        body: Json = {"model": model, "prompt": ask.prefix, "max_tokens": ask.max_tokens}
        body |= {"temperature": 0, "stream": ask.stream}
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.suffix is not None:
            body["suffix"] = ask.suffix
        if ask.stream:
            body["stream_options"] = {"include_usage": True}
        return self.hole, body | dict(ask.more)

    def part(self, payload: Json) -> Part:
        usage = payload.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        n_prompt = usage.get("prompt_tokens")
        n_evaluated = None if cached is None or n_prompt is None else n_prompt - cached
        counts = (n_prompt, n_evaluated, usage.get("completion_tokens"))
        if not payload["choices"]:
            return Part("", None, *counts)
        [choice] = payload["choices"]
        finish = choice.get("finish_reason")
        return Part(self._text(choice), finish and _finish(finish), *counts)

    def _text(self, choice: Json) -> str:
        return str(choice["text"])


class DeepSeek(OpenAI):
    """The same at `/beta/completions`."""

    name = "deepseek"
    hole = "/beta/completions"


class Mistral(OpenAI):
    """Mistral's `/v1/fim/completions`: OpenAI's bodies, answers in the shape of a chat."""

    name = "mistral"
    hole = "/v1/fim/completions"

    def request(self, ask: Ask, model: str) -> tuple[str, Json]:
        path, body = super().request(ask, model)
        body.pop("stream_options", None)
        return path, body

    def _text(self, choice: Json) -> str:
        said = choice.get("message") or choice.get("delta") or {}
        return said.get("content") or ""


class Ollama:
    """Ollama's `/api/generate`; what goes on left to right is asked for `raw`."""

    name = "ollama"
    hole = "/api/generate"

    def request(self, ask: Ask, model: str) -> tuple[str, Json]:
        options = {"temperature": 0, "num_predict": ask.max_tokens, "stop": list(ask.stop)}
        body: Json = {"model": model, "prompt": ask.prefix, "options": options}
        kind: Json = {"raw": True} if ask.suffix is None else {"suffix": ask.suffix}
        return self.hole, body | kind | {"stream": ask.stream} | dict(ask.more)

    def part(self, payload: Json) -> Part:
        if not payload["done"]:
            return Part(payload["response"])
        n_prompt, n_generated = payload.get("prompt_eval_count"), payload.get("eval_count")
        finish = _finish(payload.get("done_reason", "stop"))
        return Part(payload["response"], finish, n_prompt, None, n_generated)


def _finish(said: str) -> str:
    return "length" if said == "length" else "stop"


# In the order in which they are tried: those first that tell most of what they did.
DIALECTS: tuple[Dialect, ...] = (LlamaCpp(), OpenAI(), Ollama(), Mistral(), DeepSeek())
