"""Where one types and sees ghost text: what is measured of each editor."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.tables import percentile
from harness.texts import ROOT
from harness.trace import TYPED

Key = str
"""What one key writes: a character, or a line end with the indentation that editors add."""


@dataclass(frozen=True, slots=True)
class Ghost:
    """What is shown behind the cursor, and how many milliseconds after its key.

    `is_rest` says that it was shown before already, and one has typed some of it.
    """

    text: str
    ms: float
    is_rest: bool = False


def is_rest(before: str, key: Key, shown: str) -> bool:
    """Whether what is shown behind a key was shown before it, or has grown out of that."""
    return before != "" and (key + shown).startswith(before)


class FrontEnd(Protocol):
    """One document after the other, each typed in at its cursor."""

    name: str

    def open(self, before: str, after: str) -> None:
        """Show a new document, the cursor between the two, to insert."""

    def press(self, key: Key) -> Ghost | None:
        """What is shown for this key, as soon as it is there; None where nothing comes."""


def keys_of(text: str) -> list[Key]:
    return re.findall(r"\n *|.", text)


@dataclass(frozen=True, slots=True)
class Typing:
    """Lines that a file lacks, to be typed where they were."""

    name: str
    before: str
    typed: str
    after: str

    @property
    def keys(self) -> list[Key]:
        return keys_of(self.typed)

    @property
    def n_lines(self) -> int:
        return self.typed.count("\n") + 1


def typings(n_lines: int, n_before: int, n_after: int) -> list[Typing]:
    """At most `n_lines` of each of the files that are typed for the other benchmark of keys."""
    return [_typing(*typed, n_lines, n_before, n_after) for typed in TYPED]


def _typing(
    name: str, beginning: str, n_all: int, n_lines: int, n_before: int, n_after: int
) -> Typing:
    lines = (ROOT / name).read_text("utf-8").splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if line.startswith(beginning))
    end = first + min(n_lines, n_all)
    typed = "".join(lines[first:end]).removesuffix("\n")
    # The editor has indented the first line already.
    indentation = typed[: len(typed) - len(typed.lstrip(" "))]
    return Typing(
        name,
        "".join(lines[max(first - n_before, 0) : first]) + indentation,
        typed[len(indentation) :],
        "\n" + "".join(lines[end : end + n_after]),
    )


@dataclass(slots=True)
class Waits:
    """The milliseconds of those keys at which something was shown, and how many had nothing."""

    ms: list[float]
    n_nothing: int = 0

    def add(self, ghost: Ghost | None) -> None:
        if ghost is None:
            self.n_nothing += 1
        else:
            self.ms.append(ghost.ms)

    def cells(self) -> Sequence[str]:
        """How many keys, at how many nothing came, p50, p95 and mean."""
        n_keys = str(len(self.ms) + self.n_nothing)
        if not self.ms:
            return n_keys, str(self.n_nothing), "", "", ""
        shown = percentile(self.ms, 50), percentile(self.ms, 95), statistics.mean(self.ms)
        return n_keys, str(self.n_nothing), *(f"{ms:.0f}" for ms in shown)
