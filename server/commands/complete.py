"""`suture complete`: fill the hole at a cursor and print what goes there, byte for byte.

A running server is asked if it is Suture; otherwise this process loads the model (`asking.py`).
Greedy; with -n, candidates are drawn from one reading of the prompt, and the best comes first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from suture.server.client import ServerFailure
from suture.server.commands import exits
from suture.server.commands.asking import (
    Asked,
    Json,
    add_question,
    choose,
    number,
    read_question,
)
from suture.server.commands.cursor import Cursor
from suture.server.commands.diff import unified_diff
from suture.server.commands.flags import settings_of
from suture.server.errors import SetupError
from suture.server.request import MAX_CANDIDATES

SUMMARY = "complete at a cursor in a file"

DEFAULT_MAX_TOKENS = 128
CANDIDATE_TEMPERATURE = 0.4

# An /infill body to the events of its stream.
Ask = Callable[[Json], Iterator[Json]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_question(parser, DEFAULT_MAX_TOKENS)
    parser.add_argument("-n", type=_count, default=1, metavar="N", help="candidates, as JSON lines")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--stream", action="store_true", help="print text as it comes")
    how.add_argument("--json", action="store_true", help="print the whole answer")
    how.add_argument("--diff", action="store_true", help="print a unified diff of the file")


def _count(text: str) -> int:
    n = number(text)
    if not 1 <= n <= MAX_CANDIDATES:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MAX_CANDIDATES}")
    return n


def run(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    if args.n > 1 and (args.stream or args.diff):
        raise SetupError("-n prints JSON lines: it does not go with --stream or --diff")
    cursor, body = read_question(args)
    with ExitStack() as stack:
        asked = choose(args, settings, stack)
        if args.n > 1:
            return candidates(asked, body, args)
        return one(asked.complete, body, cursor, args)


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


def candidates(asked: Asked, body: Json, args: argparse.Namespace) -> int:
    """Complete several times; a line of JSON for each text that came of it."""
    drawn = {"n_cmpl": args.n, "temperature": CANDIDATE_TEMPERATURE, "seed": 0}
    answers = asked.candidates(body | drawn)
    for answer in answers:
        line = answer if args.json else {"text": answer["content"]}
        _write(json.dumps(line, ensure_ascii=False) + "\n")
    # Those without text come last.
    return _status(answers[0])


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
