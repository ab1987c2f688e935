"""The server under test: what it is, what it speaks, and how it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from conformance.check import Failed, NotApplicable, Refused
from conformance.dialects import DIALECTS, Ask, Dialect, Json, LlamaCpp, Part

# What is asked when nothing but the route is of interest.
PROBE = Ask("def add(a, b):\n    return a + b\n", "\n", max_tokens=1)
LONG_SUFFIX = "\n" + "".join(f"print(add({n}, {n + 1}))\n" for n in range(8))
N_TIMES_BUSY = 50
ABSENT = (404, 405)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. Seconds from the request on, `first_s` to the first text."""

    part: Part
    seconds: float
    first_s: float
    n_texts: int = 1

    @property
    def text(self) -> str:
        return self.part.text

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt, where the server tells."""
        if self.part.n_prompt is None:
            raise NotApplicable("answers do not tell how many tokens the prompt has")
        return self.part.n_prompt

    @property
    def n_evaluated(self) -> int:
        if self.part.n_evaluated is None:
            raise NotApplicable("answers do not tell how many tokens were evaluated")
        return self.part.n_evaluated


@dataclass(frozen=True, slots=True)
class Peer:
    """A server that answers.

    `dialects` are those whose route is there; `dialect` is the one that checks speak, and
    `fills` is whether it fills holes. `has_sense` is whether the model goes on with what it is
    shown. `uncut` are fields by which prompts hold all tokens of their texts: some servers take
    back the last ones, and counts say nothing then. `while_loading` are answers that came before
    the model was there.
    """

    http: httpx2.AsyncClient
    name: str
    model: str
    dialects: tuple[Dialect, ...]
    dialect: Dialect
    fills: bool
    has_sense: bool
    n_slots: int | None
    n_ctx: int | None
    uncut: Mapping[str, object]
    while_loading: tuple[httpx2.Response, ...]

    async def hole(self, prefix: str, suffix: str, max_tokens: int = 16, **more: object) -> Answer:
        """What belongs between."""
        if not self.fills:
            raise NotApplicable("the server fills no holes with this model")
        return await self.ask(Ask(prefix, suffix, max_tokens, more=more))

    async def text(self, prompt: str, max_tokens: int = 16, **more: object) -> Answer:
        """What goes on after `prompt`."""
        return await self.ask(Ask(prompt, None, max_tokens, more=more))

    async def before(self, prefix: str, max_tokens: int = 16) -> Answer:
        """What follows `prefix`: at the end of a file where the server fills holes."""
        suffix = "\n" if self.fills else None
        return await self.ask(Ask(prefix, suffix, max_tokens, ("\n",)))

    async def n_tokens(self, prefix: str, suffix: str) -> int:
        """Tokens of the prompt for this hole, of all of both texts."""
        return (await self.hole(prefix, suffix, 1, **self.uncut)).n_prompt

    async def ask(self, ask: Ask, dialect: Dialect | None = None) -> Answer:
        """The answer; a 503 that says when to come again is heeded. Raises `Refused`."""
        return await asked(self.http, dialect or self.dialect, ask, self.model)

    async def stream(self, ask: Ask) -> AsyncGenerator[Part, None]:
        """The events of a stream."""
        path, body = self.dialect.request(replace(ask, stream=True), self.model)
        async with self.http.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                raise Refused(response.status_code, (await response.aread()).decode())
            async for payload in payloads(response):
                yield self.dialect.part(payload)

    async def streamed(self, ask: Ask) -> Answer:
        """A stream, as one answer."""
        started = time.perf_counter()
        parts: list[Part] = []
        first_s = 0.0
        async with contextlib.aclosing(self.stream(ask)) as events:
            async for part in events:
                if part.text and not first_s:
                    first_s = time.perf_counter() - started
                parts.append(part)
        whole = Part("".join(part.text for part in parts), *_last_words(parts))
        n_texts = sum(bool(part.text) for part in parts)
        return Answer(whole, time.perf_counter() - started, first_s, n_texts)

    async def tokens(self, text: str, **fields: object) -> list[Any]:
        """What `/tokenize` makes of `text`."""
        response = await self.http.post("/tokenize", json={"content": text, **fields})
        if response.status_code in ABSENT:
            raise NotApplicable("there is no /tokenize")
        if response.status_code != 200:
            raise Refused(response.status_code, response.text)
        return list(response.json()["tokens"])

    async def told(self, path: str, body: Json | None = None) -> Any:
        """The JSON of another route; None where there is none."""
        return await told(self.http, path, body)

    def needs_sense(self) -> None:
        if not self.has_sense:
            raise NotApplicable("the model does not go on with what it is shown")


def _last_words(parts: list[Part]) -> tuple[str | None, int | None, int | None, int | None]:
    """What the last event to say each of them says."""

    def last(name: str) -> Any:
        said = [getattr(part, name) for part in parts]
        return next((value for value in reversed(said) if value is not None), None)

    return last("finish"), last("n_prompt"), last("n_evaluated"), last("n_generated")


async def payloads(response: httpx2.Response) -> AsyncGenerator[Json, None]:
    """The JSON of each event, of server-sent ones and of lines alike."""
    pending = b""
    async for piece in response.aiter_bytes():
        *lines, pending = (pending + piece).split(b"\n")
        for line in lines:
            data = _text_of(line).removeprefix("data:").strip()
            if data and data != "[DONE]" and not data.startswith(":"):
                payload = json.loads(data)
                if "error" in payload:
                    raise Failed(f"an error in the stream: {str(payload['error'])[:120]}")
                yield payload


def _text_of(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise Failed(f"an event that is not UTF-8: {line[:80]!r}") from None


async def asked(http: httpx2.AsyncClient, dialect: Dialect, ask: Ask, model: str) -> Answer:
    path, body = dialect.request(ask, model)
    # Once: a server that refuses while it ends abandoned work takes that time from its client.
    started = time.perf_counter()
    for _ in range(N_TIMES_BUSY):
        response = await http.post(path, json=body)
        seconds = time.perf_counter() - started
        if response.status_code == 200:
            return Answer(dialect.part(json.loads(_text_of(response.content))), seconds, seconds)
        if response.status_code != 503 or "retry-after" not in response.headers:
            break
        await asyncio.sleep(min(float(response.headers["retry-after"]), 1.0))
    raise Refused(response.status_code, response.text)


async def told(http: httpx2.AsyncClient, path: str, body: Json | None = None) -> Any:
    response = await (http.get(path) if body is None else http.post(path, json=body))
    if response.status_code != 200:
        return None
    try:
        return response.json()
    except ValueError:
        return None


async def meet(
    http: httpx2.AsyncClient, wait_s: float, model: str | None, dialect: str | None
) -> Peer:
    """The server, as soon as it answers completions; raises `LookupError` where none does."""
    while_loading = await _until_loaded(http, wait_s)
    model = model or await _first_model(http)
    spoken = [one for one in DIALECTS if await _is_there(http, one, model)]
    if dialect:
        spoken.sort(key=lambda one: one.name != dialect)
    if not spoken or dialect not in (None, spoken[0].name):
        raise LookupError(f"no completions at {http.base_url} that this kit knows")
    fillers = [one for one in spoken if await _fills(http, one, model)]
    used = spoken[0] if dialect or not fillers else fillers[0]
    props = await told(http, "/props")
    status = await told(http, "/v1/status")
    return Peer(
        http=http,
        name=await _name(http, props, status),
        model=model,
        dialects=tuple(spoken),
        dialect=used,
        fills=used in fillers,
        has_sense=await _has_sense(http, used, model),
        n_slots=(props or {}).get("total_slots"),
        n_ctx=(props or {}).get("default_generation_settings", {}).get("n_ctx"),
        uncut={"healing": "off"} if status and "suture" in status else {},
        while_loading=while_loading,
    )


async def _until_loaded(http: httpx2.AsyncClient, wait_s: float) -> tuple[httpx2.Response, ...]:
    """The answers of a completion route while the model was loading."""
    refusals: list[httpx2.Response] = []
    give_up = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(httpx2.TransportError):
            responses = [await _probe(http, dialect, "") for dialect in DIALECTS]
            busy = [response for response in responses if response.status_code == 503]
            refusals += busy
            if not busy:
                return tuple(refusals)
        if time.monotonic() > give_up:
            raise LookupError(f"nothing answers at {http.base_url}")
        await asyncio.sleep(0.05)


async def _probe(http: httpx2.AsyncClient, dialect: Dialect, model: str) -> httpx2.Response:
    path, body = dialect.request(PROBE, model)
    return await http.post(path, json=body)


async def _first_model(http: httpx2.AsyncClient) -> str:
    models = (await told(http, "/v1/models") or {}).get("data") or []
    tags = (await told(http, "/api/tags") or {}).get("models") or []
    return str([*(one["id"] for one in models), *(one["name"] for one in tags), "default"][0])


async def _is_there(http: httpx2.AsyncClient, dialect: Dialect, model: str) -> bool:
    """Whether it has the route; a model that it does not know is a 404 of Ollama's as well."""
    with contextlib.suppress(Refused):
        await asked(http, dialect, replace(PROBE, suffix=None), model)
        return True
    return False


async def _fills(http: httpx2.AsyncClient, dialect: Dialect, model: str) -> bool:
    """Whether a longer suffix makes a longer prompt; some take `suffix` and ignore it."""
    with contextlib.suppress(Refused):
        short = await asked(http, dialect, PROBE, model)
        long = await asked(http, dialect, replace(PROBE, suffix=LONG_SUFFIX), model)
        return short.part.n_prompt is None or short.n_prompt < long.n_prompt
    return False


async def _has_sense(http: httpx2.AsyncClient, dialect: Dialect, model: str) -> bool:
    line = "red, green, blue, yellow, black\n"
    ask = Ask(3 * line + "red, green,", None, max_tokens=8)
    return (await asked(http, dialect, ask, model)).text.startswith(" blue, yellow")


async def _name(http: httpx2.AsyncClient, props: Any, status: Any) -> str:
    if status and "suture" in status:
        return f"suture {status['suture']}"
    if props and "build_info" in props:
        return f"llama-server {props['build_info']}"
    version = await told(http, "/api/version")
    if version and "version" in version:
        return f"ollama {version['version']}"
    root = await http.get("/")
    return root.headers.get("server", "unknown")


def llama_cpp_only(peer: Peer) -> LlamaCpp:
    """llama.cpp's dialect, where it is the one that checks speak."""
    if not isinstance(peer.dialect, LlamaCpp):
        raise NotApplicable("of llama.cpp's dialect")
    return peer.dialect
