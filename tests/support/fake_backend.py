"""A real HTTP server that plays vLLM or llama-server over a toy model, with faults to order.

Its answers have the shapes of the real ones, as far as a front of them reads them. It knows what it
was asked, which prefixes it has in its cache, and when a client left before the end.
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import h11
import numpy as np

from support.toy import toy_encode, toy_encode_markup, toy_vocabulary
from support.toy_inference import (
    Constraint,
    Inference,
    NoConstraint,
    Said,
    infer,
    of_grammar,
    of_regex,
)
from suture.healing import Vocabulary
from suture.server.engine.scripted import Model

Json = dict[str, Any]
Kind = Literal["vllm", "llama-server", "openai"]
Fault = Literal[
    "400",
    "429",
    "500",
    "503",
    "dies",  # before the first byte
    "dies in the middle",  # after two tokens
    "stops in the middle",  # the same, with a well-formed end of the stream
    "stalls",  # before the first byte
    "stalls in the middle",
    "half a character",  # the text ends within one
    "wrong ids",  # that spell anything but what is pending
    "ids outside",  # of the vocabulary, after one token
    "only ids outside",
    "error in the middle",  # as an event
    "half JSON",
    "garbage",  # no HTTP
    "no events",
    "endless",  # tokens
    "endless head",
    "endless event",
    "endless error",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)

N_CTX = 4096
PIECE = b"x" * 65_536


@dataclass(frozen=True)
class Asked:
    """A request as it came; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class _Gone(Exception):
    """The client has left."""


class _BrokenOff(Exception):
    """The connection is to end here."""


@dataclass
class FakeBackend:
    """Answers greedy over `model`; `faults` are those of the next POSTs, and `fault` of all others.

    All is under the path `under`, as behind a gateway. Where it does not honour constraints it
    takes them without a word. `health` is the status of
    `/health`; a token takes `step_s`. All of it may be changed while it serves.
    """

    model: Model
    kind: Kind = "vllm"
    vocabulary: Vocabulary = field(default_factory=toy_vocabulary)
    name: str = "toy"
    root: str = "org/toy"
    under: str = ""
    honours: bool = True
    faults: deque[Fault | None] = field(default_factory=deque)
    fault: Fault | None = None
    health: int = 200
    api_key: str | None = None
    retry_after: str = "2"
    cookie: str = ""
    step_s: float = 0.0

    asked: list[Asked] = field(default_factory=list)
    n_connections: int = 0
    n_running: int = 0
    n_most: int = 0
    n_left: int = 0
    n_said: int = 0
    n_cached: int = 0
    _shown: list[tuple[str, list[int]]] = field(default_factory=list)

    @property
    def completions(self) -> list[Asked]:
        """What was asked for texts."""
        paths = ("/v1/completions", "/completion")
        return [one for one in self.asked if one.path in paths]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one of both leaves."""
        self.n_connections += 1
        http = h11.Connection(h11.SERVER)
        with suppress(_Gone, _BrokenOff, OSError, h11.ProtocolError):
            while True:
                request = await _read(http, reader)
                # Elsewhere there is nothing.
                is_here = request.path.startswith(self.under + "/")
                path = request.path.removeprefix(self.under) if is_here else "/nowhere"
                request = replace(request, path=path)
                self.asked.append(request)
                await self._answer(_Answer(self, request, http, reader, writer))
                http.start_next_cycle()

    def cached(self, prompt_ids: list[int], salt: str) -> int:
        """How many of the prompt's tokens are in the cache, in which it is from now on."""
        seen = (ids for known, ids in self._shown if known == salt)
        n = max((_n_same(prompt_ids, ids) for ids in seen), default=0)
        self._shown.append((salt, prompt_ids))
        self.n_cached += n
        return n

    async def _answer(self, answer: _Answer) -> None:
        request = answer.request
        route = (request.method, request.path)
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return await answer.json({"error": "Unauthorized"}, 401)
        if route == ("GET", "/health") and self.kind != "openai":
            return await answer.json({"status": "ok"}, self.health)
        if request.method == "GET":
            found = self._told(request.path)
            return await answer.json(found if found is not None else _error(404, "Not Found"))
        if request.path == "/tokenize":
            return await answer.json(self._tokens(request.body))
        paths = ("/completion",) if self.kind == "llama-server" else ("/v1/completions",)
        if request.path not in paths:
            return await answer.json(_error(404, "Not Found"), 404)
        self.n_running += 1
        self.n_most = max(self.n_most, self.n_running)
        try:
            await answer.complete(self.faults.popleft() if self.faults else self.fault)
        except _Gone:
            self.n_left += 1
            raise
        finally:
            self.n_running -= 1

    def _told(self, path: str) -> Json | None:
        """What it says of itself."""
        meta = {"n_vocab": self.vocabulary.n_vocab, "n_ctx_train": N_CTX}
        model: Json = {"id": self.name, "object": "model", "owned_by": self.kind}
        model |= {"created": time.time_ns(), "root": self.root}
        model |= {"meta": meta} if self.kind == "llama-server" else {"max_model_len": N_CTX}
        told: dict[str, Json] = {"/v1/models": {"object": "list", "data": [model]}}
        if self.kind == "vllm":
            told["/version"] = {"version": "0.32.0"}
        if self.kind == "llama-server":
            told["/props"] = {
                "default_generation_settings": {"n_ctx": N_CTX},
                "total_slots": 4,
                "model_path": f"/models/{self.name}.gguf",
                "build_info": "b9999-c0ffee",
            }
        return told.get(path)

    def _tokens(self, body: Json) -> Json:
        if self.kind == "llama-server":
            encode = toy_encode_markup if body.get("parse_special", True) else toy_encode
            return {"tokens": list(encode(str(body.get("content", "")).encode()))}
        tokens = list(toy_encode_markup(str(body.get("prompt", "")).encode()))
        return {"tokens": tokens, "count": len(tokens), "max_model_len": N_CTX}


@dataclass
class _Answer:
    """The answer to one request, over its connection."""

    backend: FakeBackend
    request: Asked
    http: h11.Connection
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def json(self, value: Json, status: int | None = None, retry_after: str = "") -> None:
        error = value.get("error")
        told = error.get("code") if isinstance(error, dict) else None
        content = json.dumps(value).encode()
        named = [("content-type", "application/json"), ("content-length", str(len(content)))]
        await self._send(
            h11.Response(
                status_code=status or told or 200,
                headers=[*named, *([("retry-after", retry_after)] if retry_after else [])],
            ),
            h11.Data(data=content),
            h11.EndOfMessage(),
        )

    async def complete(self, fault: Fault | None) -> None:
        """Answer with a text, or as the fault has it."""
        if fault is not None and await self._fails_before(fault):
            return
        body = self.request.body
        try:
            asked = self._inference(body)
        except NoConstraint as error:
            return await self.json(_error(400, str(error)))
        if self.backend.kind != "llama-server" and body.get("model") != self.backend.name:
            message = f"The model `{body.get('model')}` does not exist."
            return await self.json(_error(404, message))
        if not body.get("stream"):
            return await self.json(_error(400, "the fake streams only"))
        await self._start()
        n_cached = self.backend.cached(list(asked.prompt_ids), str(body.get("cache_salt", "")))
        said = _vllm if self.backend.kind != "llama-server" else _llama_server
        async with (
            aclosing(self._steps(asked, fault)) as steps,
            aclosing(said(self.backend, body, asked, n_cached, steps)) as events,
        ):
            async for event in events:
                await self.event(event)
        if fault == "half JSON":
            await self._send(h11.Data(data=b'data: {"choices": [\n\n'))
        if self.backend.kind != "llama-server" and fault != "stops in the middle":
            await self._send(h11.Data(data=b"data: [DONE]\n\n"))
        await self._send(h11.EndOfMessage())

    async def event(self, value: Json) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        await self._send(h11.Data(data=b"data: " + data + b"\n\n"))

    async def _fails_before(self, fault: Fault) -> bool:
        """Whether the fault left nothing to answer with."""
        if fault.isdigit():
            wait = self.backend.retry_after if fault in ("429", "503") else ""
            await self.json(_error(int(fault), f"a {fault} to order"), retry_after=wait)
        elif fault == "dies":
            raise _BrokenOff
        elif fault == "stalls":
            await self._stall()
        elif fault == "garbage":
            await self._raw(b"\x00\x01 no HTTP at all\r\n\r\n")
            raise _BrokenOff
        elif fault == "endless head":
            await self._endless(b"HTTP/1.1 200 OK\r\nx: ", PIECE)
        elif fault == "endless error":
            await self._endless(b"HTTP/1.1 500 Oops\r\n\r\n", PIECE)
        elif fault == "endless event":
            await self._start()
            await self._raw(b"%x\r\ndata: " % (1 << 40))
            await self._endless(b"", PIECE)
        elif fault == "no events":
            await self._start()
            await self._send(h11.EndOfMessage())
        else:
            return False
        return True

    async def _steps(self, asked: Inference, fault: Fault | None) -> AsyncGenerator[Said, None]:
        """The model's tokens, each after its time, spoilt as the fault has it."""
        backend = self.backend
        said = infer(backend.vocabulary, backend.model, asked)
        for n, token in enumerate(_spoilt(said, backend.vocabulary, asked, fault)):
            await asyncio.sleep(backend.step_s)
            if n == 2:
                if fault == "dies in the middle":
                    raise _BrokenOff
                if fault == "stalls in the middle":
                    await self._stall()
                if fault == "error in the middle":
                    await self.event(_error(500, "the engine died"))
                if fault in ("stops in the middle", "error in the middle", "half JSON"):
                    return
            self._check()
            backend.n_said += 1
            yield token

    def _inference(self, body: Json) -> Inference:
        """What a body asks the model for; raises `NoConstraint`."""
        backend, vocabulary = self.backend, self.backend.vocabulary
        prompt = body["prompt"]
        ids = list(prompt if isinstance(prompt, list) else toy_encode_markup(prompt.encode()))
        constraint = _constraint(body) if backend.honours else Constraint()
        if backend.kind == "llama-server":
            n_predict = body.get("n_predict", -1)
            ends, biases = vocabulary.eog_ids, dict(body.get("logit_bias") or [])
            bias = {i: -np.inf if value is False else value for i, value in biases.items()}
        else:
            n_predict = body.get("max_tokens", 16)
            ends = frozenset([*([vocabulary.eos_id] if vocabulary.eos_id is not None else [])])
            ends |= frozenset(body.get("stop_token_ids") or [])
            bias = {int(i): float(v) for i, v in (body.get("logit_bias") or {}).items()}
        if body.get("ignore_eos"):
            bias |= dict.fromkeys(ends, -np.inf)
        n_most = n_predict if n_predict >= 0 else N_CTX
        return Inference(ids, n_most, ends, constraint, bias, body.get("min_tokens", 0))

    async def _start(self) -> None:
        headers = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        if self.backend.cookie:
            headers.append(("set-cookie", self.backend.cookie))
        await self._send(h11.Response(status_code=200, headers=headers))

    async def _stall(self) -> None:
        while True:
            await asyncio.sleep(0.01)
            self._check()

    async def _endless(self, start: bytes, piece: bytes) -> None:
        await self._raw(start)
        while True:
            await self._raw(piece)
            await asyncio.sleep(0)

    async def _send(self, *events: h11.Event) -> None:
        await self._raw(b"".join(self.http.send(event) or b"" for event in events))

    async def _raw(self, content: bytes) -> None:
        self._check()
        self.writer.write(content)
        try:
            await self.writer.drain()
        except OSError:
            raise _Gone from None

    def _check(self) -> None:
        if self.reader.at_eof() or self.reader.exception() is not None:
            raise _Gone


async def _read(http: h11.Connection, reader: asyncio.StreamReader) -> Asked:
    """The next request; raises `_BrokenOff` where none comes."""
    request: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(65_536))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            headers = {name.decode(): value.decode() for name, value in request.headers}
            told = json.loads(body) if body else None
            return Asked(request.method.decode(), request.target.decode(), headers, told)
        else:
            raise _BrokenOff


def _constraint(body: Json) -> Constraint:
    """What the body of either server constrains the text to; older names say nothing."""
    asked = body.get("structured_outputs") or {}
    if "regex" in asked:
        return of_regex(asked["regex"])
    grammar = asked.get("grammar") or body.get("grammar")
    return of_grammar(grammar) if grammar else Constraint()


def _spoilt(
    said: Iterator[Said], vocabulary: Vocabulary, asked: Inference, fault: Fault | None
) -> Iterator[Said]:
    if fault == "half a character":
        # The first three of the four bytes of an emoji, behind what is pending.
        ids = [*asked.constraint.pending, *"🎉".encode()[:3]]
        return (Said(token_id, np.zeros(vocabulary.n_vocab, np.float32)) for token_id in ids)
    if fault == "wrong ids":
        pending = asked.constraint.pending or b"\0"
        return iter([Said((pending[0] + 1) % 256, np.zeros(vocabulary.n_vocab, np.float32))])
    if fault in ("ids outside", "only ids outside"):
        row = np.zeros(vocabulary.n_vocab + 1, np.float32)
        n_said = 1 if fault == "ids outside" else 0
        return iter([*itertools.islice(said, n_said), Said(vocabulary.n_vocab, row)])
    if fault == "endless":
        row = np.zeros(vocabulary.n_vocab, np.float32)
        first = [Said(byte, row) for byte in asked.constraint.pending]
        return itertools.chain(first, itertools.repeat(Said(ord("x"), row)))
    return said


class _Text:
    """Texts of tokens as servers show them: what is no whole character yet comes later."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, token_id: int) -> str:
        if not 0 <= token_id < self._vocabulary.n_vocab or self._vocabulary.is_special(token_id):
            return ""
        return self._decoder.decode(self._vocabulary.bytes_of(token_id))

    @property
    def is_inside(self) -> bool:
        """Whether a character has begun and not ended."""
        return bool(self._decoder.getstate()[0])


async def _vllm(
    backend: FakeBackend, body: Json, asked: Inference, n_cached: int, steps: AsyncIterator[Said]
) -> AsyncGenerator[Json, None]:
    """Events of `/v1/completions`, each with its ids where these are wanted and known."""
    text, n = _Text(backend.vocabulary), 0
    tells_ids = bool(body.get("return_token_ids")) and backend.kind == "vllm"
    finish = None
    async for said in steps:
        n += 1
        is_end = said.token_id in asked.ends
        finish = "stop" if is_end else "length" if n == asked.max_tokens else None
        choice: Json = {"index": 0, "text": "" if is_end else text.of(said.token_id)}
        choice |= {"finish_reason": finish, "logprobs": None, "stop_reason": None}
        if is_end and said.token_id != backend.vocabulary.eos_id:
            choice["stop_reason"] = said.token_id
        if body.get("logprobs") is not None:
            choice["logprobs"] = _logprobs(said, body["logprobs"])
        if tells_ids:
            choice["token_ids"] = [said.token_id]
            choice["prompt_token_ids"] = list(asked.prompt_ids) if n == 1 else None
        yield _chunk(backend, [choice])
    if finish is not None and (body.get("stream_options") or {}).get("include_usage"):
        details = {"cached_tokens": n_cached}
        usage = {"prompt_tokens": len(asked.prompt_ids), "completion_tokens": n}
        yield _chunk(backend, []) | {"usage": usage | {"prompt_tokens_details": details}}


def _chunk(backend: FakeBackend, choices: list[Json]) -> Json:
    told = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": backend.name}
    return told | {"choices": choices}


def _logprobs(said: Said, n: int) -> Json:
    """As vLLM has them with `return_tokens_as_token_ids`."""
    best = np.argsort(-said.logprobs, kind="stable")[:n].tolist()
    scored = {f"token_id:{i}": float(said.logprobs[i]) for i in [said.token_id, *best]}
    return {
        "tokens": [f"token_id:{said.token_id}"],
        "token_logprobs": [float(said.logprobs[said.token_id])],
        "top_logprobs": [scored],
        "text_offset": [0],
    }


async def _llama_server(
    backend: FakeBackend, body: Json, asked: Inference, n_cached: int, steps: AsyncIterator[Said]
) -> AsyncGenerator[Json, None]:
    """Events of `/completion`: the last one says why it ended; the end itself is no token of it."""
    text, n = _Text(backend.vocabulary), 0
    stop_type = None
    async for said in steps:
        n += 1
        if said.token_id in asked.ends:
            stop_type = "eos"
            break
        content = text.of(said.token_id)
        if text.is_inside:
            continue  # of such a character it sends the last token only
        event: Json = {"index": 0, "content": content, "stop": False, "id_slot": 0}
        event["tokens"] = [said.token_id] if body.get("return_tokens") else []
        if body.get("n_probs"):
            event["completion_probabilities"] = [_probabilities(backend, said, body["n_probs"])]
        yield event
        stop_type = "limit" if n == asked.max_tokens else None
    if stop_type is not None:
        n_prompt = len(asked.prompt_ids)
        yield {
            "index": 0,
            "content": "",
            "tokens": [],
            "stop": True,
            "stop_type": stop_type,
            "model": backend.name,
            "tokens_predicted": n,
            "tokens_evaluated": n_prompt,
            "tokens_cached": n_prompt + n,
            "truncated": False,
            "timings": {"cache_n": n_cached, "prompt_n": n_prompt - n_cached, "predicted_n": n},
        }


def _probabilities(backend: FakeBackend, said: Said, n: int) -> Json:
    def scored(token_id: int) -> Json:
        piece = backend.vocabulary.bytes_of(token_id)
        shown = piece.decode("utf-8", "replace")
        logprob = float(said.logprobs[token_id])
        return {"id": token_id, "token": shown, "bytes": list(piece), "logprob": logprob}

    best = np.argsort(-said.logprobs, kind="stable")[:n].tolist()
    return scored(said.token_id) | {"top_logprobs": [scored(token_id) for token_id in best]}


def _error(status: int, message: str) -> Json:
    return {"error": {"message": message, "type": "to order", "param": None, "code": status}}


def _n_same(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@contextmanager
def playing(
    backend: FakeBackend,
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[str]:
    """The URL at which it answers until the block ends, which breaks off what is running."""
    # From its descriptor: only such a socket knows that it is TCP's, so that asyncio switches
    # Nagle's algorithm off, which would hold events back for 40 ms.
    listener = socket.socket(fileno=socket.create_server((host, port)).detach())
    port = listener.getsockname()[1]
    serving: Future[Callable[[], object]] = Future()
    thread = threading.Thread(
        target=lambda: asyncio.run(_run(backend, listener, tls, serving)), daemon=True
    )
    thread.start()
    stop = serving.result(timeout=10)
    try:
        yield f"{'https' if tls else 'http'}://{host}:{port}"
    finally:
        stop()
        thread.join(timeout=10)
        assert not thread.is_alive(), "the backend did not stop"


async def _run(
    backend: FakeBackend,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    serving: Future[Callable[[], object]],
) -> None:
    """Serve; what `serving` is given stops that, from any thread."""
    transports: set[asyncio.WriteTransport] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await backend.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # it is stopped; asyncio would log that
        finally:
            # Closing it would wait until a client has read all, which may never be.
            writer.transport.abort()

    class Connection(asyncio.StreamReaderProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            transports.add(transport)
            super().connection_made(transport)

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    server = await loop.create_server(
        lambda: Connection(asyncio.StreamReader(), connected), sock=listener, ssl=tls
    )
    serving.set_result(lambda: loop.call_soon_threadsafe(stopped.set))
    await stopped.wait()
    # Who was accepted in this turn is connected some turns later, which a closed server forbids.
    loop.remove_reader(listener)
    for _ in range(10):
        await asyncio.sleep(0)
    server.close()
    for transport in transports:
        transport.abort()
    for _ in range(10):
        await asyncio.sleep(0)


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it came true in time; for tests whose event loop may stand still meanwhile."""
    deadline = time.monotonic() + seconds
    # Looked at once in each turn: it may be true now and false again.
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds
