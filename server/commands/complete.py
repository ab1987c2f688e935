"""`suture complete`: fill the hole at a cursor and print what goes there, byte for byte.

A running server is asked if it is Suture; otherwise this process loads the model. Both go through
the same `/infill` body and the same events, so the text does not depend on which one it was.
Greedy; with -n, the first candidate is, and the others are drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from suture.server.client import Absent, Client, ServerFailure, Stranger, Suture, parse_events
from suture.server.commands import exits
from suture.server.commands.cursor import Cursor, is_target, read_cursor, read_text, sendable
from suture.server.commands.diff import unified_diff
from suture.server.commands.flags import add_settings, settings_of
from suture.server.commands.pull import require_llama_cpp, with_model_file
from suture.server.errors import SetupError, Unavailable
from suture.server.routes.completer import Completer
from suture.server.routes.delivery import stream_events
from suture.server.routes.llama_cpp import LlamaCppDialect
from suture.server.settings import Settings, read_api_keys

SUMMARY = "complete at a cursor in a file"

DEFAULT_MAX_TOKENS = 128
CANDIDATE_TEMPERATURE = 0.4
MAX_CANDIDATES = 64
# How long to wait for a server that is still loading its model.
LOADING_TIMEOUT_S = 120.0

Json = dict[str, Any]
# An /infill body to the events of its stream.
Ask = Callable[[Json], Iterator[Json]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", nargs="?", metavar="FILE:LINE:COL|-", help="from 1; -: stdin, NUL = cursor"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--server", metavar="URL", help="ask this server, and no other")
    where.add_argument("--local", action="store_true", help="load the model in this process")
    parser.add_argument("-n", type=_count, default=1, metavar="N", help="candidates, as JSON lines")
    parser.add_argument("--max-tokens", type=_number, default=DEFAULT_MAX_TOKENS, metavar="N")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--stream", action="store_true", help="print text as it comes")
    how.add_argument("--json", action="store_true", help="print the whole answer")
    how.add_argument("--diff", action="store_true", help="print a unified diff of the file")
    parser.add_argument(
        "--extra", nargs="+", action="extend", default=[], metavar="FILE", help="files for context"
    )
    add_settings(
        parser,
        "model",
        "models",
        "healing",
        "give_back",
        "layout",
        "tokenizer",
        "detokenizer",
        "ctx",
        "threads",
        "api_key_file",
        "tls_cert",
    )


def _count(text: str) -> int:
    n = _number(text)
    if not 1 <= n <= MAX_CANDIDATES:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_CANDIDATES}")
    return n


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError("must be a number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    if args.n > 1 and (args.stream or args.diff):
        raise SetupError("-n prints JSON lines: it does not go with --stream or --diff")
    take_target(args)
    stdin = sys.stdin.buffer.read() if args.target == "-" else None
    cursor = read_cursor(args.target, stdin)
    body = infill_body(cursor, args)
    with ExitStack() as stack:
        ask = choose(args, settings, stack)
        return candidates(ask, body, args) if args.n > 1 else one(ask, body, cursor, args)


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
    for key in ("healing", "give_back", "layout"):
        value = getattr(args, key)
        if value is not None:
            body[key] = int(value) if value.isdecimal() and value.isascii() else value
    return body


def choose(args: argparse.Namespace, settings: Settings, stack: ExitStack) -> Ask:
    """Whom to ask; what it holds open is closed with `stack`."""
    if not args.local:
        named = settings.server if args.server is None else args.server
        url = server_url(settings) if named is None else named
        client = stack.enter_context(open_client(settings, url))
        found = client.identify()
        if isinstance(found, Suture) and _serves(found, settings):
            return lambda body: when_loaded(client, body)
        if named is not None:
            raise ServerFailure(f"{url}: {_why_not(found)}")
        if not isinstance(found, Absent):
            print(f"suture: {url}: {_why_not(found)}: completing locally", file=sys.stderr)
    require_llama_cpp()
    # Only here: asking a server needs none of it.
    from suture.server.local import local_completer

    settings = with_model_file(settings)
    return in_process(stack, local_completer(settings), settings)


def _serves(found: Suture, settings: Settings) -> bool:
    """Whether it serves the model asked for; none asked for, any will do."""
    name, path = found.model_names
    wanted = settings.model
    return wanted is None or wanted == name or os.path.abspath(wanted) == path


def _why_not(found: Absent | Stranger | Suture) -> str:
    match found:
        case Absent():
            return "no server"
        case Stranger():
            return found.what
        case Suture():
            return f"another model: {found.model_names[0]}"


def server_url(settings: Settings) -> str:
    """Where a server with these settings is reached from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return settings.url_at(host, settings.port)


def open_client(settings: Settings, url: str) -> Client:
    """A client with the settings' key and certificate."""
    return Client(url, _first_key(settings), _trust(settings))


def _first_key(settings: Settings) -> str | None:
    return next(iter(read_api_keys(settings)), None)


def _trust(settings: Settings) -> ssl.SSLContext | bool:
    if settings.tls_cert is None:
        return True
    try:
        return ssl.create_default_context(cafile=settings.tls_cert)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(f"--tls-cert: {settings.tls_cert}: {error.strerror}") from None


def when_loaded(client: Client, body: Json) -> Iterator[Json]:
    """The events of `body`, from a server that may still be loading or be full."""
    deadline = time.monotonic() + LOADING_TIMEOUT_S
    while True:
        try:
            yield from client.infill(body)
            return
        except Unavailable as error:
            # Raised before the first event, so nothing is said twice.
            if time.monotonic() + error.retry_after > deadline:
                raise
            time.sleep(error.retry_after)


def in_process(
    stack: ExitStack, opened: AbstractContextManager[Completer], settings: Settings
) -> Ask:
    """Ask a completer in this process, which `opened` gives ready."""
    completer = stack.enter_context(opened)
    runner = stack.enter_context(asyncio.Runner())

    def ask(body: Json) -> Iterator[Json]:
        asked = LlamaCppDialect().parse(body, settings, completer.model)
        chunks = completer.complete(asked.request)
        try:
            events = stream_events(chunks, asked)
            while (raw := runner.run(_next(events))) is not None:
                yield from parse_events([raw])
        finally:
            runner.run(chunks.aclose())

    return ask


async def _next(events: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(events, None)


def one(ask: Ask, body: Json, cursor: Cursor, args: argparse.Namespace) -> int:
    """Complete once and print it in the way asked for."""
    answer = _complete(ask, body, _write if args.stream else None)
    if args.json:
        _write(json.dumps(answer, ensure_ascii=False) + "\n")
    elif args.diff:
        edit = answer["suture"]["edit"]
        name = (cursor.path or "stdin").lstrip("/")
        _write(unified_diff(cursor.prefix, cursor.suffix, edit["text"], edit["delete_after"], name))
        return exits.OK if edit["text"] else _status(answer)
    elif not args.stream:
        _write(answer["content"])
    return _status(answer)


def candidates(ask: Ask, body: Json, args: argparse.Namespace) -> int:
    """Complete several times; a line of JSON each."""
    answers: list[Json] = []
    for i in range(args.n):
        drawn = {"temperature": CANDIDATE_TEMPERATURE, "seed": i} if i else {}
        answers.append(_complete(ask, body | drawn, None))
        line = answers[-1] if args.json else {"text": answers[-1]["content"]}
        _write(json.dumps(line, ensure_ascii=False) + "\n")
    return exits.OK if any(answer["content"] for answer in answers) else _status(answers[-1])


def _complete(ask: Ask, body: Json, tell: Callable[[str], None] | None) -> Json:
    """The whole answer: the last event with all of the text. `tell` gets each text as it comes."""
    texts: list[str] = []
    last: Json = {}
    for last in ask(body):
        texts.append(last.get("content", ""))
        if tell is not None:
            tell(texts[-1])
    if not last.get("stop"):
        raise ServerFailure("the answer broke off")
    return last | {"content": "".join(texts)}


def _status(answer: Json) -> int:
    if answer["content"]:
        return exits.OK
    print(f"suture: no text: {answer['suture']['reason'] or 'EMPTY'}", file=sys.stderr)
    return exits.NO_TEXT


def _write(text: str) -> None:
    # Bytes: no locale decides on the encoding, and no platform on line ends.
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
