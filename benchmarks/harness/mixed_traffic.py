"""Requests of every dialect as random numbers make them, and what a whole answer to each is.

Texts are cut out of files at hand. Some requests are ones that a server must refuse.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Judge = Callable[[int, str], bool]

# How much of a text file an editor would send at most, and how often one does.
HUGE, HOW_OFTEN_HUGE = 300_000, 0.003
# An error within a stream, or in place of an answer: the word alone may be a token's name.
ERROR = re.compile(r'\{"error":|"object":"error"')
N_TOKENS = (0, 1, 4, 16, 40)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request; `is_whole` says of status and text whether they are all of a good answer."""

    kind: str
    path: str
    content: bytes
    is_whole: Judge


class Traffic:
    """Requests to a server that `fills` holes or not, out of the lines of some text."""

    def __init__(self, lines: Sequence[str], rng: random.Random, fills: bool) -> None:
        self._lines = lines
        self._rng = rng
        self._fills = fills
        self._session = f"client {rng.random()}"
        self._seq = 0
        # By how much of all editors each dialect is spoken.
        self._kinds: tuple[tuple[Callable[[], Sent], int], ...] = (
            (self._infill, 8),
            (self._completion, 3),
            (self._openai, 6),
            (self._deepseek, 2),
            (self._mistral, 3),
            (self._ollama, 5),
            (self._tabby, 3),
            (self._refact, 2),
            (self._tokenize, 1),
            (self._explain, 1),
            (self._odd, 3),
        )

    def next(self) -> Sent:
        makers = [make for make, _ in self._kinds]
        [make] = self._rng.choices(makers, [weight for _, weight in self._kinds])
        return make()

    def _texts(self) -> tuple[str, str]:
        """What stands before and behind some cursor; nothing behind where holes are not filled."""
        rng, lines = self._rng, self._lines
        at = rng.randrange(len(lines))
        before = "".join(lines[max(at - rng.choice((3, 10, 30)), 0) : at]) + lines[at][: at % 40]
        if rng.random() < HOW_OFTEN_HUGE:
            before = ("".join(lines) * (HUGE // 1000))[:HUGE] + before
        after = "".join(lines[at + 1 : at + 1 + rng.choice((0, 5, 15))]) if self._fills else ""
        if rng.random() < 0.1:
            before, after = before.replace("\n", "\r\n"), after.replace("\n", "\r\n")
        return before, after

    def _extension(self) -> Json:
        """Fields that all dialects take beside their own."""
        rng = self._rng
        fields: Json = {}
        if rng.random() < 0.4:
            self._seq += 1
            fields |= {"session": self._session, "seq": self._seq}
        if rng.random() < 0.3:
            fields |= {"healing": rng.choice(("off", "recursive", "exact"))}
        if rng.random() < 0.3:
            fields |= {"ignore_eos": True}
        return fields

    def _streamed(self) -> bool:
        return self._rng.random() < 0.5

    def _infill(self) -> Sent:
        before, after = self._texts()
        rng, line = self._rng, before.rfind("\n") + 1
        body: Json = {"input_prefix": before[:line], "prompt": before[line:]}
        body |= {"input_suffix": after, "n_predict": rng.choice(N_TOKENS)}
        body |= {"stream": self._streamed(), **self._extension()}
        if rng.random() < 0.2:
            body |= {"t_max_predict_ms": rng.randint(1, 50), "t_max_prompt_ms": rng.randint(1, 200)}
        if rng.random() < 0.1:
            body |= {"n_probs": 3}
        if rng.random() < 0.1:
            body |= {"input_extra": [{"filename": "other.py", "text": before[-2000:]}]}
        return sent("llama.cpp /infill", "/infill", body, ends_with_stop)

    def _completion(self) -> Sent:
        body: Json = {"prompt": self._texts()[0], "n_predict": self._rng.choice(N_TOKENS)}
        body |= {"stream": self._streamed(), **self._extension()}
        return sent("llama.cpp /completion", "/completion", body, ends_with_stop)

    def _openai(self) -> Sent:
        return self._of_openai("OpenAI", "/v1/completions", n=self._rng.choice((1, 1, 1, 1, 3)))

    def _deepseek(self) -> Sent:
        return self._of_openai("DeepSeek", "/beta/completions")

    def _mistral(self) -> Sent:
        return self._of_openai("Mistral", "/v1/fim/completions")

    def _of_openai(self, kind: str, path: str, **more: object) -> Sent:
        before, after = self._texts()
        body: Json = {"prompt": before, "max_tokens": max(self._rng.choice(N_TOKENS), 1), **more}
        body |= {"stream": self._streamed(), **self._extension()}
        if after:
            body |= {"suffix": after}
        return sent(kind, path, body, ends_with_done if body["stream"] else has('"finish_reason"'))

    def _ollama(self) -> Sent:
        before, after = self._texts()
        options = {"num_predict": self._rng.choice(N_TOKENS), "temperature": 0.8}
        body: Json = {"prompt": before or "x", "stream": self._streamed(), "options": options}
        body |= {"suffix": after} if after else {"raw": True}
        return sent("Ollama", "/api/generate", body | self._extension(), has('"done":true'))

    def _tabby(self) -> Sent:
        before, after = self._texts()
        body = {"language": "python", "segments": {"prefix": before, "suffix": after}}
        return sent("Tabby", "/v1/completions", body, has('"choices"'))

    def _refact(self) -> Sent:
        before, after = self._texts()
        before = before.replace("\r\n", "\n")
        place = {"line": before.count("\n"), "character": len(before) - before.rfind("\n") - 1}
        inputs = {"sources": {"a.py": before + after}, "cursor": {"file": "a.py", **place}}
        body = {"inputs": inputs | {"multiline": True}, "stream": self._streamed()}
        body |= {"parameters": {"max_new_tokens": self._rng.choice(N_TOKENS)}}
        judge = ends_with_done if body["stream"] else has('"code_completion"')
        return sent("Refact", "/v1/code-completion", body, judge)

    def _tokenize(self) -> Sent:
        return sent("/tokenize", "/tokenize", {"content": self._texts()[0]}, has('"tokens"'))

    def _explain(self) -> Sent:
        before, after = self._texts()
        body = {"input_prefix": before[-500:], "input_suffix": after}
        return sent("/v1/explain", "/v1/explain", body, has('"methods"'))

    def _odd(self) -> Sent:
        """What must be refused, and nothing worse."""
        path = self._rng.choice(("/infill", "/v1/completions", "/api/generate", "/tokenize"))
        contents = (b"{", b"[]", b'{"prompt": 7}', b'{"prompt": "\xff"}', b'{"stream": []}', b"")
        return Sent("odd bodies", path, self._rng.choice(contents), is_refusal)


def sent(kind: str, path: str, body: Json, is_text_whole: Callable[[str], bool]) -> Sent:
    def is_whole(status: int, text: str) -> bool:
        return status == 200 and not ERROR.search(text) and is_text_whole(text)

    return Sent(kind, path, json.dumps(body).encode(), is_whole)


def has(mark: str) -> Callable[[str], bool]:
    return lambda text: mark in text


def ends_with_stop(text: str) -> bool:
    return '"stop":true' in text


def ends_with_done(text: str) -> bool:
    return text.endswith("data: [DONE]\n\n")


def is_refusal(status: int, text: str) -> bool:
    return 400 <= status < 500
