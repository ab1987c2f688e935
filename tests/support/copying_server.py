"""A llama.cpp-like server whose model copies what it is shown, with faults to order.

A token of an answer is three characters, one of a prompt is one. The model goes on with what stood
behind the longest earlier occurrence of the text's end. Without faults it does all that the
conformance kit asks for; each fault, named like the check that is to find it, is something that
users reported of some server.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]

SENTINELS = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
N_CTX = 4096
LONGEST_MATCH = 60
TOKEN = 3
SECRET = re.compile(r"\nassert SECRET == (\d+)\n")
ASSIGNED = re.compile(r"self\.(\w+) =(?: (\w+))?$")
NAMED = re.compile(r"\n\w+\Z", re.ASCII)
# The parts of an emoji, which no text says alone.
PARTS = [{"id": 900, "piece": [0xF0, 0x9F]}, {"id": 901, "piece": [0xAB, 0xA0]}]


@dataclass
class CopyingServer:
    """Answers `/infill`, `/completion`, `/v1/completions`, `/tokenize`, `/v1/models`, `/props`.

    A token takes `step_s`, and a token of a prompt a tenth of it; there is one slot, and who waits
    for it waits in turn. `n_loading`
    requests come too early.
    """

    faults: frozenset[str] = frozenset()
    fills: bool = True
    step_s: float = 0.0
    n_loading: int = 0
    n_asked: int = 0
    n_at_once: int = 0
    shown: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    slot: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/infill", self.infill, methods=["POST"]),
                Route("/completion", self.completion, methods=["POST"]),
                Route("/v1/completions", self.openai, methods=["POST"]),
                Route("/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/models", self.models),
                Route("/props", self.props),
            ]
        )

    async def infill(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        if not self.fills:
            status = 500 if "A13" in self.faults else 501
            return _error(status, "oops" if status == 500 else "infill is not supported")
        texts = [body.get(key, "") for key in ("input_prefix", "prompt", "input_suffix")]
        if not all(isinstance(text, str) for text in texts) or "input_suffix" not in body:
            return _error(500 if "A9" in self.faults else 400, "texts must be strings")
        prefix, prompt, suffix = texts
        before = prompt + prefix if "A1" in self.faults and prompt else prefix + prompt
        if ("A5" in self.faults and not before) or ("D15" in self.faults and len(before) > 10**6):
            return _error(400, "no")
        if "A11" in self.faults and not suffix:
            suffix = "\n"
        return await self._answer(request, body, before, suffix)

    async def completion(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        if not isinstance(body.get("prompt"), str):
            return _error(500 if "A9" in self.faults else 400, "a prompt must be a string")
        return await self._answer(request, body, body["prompt"], None)

    async def openai(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        if not isinstance(body.get("prompt"), str) or not isinstance(body.get("suffix", ""), str):
            return _error(400, "texts must be strings")
        suffix = None if "A16" in self.faults else body.get("suffix")
        if suffix and not self.fills:
            return _error(400, "no suffix")
        n_prompt = self._n_tokens(body["prompt"], suffix)
        choice = {"text": "x", "index": 0, "finish_reason": "length"}
        return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": n_prompt}})

    async def tokenize(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        text = body.get("content")
        if not isinstance(text, str):
            return _error(400, "content must be a string")
        if body.get("with_pieces") is True and text == "🫠":
            return JSONResponse({"tokens": PARTS})
        if body.get("parse_special", True) and text in SENTINELS:
            return JSONResponse({"tokens": [SENTINELS.index(text)]})
        if body.get("parse_special", True):
            text = re.sub("|".join(map(re.escape, SENTINELS)), "s", text)
        bos = [1] if body.get("add_special") is True else []
        return JSONResponse({"tokens": [*bos, *map(ord, text)]})

    async def models(self, request: Request) -> Response:
        fim = {} if "A15" in self.faults else {"fim": {"supported": self.fills}}
        return JSONResponse({"data": [{"id": "copying", **fim}]})

    async def props(self, request: Request) -> Response:
        settings = {"n_ctx": N_CTX}
        return JSONResponse({"total_slots": 1, "default_generation_settings": settings})

    async def _body(self, request: Request) -> Json | Response:
        if self.n_loading > 0:
            self.n_loading -= 1
            headers = {} if "D7" in self.faults else {"Retry-After": "1"}
            return _error(503, "loading", headers)
        try:
            body = json.loads((await request.body()).decode())
        except (ValueError, RecursionError):
            return _error(400, "no JSON")
        if not isinstance(body, dict):
            return _error(400, "no object")
        return body

    async def _answer(
        self, request: Request, body: Json, before: str, suffix: str | None
    ) -> Response:
        stops = body.get("stop") or []
        stops = [stop for stop in stops if isinstance(stop, str)] if isinstance(stops, list) else []
        if "B13" in self.faults and len(stops) == 9:
            return _error(400, "too many stops")
        self.n_asked += 1
        n_predict = body.get("n_predict")
        n_most = n_predict if type(n_predict) is int and n_predict >= 0 else 16
        n_most = 1 if body.get("t_max_predict_ms") else n_most
        text = self._biased(body, n_most) or self._text(before, suffix, n_most, body)
        if text == "ERROR":
            return _error(500, "no text")
        finish = "eos" if len(text) < n_most * TOKEN else "limit"
        for stop in stops:
            if stop and stop in text:
                end = text.index(stop) + ("B-stop" in self.faults) * len(stop)
                text, finish = text[:end], "word"
        said = _Said(self, request, before, suffix, text, finish)
        if body.get("stream") is True:
            return StreamingResponse(said.events(), media_type="text/event-stream")
        _ = [part async for part in said.parts()]
        return JSONResponse(said.last(text) | self._probabilities(body, text))

    def _biased(self, body: Json, n: int) -> str:
        """What is said where a bias forces a token."""
        biases = body.get("logit_bias") or []
        if not isinstance(biases, list) or not biases or not isinstance(biases[0], list):
            return ""
        token = biases[0][0]
        if token in (900, 901):
            return "ERROR" if "C7" in self.faults else n * "\ufffd"
        return SENTINELS[token] if "B10" in self.faults else ""

    def _probabilities(self, body: Json, text: str) -> Json:
        if not body.get("n_probs"):
            return {}
        sure = [{"logprob": -0.1}, {"logprob": -9.0}]
        tokens = [{"token": one, "top_logprobs": sure} for one in _tokens(text)]
        return {"completion_probabilities": tokens}

    def _text(self, before: str, suffix: str | None, n: int, body: Json) -> str:
        key = before if "D12" in self.faults else f"{before}\0{suffix}"
        if key not in self.said or self.faults & {"B15", "D19"}:
            self.said[key] = self._model(before, suffix or "", 200)
        text = self.said[key]
        if body.get("ignore_eos") is True:
            text += n * "and so on"
        return self._spoilt(before, text[: n * TOKEN])

    def _model(self, before: str, suffix: str, n: int) -> str:
        """What follows: the number that the next line asserts, or what stood there before."""
        if "C10" in self.faults and "\r\n" in before:
            return "?"
        asserted = SECRET.search(suffix[:60])
        if asserted and before.endswith("SECRET =") and "A12" not in self.faults:
            return f" {asserted[1]}\n"
        if assigned := ASSIGNED.search(before):
            name, typed = assigned.groups()
            return (name[len(typed) :] if typed else f" {name}") + "\n"
        if NAMED.search(before):
            return " = 1\n"
        if before.endswith((" sum(", "print(len(", " [", ", ", "range(")):
            return "" if "B19" in self.faults else "x" + ("))" if "B1" in self.faults else "")
        text, crlf = before.replace("\r\n", "\n")[-20_000:], "\r\n" in before
        start = len(text)
        while len(text) < start + n and (following := _copied(text)):
            text += following
        said = text[start:] or "x\n" + str(len(suffix.replace("\r\n", "\n")))
        return said.replace("\n", "\r\n") if crlf and "B5" not in self.faults else said

    def _spoilt(self, before: str, text: str) -> str:
        faults = self.faults
        if "A2" in faults and before[-1:].isalnum():
            return "conia"
        if "A3" in faults and NAMED.search(before):
            text = text.lstrip(" ")
        if "B12" in faults:
            text = text.partition("//")[0]
        if "B7" in faults:
            text = text.replace("\t", "    ")
        if "C1" in faults and not before[-1:].isascii():
            text = "\ufffd" + text
        if "B15" in faults and self.n_asked > 12:
            text = "php" * (self.n_asked % 3)
        if "D19" in faults:
            text = f"other {self.n_asked}"  # who asks again gets what is another's
        if "D14" in faults and len(before) > N_CTX:
            text = "?"
        return text

    def _n_tokens(self, before: str, suffix: str | None) -> int:
        n = 1 + ("A8" in self.faults) + len(before) + len(suffix or "")
        if suffix is None:
            return n
        if "A18" in self.faults:
            n -= sum(len(one) - 1 for one in SENTINELS if one in before + suffix)
        n += 10 * ("A10" in self.faults and suffix.startswith("\r"))
        return n + 3 + 40 * ("A7" in self.faults and not before)

    def n_cached(self, before: str) -> int:
        """Characters of the prompt that were shown earlier."""
        seen = [] if "D10" in self.faults else self.shown
        n = max((_n_same(before, one) for one in seen), default=0)
        self.shown = [*self.shown[-20:], before]
        return n


@dataclass
class _Said:
    """One answer, as it is said."""

    server: CopyingServer
    request: Request
    before: str
    suffix: str | None
    text: str
    finish: str
    n_cached: int = 0

    async def parts(self) -> AsyncGenerator[str, None]:
        """The text, token by token, until the client leaves; deaf servers go on for nobody."""
        said: asyncio.Queue[str | None] = asyncio.Queue()
        work = asyncio.ensure_future(self._work(said))
        try:
            while (part := await self._next(said)) is not None:
                yield part
        finally:
            if not self.server.faults & {"D1", "D2", "D5"}:
                work.cancel()

    async def _next(self, said: asyncio.Queue[str | None]) -> str | None:
        while True:
            try:
                return await asyncio.wait_for(said.get(), 0.02)
            except TimeoutError:
                if await self.request.is_disconnected():
                    return None

    async def _work(self, said: asyncio.Queue[str | None]) -> None:
        server = self.server
        server.n_at_once += 1
        try:
            async with server.slot:
                self.n_cached = server.n_cached(self.before)
                n_new = len(self.before) - self.n_cached
                await asyncio.sleep(n_new * server.step_s / 10)
                for token in _tokens(self.text):
                    await asyncio.sleep(server.step_s)
                    if "D4" in server.faults and server.n_at_once > 1:
                        self.finish = ""
                        break
                    said.put_nowait(token)
        finally:
            server.n_at_once -= 1
            said.put_nowait(None)

    async def events(self) -> AsyncGenerator[bytes, None]:
        held = ""
        async for part in self.parts():
            if "D8" in self.server.faults:
                held += part
            elif "C6" in self.server.faults and part > "\x7f":
                yield _event({"content": "\ufffd\ufffd", "stop": False})
            else:
                yield _event({"content": part, "stop": False})
        if self.finish:
            yield _event(self.last(held))

    def last(self, text: str) -> Json:
        faults = self.server.faults
        n_prompt = self.server._n_tokens(self.before, self.suffix)
        return {
            "content": text,
            "stop": True,
            "stop_type": "eos" if "B9" in faults else self.finish,
            "tokens_evaluated": n_prompt,
            "tokens_predicted": len(_tokens(self.text)),
            "truncated": len(self.before) > N_CTX,
            "timings": {"prompt_n": n_prompt - self.n_cached},
        }


def _event(payload: Json) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message}}, status, headers)


def _tokens(text: str) -> list[str]:
    return [text[at : at + TOKEN] for at in range(0, len(text), TOKEN)]


def _copied(text: str) -> str:
    """The character behind the longest earlier occurrence of the end of `text`."""
    for n in range(min(len(text) - 1, LONGEST_MATCH), 2, -1):
        at = text.rfind(text[-n:], 0, len(text) - 1)
        if at >= 0:
            return text[at + n]
    return ""


def _n_same(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
