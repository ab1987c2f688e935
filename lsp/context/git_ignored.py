"""Which files git ignores: they are built, installed, or someone's own.

What `.gitignore` files say is read with `pathspec`, which has git's rules for one of them. Here are
those for several: the deepest that says anything of a path decides, and nothing inside a directory
that is ignored is ever not.

The rules are anybody's, and are matched by a search that may try all ways: a rule with many stars
is none, and what has a very long path is ignored.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_MAX_BYTES = 64 * 1024
_MAX_STARS = 3
_MAX_PATH = 512
_STARS = re.compile(r"\*+")
_MAX_REMEMBERED = 64
# A workspace may be a folder deep inside its repository.
_MAX_ABOVE = 8

_Stamp = tuple[int, int]


class GitIgnored:
    """What git ignores; remembers the rules that it has read for as long as they stay."""

    def __init__(self) -> None:
        self._rules: dict[str, tuple[_Stamp, GitIgnoreSpec]] = {}

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
            path = "/".join(parts[depth:]) + ("/" if is_directory else "")
            include = spec.check_file(path).include
            if include is not None:
                return include
        return False

    def _spec(self, path: str) -> GitIgnoreSpec | None:
        try:
            told = os.stat(path)
            stamp = told.st_mtime_ns, told.st_size
            if not 0 < told.st_size <= _MAX_BYTES:
                return None
            if path in self._rules and self._rules[path][0] == stamp:
                return self._rules[path][1]
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line for line in file.read().splitlines() if _is_quick(line)]
        except OSError:
            return None
        # Not before: most of the time nobody needs it.
        from pathspec import GitIgnoreSpec

        try:
            spec = GitIgnoreSpec.from_lines(lines)
        except ValueError:  # one rule is none: git leaves that one out, and so it is here
            spec = GitIgnoreSpec.from_lines(filter(_is_rule, lines))
        while len(self._rules) >= _MAX_REMEMBERED:
            del self._rules[next(iter(self._rules))]
        self._rules[path] = stamp, spec
        return spec


def _is_quick(line: str) -> bool:
    return len(_STARS.findall(line)) <= _MAX_STARS


def _is_rule(line: str) -> bool:
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _repository(root: str) -> str:
    """The directory above or at a folder in which its repository begins; else the folder."""
    place = root
    for _ in range(_MAX_ABOVE):
        if os.path.exists(posixpath.join(place, ".git")):
            return place
        place = posixpath.dirname(place)
    return root
