"""A question about a cursor: how the command line says it, and whom it asks.

A running server is asked if it is Suture; otherwise this process loads the model. Both go through
the same `/infill` body and the same events, so the text does not depend on which one it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_args

from suture.server.client import Absent, Client, ServerFailure, Stranger, Suture
from suture.server.commands.cursor import Cursor, is_target, read_cursor, read_text, sendable
from suture.server.commands.flags import add_settings
from suture.server.errors import SetupError, Unavailable, Unreachable
from suture.server.request import FimBoundary, Reason, Shape
from suture.server.settings import Settings, read_api_keys
from suture.server.tls import trust

# How long to wait for a server that is still loading its model.
LOADING_TIMEOUT_S = 120.0

Json = dict[str, Any]
T = TypeVar("T")


class Asked(Protocol):
    """Who answers: a server, or this process. Bodies are those of `/infill`."""

    def complete(self, body: Json) -> Iterator[Json]:
        """The events of the stream."""
        ...

    def candidates(self, body: Json) -> list[Json]:
        """The answers to a body that asks for several."""
        ...

    def explain(self, body: Json) -> Json:
        """The answer of `/v1/explain`."""
        ...


def add_question(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    """The arguments that say where to complete, whom to ask, and how."""
    parser.add_argument(
        "target", nargs="?", metavar="FILE:LINE:COL|-", help="from 1; -: stdin, NUL = cursor"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--server", metavar="URL", help="ask this server, and no other")
    where.add_argument("--local", action="store_true", help="load the model in this process")
    parser.add_argument("--max-tokens", type=number, default=max_tokens, metavar="N")
    parser.add_argument(
        "--extra", nargs="+", action="extend", default=[], metavar="FILE", help="files for context"
    )
    parser.add_argument(
        "--fim-boundary",
        choices=get_args(FimBoundary),
        help="in psm order: the text's end before the cursor is kept, or moved and healed",
    )
    parser.add_argument(
        "--shape", choices=get_args(Shape), help="what becomes of the model's text (default auto)"
    )
    parser.add_argument(
        "--language", metavar="NAME", help="the text's, as editors call it; else by its file's name"
    )
    add_settings(
        parser,
        "model",
        "models",
        "healing",
        "give_back",
        "layout",
        "min_confidence",
        "tokenizer",
        "detokenizer",
        "ctx",
        "threads",
        "api_key_file",
        "tls_cert",
    )


def number(text: str) -> int:
    """A number of an argument."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, not {text!r}")
    return int(text)


def read_question(args: argparse.Namespace) -> tuple[Cursor, Json]:
    """The cursor that is asked about, and the `/infill` body for it."""
    take_target(args)
    stdin = sys.stdin.buffer.read() if args.target == "-" else None
    cursor = read_cursor(args.target, stdin)
    return cursor, infill_body(cursor, args)


def take_target(args: argparse.Namespace) -> None:
    """Give a position that follows `--extra FILE ...` back: the flag takes all that follow it."""
    if args.target is None and args.extra and is_target(args.extra[-1]):
        args.target = args.extra.pop()
    if args.target is None:
        raise SetupError("where? expected FILE:LINE:COL or -")


def infill_body(cursor: Cursor, args: argparse.Namespace) -> Json:
    """The `/infill` body for a cursor; only what was asked for overrides the server's defaults."""
    body: Json = {
        "input_prefix": cursor.prefix,
        "input_suffix": cursor.suffix,
        "input_extra": [
            {"filename": sendable(name), "text": read_text(Path(name))} for name in args.extra
        ],
        "n_predict": args.max_tokens,
        "temperature": 0,
        "path": cursor.path,
    }
    for key in ("healing", "give_back", "layout", "fim_boundary"):
        value = getattr(args, key)
        if value is not None:
            body[key] = int(value) if value.isdecimal() and value.isascii() else value
    for key in ("shape", "language"):
        if getattr(args, key) is not None:
            body[key] = getattr(args, key)
    if args.min_confidence is not None:
        body["min_confidence"] = float(args.min_confidence)
    return body


def choose(args: argparse.Namespace, settings: Settings, stack: ExitStack) -> Asked:
    """Whom to ask; what it holds open is closed with `stack`."""
    if not args.local:
        named = settings.server if args.server is None else args.server
        url = server_url(settings) if named is None else named
        client = stack.enter_context(open_client(settings, url))
        found = client.identify()
        if isinstance(found, Suture) and _serves(found, settings):
            return _Remote(client)
        if named is not None:
            raise ServerFailure(f"{url}: {_why_not(found)}", _reason(found))
        if not isinstance(found, Absent):
            print(f"suture: {url}: {_why_not(found)}: completing locally", file=sys.stderr)
    # Only here: asking a server needs none of it.
    from suture.server.commands.in_process import open_here

    return open_here(settings, stack)


def _serves(found: Suture, settings: Settings) -> bool:
    """Whether it serves the model asked for; none asked for, any will do."""
    name, path = found.model_names
    # What other servers run is called as they call it; `model` is where its tokenizer is.
    wanted = settings.engine_model if settings.engine == "remote" else settings.model
    return wanted is None or wanted == name or os.path.abspath(wanted) == path


def _why_not(found: Absent | Stranger | Suture) -> str:
    match found:
        case Absent():
            return "no server"
        case Stranger():
            return found.what
        case Suture():
            return f"another model: {found.model_names[0]}"


def _reason(found: Absent | Stranger | Suture) -> Reason | None:
    match found:
        case Absent():
            return "UNREACHABLE"
        case Stranger():
            return found.reason
        case Suture():
            return None


def server_url(settings: Settings) -> str:
    """Where a server with these settings is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return settings.url_at(host, settings.port)


def open_client(settings: Settings, url: str) -> Client:
    """A client with the settings' key and the certificates that are trusted."""
    return Client(url, _first_key(settings), trust(url, settings))


def _first_key(settings: Settings) -> str | None:
    return next(iter(read_api_keys(settings)), None)


class _Remote:
    """A server that may still be loading or be full."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def complete(self, body: Json) -> Iterator[Json]:
        events = _when_loaded(lambda: _begun(self._client.infill(body)))
        if events is not None:
            first, rest = events
            yield first
            yield from rest

    def candidates(self, body: Json) -> list[Json]:
        return _when_loaded(lambda: self._client.candidates(body))

    def explain(self, body: Json) -> Json:
        return _when_loaded(lambda: self._client.explain(body))


def _begun(events: Iterator[Json]) -> tuple[Json, Iterator[Json]] | None:
    """The first event and the others; what is raised before it is raised here."""
    first = next(events, None)
    return None if first is None else (first, events)


def _when_loaded(ask: Callable[[], T]) -> T:
    """The answer of a server, asked again for as long as it may still be loading or be full."""
    deadline = time.monotonic() + LOADING_TIMEOUT_S
    while True:
        try:
            return ask()
        except Unreachable:
            raise  # who knows when somebody starts those that run the model
        except Unavailable as error:
            if time.monotonic() + error.retry_after > deadline:
                raise
            time.sleep(error.retry_after)
