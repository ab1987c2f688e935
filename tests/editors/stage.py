"""The server behind all scenarios of a session: the real application over a scripted model.

It stays at one port whatever becomes of it, so that an editor finds it again. What a scenario makes
of it, until the next begins, is its *mode*:

  ready       answers at once           slow        takes half a second a word
  silent      begins, and never ends    loading     the model is not there yet
  halting     writes a line and a word, and the rest once it is ready
  refuse-key  wants an API key          garbage     answers what is no JSON
  broken      fails inside              kill        nobody listens
  start       is ready again, also after kill
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from editors.scenario import Mode
from support.fake_completer import FakeCompleter
from support.http_server import settings
from suture.server.app import create_app
from suture.server.connections import http_config
from suture.server.errors import EngineError, Loading
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    HealingReport,
    PromptReport,
)
from suture.server.shaping.closers import OverClosers, line_rest

# By so much of the text before the cursor a place in a document is known.
TAIL = 400


def rest_of(document: str, prefix: str, suffix: str) -> str:
    """What `document` has between `prefix` and `suffix`; nothing where it goes otherwise.

    All have LF. Of a long prefix only the end is compared, for editors send no more. Closers that
    follow in the cursor's line count for nothing: the document has them, in their place.
    """
    if len(prefix) > TAIL:
        at = document.rfind(prefix[-TAIL:])
        rest = "" if at < 0 else document[at + TAIL :]
    else:
        rest = document.removeprefix(prefix) if document.startswith(prefix) else ""
    behind = suffix[len(line_rest(prefix, suffix)) :]
    if len(behind) > TAIL:
        at = rest.find(behind[:TAIL])
        return rest if at < 0 else rest[:at]
    return rest.removesuffix(behind)


@dataclass
class Writer(FakeCompleter):
    """Goes on with the rest of `writes`, or says `says`, word by word.

    `begun` are the paths of what was asked for at a cursor, `n_running` counts what runs now.
    """

    writes: str = ""
    says: str | None = None
    is_silent: bool = False
    is_halting: bool = False
    is_broken: bool = False
    begun: list[str] = field(default_factory=list)
    n_running: int = 0

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        if self.loading == "loading":
            raise Loading("Loading model")
        self.requests.append(request)
        is_ahead = (request.session or "").endswith("/ahead")
        if not is_ahead and request.max_tokens:
            self.begun.append(request.path or "")
        self.n_running += 1
        n_left = request.n
        try:
            async for chunk in self._chunks(request):
                n_left -= chunk.result is not None
                yield chunk
        except EngineError:
            n_left = 0
            raise
        finally:
            self.n_running -= 1
            self.cancelled += n_left > 0

    async def _chunks(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        if self.is_broken:
            raise EngineError("the engine failed")
        while self.is_silent:
            await asyncio.sleep(0.01)
        for index in range(request.n):
            over = OverClosers(line_rest(request.prefix, request.suffix), request.prefix)
            words = re.findall(r"\s*\S+|\s+", over.feed(self._text(request)))
            for n, word in enumerate(words[: request.max_tokens]):
                await asyncio.sleep(self.delay_s)
                yield CompletionChunk(word, (n,), index=index)
                while self.is_halting and "\n" in "".join(words[: n + 1]).lstrip():
                    await asyncio.sleep(0.01)
            result = CompletionResult(
                "eos",
                reason=None if words else "EMPTY",
                completion_tokens=len(words),
                healing=HealingReport("exact"),
                prompt=PromptReport(len(request.prefix), 0, len(request.prefix)),
                edit=over.edit,
            )
            yield CompletionChunk("", result=result, index=index)

    def _text(self, request: CompletionRequest) -> str:
        """What belongs at the cursor, in the lines that are wanted and with the file's ends."""
        prefix, suffix = (_lf(text) for text in (request.prefix, request.suffix))
        text = rest_of(self.writes, prefix, suffix) if self.says is None else self.says
        if request.shape == "line":
            text = text.split("\n")[0]
        return text.replace("\n", "\r\n") if "\r\n" in request.prefix + request.suffix else text


class Stage:
    """The server at `url`; what it does is set by `turn`."""

    def __init__(self, key_file: Path) -> None:
        self.model = Writer()
        self._mode: Mode = "ready"
        self._open = create_app(self.model, settings())
        self._locked = create_app(self.model, settings(api_key_file=key_file))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = int(listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self._running: _Running | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it answers as it should."""
        return self._mode in ("ready", "start")

    def begin(self, writes: str, says: str | None) -> None:
        """A model with another text in mind, and nothing counted."""
        self.model.writes, self.model.says = _lf(writes), says
        self.model.requests.clear()
        self.model.begun.clear()
        self.model.cancelled = 0
        self.turn("ready")

    def turn(self, mode: Mode) -> None:
        """Put a mode in force."""
        self._mode = mode
        self.model.loading = "loading" if mode == "loading" else "ready"
        self.model.is_silent = mode == "silent"
        self.model.is_halting = mode == "halting"
        self.model.is_broken = mode == "broken"
        self.model.delay_s = 0.5 if mode == "slow" else 0.0
        if mode == "kill":
            self.close()
        elif self._running is None:
            self._running = _Running(self, self._port)

    def close(self) -> None:
        """Nobody listens any more."""
        if self._running is not None:
            self._running.end()
            self._running = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._mode == "garbage":
            await Response("<html>hi", media_type="text/html")(scope, receive, send)
        else:
            app = self._locked if self._mode == "refuse-key" else self._open
            await app(scope, receive, send)


class _Running:
    """An HTTP server in a thread, at a port that may have had one before."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._server = uvicorn.Server(http_config(app, settings(), drain_s=1))
        # From its descriptor: only such a socket knows that it is TCP's.
        listener = socket.socket(fileno=socket.create_server(("127.0.0.1", port)).detach())
        run = self._server.run
        self._thread = threading.Thread(target=run, args=([listener],), daemon=True)
        self._listener = listener
        self._thread.start()

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._listener.close()
        assert not self._thread.is_alive(), "the server did not stop"


@contextmanager
def staging(folder: Path) -> Iterator[Stage]:
    """A stage whose server ends with the block; `folder` is for what it needs."""
    key_file = folder / "keys"
    key_file.write_text("a-key-that-nobody-was-told\n")
    stage = Stage(key_file)
    stage.turn("ready")
    try:
        yield stage
    finally:
        stage.close()


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")
