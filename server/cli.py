"""The command line: picks the verb, and turns what it raises into one line and an exit status."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from suture.server.commands import exits
from suture.server.errors import (
    Excluded,
    InfillUnsupported,
    OutputFull,
    RequestError,
    SetupError,
    SutureError,
)
from suture.server.settings import debug_requested
from suture.server.version import VERSION

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The modules of the verbs. Those of `lsp` stand above this package, which imports nothing of it.
VERBS = {
    **{
        verb: f"suture.server.commands.{verb}"
        for verb in ("serve", "complete", "explain", "pull", "models", "doctor")
    },
    "lsp": "suture.lsp.command",
    "stats": "suture.lsp.stats_command",
}


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(exits.SETUP, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    # Only what is needed: an editor waits for its bridge to start, and a shell for the version.
    verb = argv[0] if argv else ""
    named = {verb: VERBS[verb]} if verb in VERBS else {} if verb == "--version" else VERBS
    verbs = {verb: importlib.import_module(module) for verb, module in named.items()}
    try:
        args = build_parser(verbs).parse_args(argv)
    except SystemExit as stop:  # after --help, --version and usage errors
        return stop.code if isinstance(stop.code, int) else exits.SETUP
    try:
        status = int(verbs[args.verb].run(args))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # who reads has enough
        return exits.OK
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            _drop_output()
            error = OutputFull(f"cannot write: {error.strerror}")
        if debug_requested():
            traceback.print_exc()
        print(f"suture: {_one_line(error)}", file=sys.stderr)
        return exit_status(error)


def _drop_output() -> None:
    """What is left to write is not written: the exit flush must not complain about it either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser(verbs: dict[str, ModuleType]) -> Parser:
    """The parser of all verbs."""
    parser = Parser(
        prog="suture", description="Code completion with token healing.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"suture {VERSION}")
    commands = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, module in verbs.items():
        verb = commands.add_parser(
            name, help=module.SUMMARY, description=module.__doc__, allow_abbrev=False
        )
        module.add_arguments(verb)
    return parser


def exit_status(error: Exception) -> int:
    """The status that an error ends a command with."""
    if isinstance(error, InfillUnsupported | Excluded):
        return exits.NO_TEXT
    if isinstance(error, SetupError | RequestError):
        return exits.SETUP
    return exits.FAILURE


def _one_line(error: Exception) -> str:
    if isinstance(error, SutureError):
        code = "" if error.reason is None else f"{error.reason}: "
        return " ".join(f"{code}{error}".split())
    detail = " ".join(str(error).split())
    return f"internal error: {type(error).__name__}: {detail} (SUTURE_DEBUG=1 shows where)"
