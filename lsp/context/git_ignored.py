"""Which files git ignores: they are built, installed, or someone's own.

What `.gitignore` files say is read with `pathspec`, which has git's rules for one of them. Here are
those for several: the deepest that says anything of a path decides, then the repository's own
`info/exclude`, and nothing inside a directory that is ignored is ever not. What git ignores for a
user everywhere (`core.excludesFile`) is not looked at.

Where it is not sure, a file is ignored. The rules are anybody's, and are matched by a search that
may try all ways: of a rule with many stars only what stands before them counts, and what has a very
long path is ignored. So is all below rules that cannot be read, or are too many.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MAX_BYTES = 64 * 1024
_MAX_STARS = 3
_MAX_PATH = 512
_STARS = re.compile(r"\*+")
_SPECIAL = re.compile(r"[*?\[\\]")
_EVERYTHING = ("*",)
_MAX_REMEMBERED = 64
# A workspace may be a folder deep inside its repository.
_MAX_ABOVE = 8

_Stamp = tuple[int, int]


class GitIgnored:
    """What git ignores; remembers the rules that it has read for as long as they stay."""

    def __init__(self) -> None:
        self._rules: dict[str, tuple[_Stamp, GitIgnoreSpec]] = {}
        self._own: dict[str, str] = {}

    def has(self, root: str, path: str) -> bool:
        """Whether a file of the folder `root` is ignored; `path` is inside it."""
        top = _repository(root)
        whole = posixpath.relpath(posixpath.join(root, path), top)
        parts = whole.split("/")
        return len(whole) > _MAX_PATH or any(
            self._says(top, parts[:n], is_directory=n < len(parts))
            for n in range(1, len(parts) + 1)
        )

    def _says(self, top: str, parts: list[str], *, is_directory: bool) -> bool:
        for depth in range(len(parts) - 1, -1, -1):
            spec = self._spec(posixpath.join(top, *parts[:depth], ".gitignore"))
            if spec is None:
                continue
            include = _included(spec, parts[depth:], is_directory)
            if include is not None:
                return include
        if top not in self._own:
            self._own[top] = posixpath.join(_git_directory(top), "info", "exclude")
        own = self._spec(self._own[top])
        return own is not None and bool(_included(own, parts, is_directory))

    def _spec(self, path: str) -> GitIgnoreSpec | None:
        try:
            told = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return _made(_EVERYTHING)
        if not stat.S_ISREG(told.st_mode):
            return _made(_EVERYTHING)
        stamp = told.st_mtime_ns, told.st_size
        if path in self._rules and self._rules[path][0] == stamp:
            return self._rules[path][1]
        spec = _made(_rules_in(path))
        while len(self._rules) >= _MAX_REMEMBERED:
            del self._rules[next(iter(self._rules))]
        self._rules[path] = stamp, spec
        return spec


def _made(lines: Sequence[str]) -> GitIgnoreSpec:
    # Not before: most of the time nobody needs it.
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # one rule is none: git leaves that one out, and so it is here
        return GitIgnoreSpec.from_lines(filter(_is_rule, lines))


def _included(spec: GitIgnoreSpec, parts: Sequence[str], is_directory: bool) -> bool | None:
    """Whether rules include a path; None where they say nothing of it."""
    return spec.check_file("/".join(parts) + ("/" if is_directory else "")).include


def _rules_in(path: str) -> Sequence[str]:
    """The rules of a file, or one of everything where they are not all known."""
    try:
        with open(path, "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError:
        return _EVERYTHING
    if len(raw) > _MAX_BYTES:
        return _EVERYTHING
    lines = raw.decode("utf-8-sig", "surrogateescape").splitlines()
    return [rule for line in lines if (rule := _quick(line)) is not None]


def _quick(line: str) -> str | None:
    """A rule that is matched soon, and at least what the one in a line is; None for none."""
    if len(_STARS.findall(line)) <= _MAX_STARS:
        return line
    return None if line.startswith("!") else _SPECIAL.split(line, maxsplit=1)[0] + "*"


def _is_rule(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _git_directory(top: str) -> str:
    """Where git keeps what all work trees of a repository have in common."""
    place = posixpath.join(top, ".git")
    told = _line_of(place)
    if told.startswith("gitdir:"):  # a work tree that stands beside the repository
        place = posixpath.join(top, told.removeprefix("gitdir:").strip())
    return posixpath.join(place, _line_of(posixpath.join(place, "commondir")))


def _line_of(path: str) -> str:
    """What a small file says; nothing where there is none."""
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read(8 * _MAX_PATH).strip()
    except (OSError, ValueError):
        return ""


def _repository(root: str) -> str:
    """The directory above or at a folder in which its repository begins; else the folder."""
    place = root
    for _ in range(_MAX_ABOVE):
        if os.path.exists(posixpath.join(place, ".git")):
            return place
        place = posixpath.dirname(place)
    return root
