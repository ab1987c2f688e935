"""5-A9: every field missing, null, empty or of a wrong type, and bodies that are no JSON."""

from __future__ import annotations

import asyncio
import collections
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2

from conformance.check import Failed, NotApplicable, check
from conformance.dialects import Json
from conformance.peer import Peer

TIMEOUT_S = 60.0
# Whatever an absent length makes of a request, one of these ends it soon.
STOPS = [*" \nea(:,", "t", "0", "i", "o", "r"]
ODD: tuple[Any, ...] = (None, "", "x", 7, -1, True, [], {})
OPENAI_FIELDS = (
    "model", "prompt", "suffix", "max_tokens", "temperature", "top_p", "n", "stream",
    "stream_options", "logprobs", "echo", "stop", "presence_penalty", "frequency_penalty",
    "best_of", "logit_bias", "seed", "user",
)  # fmt: skip
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed", "repeat_penalty", "stop")
LLAMA_CPP_FIELDS = (
    "n_predict", *SAMPLING, "stream", "n_probs", "cache_prompt", "samplers", "logit_bias",
    "grammar", "json_schema", "response_fields", "id_slot", "n_keep", "t_max_predict_ms",
    "ignore_eos",
)  # fmt: skip
OLLAMA_FIELDS = (
    "prompt", "suffix", "stream", "raw", "format", "keep_alive", "system", "template", "images",
    "context",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Route:
    """A route, a body that it answers with 200, and the fields that are made odd.

    Fields after a dot are inside an object of the body.
    """

    path: str
    body: Json
    fields: tuple[str, ...]


def routes(model: str) -> tuple[Route, ...]:
    """All routes that complete or tokenize in some dialect."""
    return (*_llama_cpp(), *_openai(model), _ollama(model), _tabby(), _refact())


def _llama_cpp() -> Iterator[Route]:
    ended = {"n_predict": 1, "stop": STOPS}
    texts = ("input_prefix", "input_suffix", "input_extra", "prompt")
    hole = {"input_prefix": "x =", "input_suffix": "\n", **ended}
    yield Route("/infill", hole, (*texts, *LLAMA_CPP_FIELDS))
    yield Route("/completion", {"prompt": "x =", **ended}, ("prompt", *LLAMA_CPP_FIELDS))
    flags = ("add_special", "parse_special", "with_pieces")
    yield Route("/tokenize", {"content": "x"}, ("content", *flags))
    yield Route("/detokenize", {"tokens": [1, 2]}, ("tokens",))


def _openai(model: str) -> Iterator[Route]:
    hole = {"prompt": "x =", "suffix": "\n", "max_tokens": 1, "temperature": 0, "model": model}
    # Four is what OpenAI takes.
    hole["stop"] = STOPS[:4]
    yield Route("/v1/completions", hole, OPENAI_FIELDS)
    yield Route("/beta/completions", hole, OPENAI_FIELDS)
    yield Route("/v1/fim/completions", hole, (*OPENAI_FIELDS, "min_tokens", "random_seed"))


def _ollama(model: str) -> Route:
    options = {"num_predict": 1, "temperature": 0, "stop": STOPS}
    body = {"model": model, "prompt": "x =", "stream": False, "options": options}
    within = [f"options.{name}" for name in ("num_predict", *SAMPLING)]
    return Route("/api/generate", body, (*OLLAMA_FIELDS, *within))


def _tabby() -> Route:
    segments = {"prefix": "x =", "suffix": "\n"}
    # Answers of this dialect have no length that one could ask for, so these are few.
    fields = ("segments", "segments.prefix", "segments.suffix", "temperature")
    return Route("/v1/completions", {"language": "python", "segments": segments}, fields)


def _refact() -> Route:
    cursor = {"file": "a.py", "line": 0, "character": 3}
    inputs = {"sources": {"a.py": "x =\n"}, "cursor": cursor, "multiline": False}
    fields = ("inputs", "parameters", "model", "stream", "inputs.sources", "inputs.cursor")
    within = [f"parameters.{name}" for name in ("max_new_tokens", "temperature", "stop")]
    body = {"inputs": inputs, "parameters": {"max_new_tokens": 1}}
    return Route("/v1/code-completion", body, (*fields, *within))


def odd_bodies(route: Route) -> Iterator[tuple[str, bytes]]:
    """What is odd about each, and the body."""
    for name in route.fields:
        yield f"{name} missing", spelled(changed(route.body, name))
        for value in ODD:
            yield f"{name} {json.dumps(value)}", spelled(changed(route.body, name, value))
    first = route.fields[0]
    yield f"{first} half a character", spelled(changed(route.body, first, "\ud800"))
    yield f"{first} with NUL", spelled(changed(route.body, first, "x\0y ="))
    whole = spelled(route.body)
    yield "nothing", b""
    yield "half a body", whole[: len(whole) // 2]
    yield "text behind the body", whole + b"x"
    yield "no UTF-8", whole.replace(b"x", b"\xff", 1)
    yield "NaN", whole[:-1] + b', "temperature": NaN}'
    yield "a number of 5000 digits", whole[:-1] + b', "seed": ' + b"9" * 5000 + b"}"
    yield "2000 brackets", b"[" * 2000
    yield from ((f"only {text}", text.encode()) for text in ("null", "[]", '"x"', "7", "{}"))


_MISSING = object()


def changed(body: Json, name: str, value: Any = _MISSING) -> Json:
    """The body with another value, or none, at `name`."""
    outer, _, inner = name.partition(".")
    if inner:
        return body | {outer: changed(body[outer], inner, value)}
    rest = {key: had for key, had in body.items() if key != name}
    return rest if value is _MISSING else rest | {name: value}


def spelled(body: Json) -> bytes:
    return json.dumps(body).encode("utf-8")


@check(
    "A9",
    "llama.cpp#4833, llama.cpp#8179, llama.cpp#7286",
    sends="to each route that is there: every field missing, null, empty and of eight wrong types;"
    " no JSON, half of it, no UTF-8, NaN, numbers and nesting without end; lengths end by stops",
    passes="each answer is a 200, or a 4xx whose body is JSON with an error: no 5xx, no broken"
    " connection, no silence of a minute",
    why="a client's slip must not look like a broken server, and must not break it",
)
async def odd_bodies_are_answered(peer: Peer) -> str:
    """Whatever a body holds, the answer is 200 or a clean 4xx."""
    said, n_bad, n = [], 0, 0
    examples: list[str] = []
    for route in routes(peer.model):
        if await _outcome(peer, route, spelled(route.body)) != "200":
            continue
        bad = await _bad_ones(peer, route)
        n_bodies = sum(1 for _ in odd_bodies(route))
        kinds = collections.Counter(outcome for _, outcome in bad)
        said.append(f"{_name(route)} {len(bad)} of {n_bodies}{_counted(kinds)}")
        examples += [f"{route.path}: {what}" for what, _ in bad[:2]]
        n_bad, n = n_bad + len(bad), n + n_bodies
    if not n:
        raise NotApplicable("no route that is known")
    detail = f"{n_bad} of {n} bodies badly answered ({'; '.join(said)})"
    if n_bad:
        raise Failed(f"{detail}, among them {', '.join(examples[:4])}")
    return detail


def _name(route: Route) -> str:
    return f"{route.path} with segments" if "segments" in route.body else route.path


def _counted(kinds: collections.Counter[str]) -> str:
    return "".join(f", {n} {kind}" for kind, n in sorted(kinds.items()))


async def _bad_ones(peer: Peer, route: Route) -> list[tuple[str, str]]:
    # As many at once as most servers work on.
    turn = asyncio.Semaphore(4)

    async def outcome(body: bytes) -> str:
        async with turn:
            return await _outcome(peer, route, body)

    bodies = list(odd_bodies(route))
    outcomes = await asyncio.gather(*(outcome(body) for _, body in bodies))
    asked = zip(bodies, outcomes, strict=True)
    return [(what, said) for (what, _), said in asked if said not in ("200", "refused")]


async def _outcome(peer: Peer, route: Route, body: bytes) -> str:
    headers = {"Content-Type": "application/json"}
    try:
        response = await peer.http.post(
            route.path, content=body, headers=headers, timeout=TIMEOUT_S
        )
    except httpx2.TimeoutException:
        return "silence"
    except httpx2.TransportError:
        return "broken"
    if response.status_code == 200:
        return "200"
    if 400 <= response.status_code < 500:
        return "refused" if _has_error(response) else "unexplained"
    return str(response.status_code)


def _has_error(response: httpx2.Response) -> bool:
    """Whether the body says what is wrong, in one of the shapes that dialects have."""
    try:
        answer = response.json()
    except ValueError:
        return False
    return isinstance(answer, dict) and bool({"error", "message", "detail"} & answer.keys())
