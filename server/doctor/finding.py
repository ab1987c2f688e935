"""One thing that was looked at, how it is, and what to do about it."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["ok", "note", "problem"]
# fmt: off
Topic = Literal[
    "install", "build", "gpu", "threads", "cache", "model", "memory", "port", "server",
    "editor", "files", "settings", "proxy",
]
# fmt: on


@dataclass(frozen=True, slots=True)
class Finding:
    """`fix` is a line for a shell that mends a `problem` or what a `note` is about.

    A problem is what keeps Suture from serving, or what it has being seen by others; a note what
    makes it slower or less than it could be.
    """

    kind: Kind
    topic: Topic
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.kind:8s}{self.text}" + (f"\n        -> {self.fix}" if self.fix else "")


def shell(*words: str | Path) -> str:
    """A command line out of words, quoted where a shell needs it."""
    return shlex.join(str(word) for word in words)


def suture(*arguments: str | Path) -> str:
    """A command line of ours that works in the shell that the user has now."""
    return shell(*_command(), *arguments)


def pip_install(*arguments: str) -> str:
    """A command line that installs into the environment that we run in."""
    return shell(sys.executable, "-m", "pip", "install", *arguments)


def _command() -> Sequence[str]:
    beside = Path(sys.executable).with_name("suture")
    if shutil.which("suture"):
        return ("suture",)
    return (str(beside),) if beside.exists() else (sys.executable, "-m", "suture.server")
