"""A programmer at work, key by key: what stands before and after the cursor at each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness.texts import ROOT

Action = Literal["type", "enter", "pair", "over", "backspace", "jump"]

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = frozenset(_PAIRS.values())
_TYPO_EVERY = 35

# Files of this project, how the first line begins that is typed, and how many are: twenty.
TYPED = (
    ("healing/boundary.py", '    spelled = b"".join', 7),
    ("server/models/store.py", "    verified = verified_as(", 6),
    ("healing/canonical.py", "        known = self._cached.get(", 7),
)


@dataclass(frozen=True, slots=True)
class Key:
    """The document after a key, parted at the cursor."""

    prefix: str
    suffix: str
    action: Action


def all_traces(n_before: int, n_after: int) -> list[list[Key]]:
    """For each of the files all keys, with so many lines around what is typed."""
    return [list(_trace_in(*typed, n_before, n_after)) for typed in TYPED]


def _trace_in(
    name: str, beginning: str, n_lines: int, n_before: int, n_after: int
) -> Iterator[Key]:
    lines = (ROOT / name).read_text("utf-8").splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if line.startswith(beginning))
    start = max(first - n_before, 0)
    text = "".join(lines[start : first + n_lines + n_after])
    return type_lines(text, first - start, n_lines)


def type_lines(text: str, first: int, n_lines: int) -> Iterator[Key]:
    """The lines from `first` on are typed into the file that lacks them, in an editor's manner.

    A bracket brings its partner, which is typed over; Enter brings the next line's indentation;
    now and then a key is wrong and taken back; halfway the cursor jumps up some lines, adds a
    comment and comes back.
    """
    lines = text.splitlines(keepends=True)
    before = "".join(lines[:first])
    after = "".join(lines[first + n_lines :])
    typed = "".join(lines[first : first + n_lines]).rstrip("\n")
    suffix = "\n" + after
    # The editor has indented the line already.
    at, n_auto, n_keys = len(typed) - len(typed.lstrip(" ")), 0, 0
    prefix = before + typed[:at]
    has_jumped = False
    while at < len(typed):
        char = typed[at]
        rest = typed[at:]
        n_keys += 1
        if not has_jumped and at > len(typed) // 2 and char == "\n":
            has_jumped = True
            yield from _jump(prefix, suffix)
        if n_keys % _TYPO_EVERY == 0 and char.isalpha():
            yield Key(prefix + "q", suffix, "type")
            yield Key(prefix, suffix, "backspace")
        if char == "\n":
            indentation = rest[1 : 1 + len(rest[1:]) - len(rest[1:].lstrip(" "))]
            prefix += "\n" + indentation
            at += 1 + len(indentation)
            yield Key(prefix, suffix, "enter")
        elif char in _PAIRS and suffix[:1] in ("\n", *_CLOSERS):
            prefix, suffix = prefix + char, _PAIRS[char] + suffix
            n_auto += 1
            at += 1
            yield Key(prefix, suffix, "pair")
        elif char in _CLOSERS and n_auto and suffix.startswith(char):
            prefix, suffix = prefix + char, suffix[1:]
            n_auto -= 1
            at += 1
            yield Key(prefix, suffix, "over")
        else:
            prefix += char
            at += 1
            yield Key(prefix, suffix, "type")


def _jump(prefix: str, suffix: str) -> Iterator[Key]:
    """A comment is typed at the end of a line some lines above."""
    lines = prefix.split("\n")
    above, below = "\n".join(lines[:-6]), "\n" + "\n".join(lines[-6:])
    comment = "  # see below"
    for n_chars in range(len(comment) + 1):
        yield Key(above + comment[:n_chars], below + suffix, "jump" if not n_chars else "type")
