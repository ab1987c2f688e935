"""The files of a workspace, as far as one step may look at them.

C4  No file outside the workspace's folders is read, over whatever links it is reached, and none
    that `exclusions.py` leaves out or git ignores.
C5  A step makes at most `MAX_LOOKUPS` look-ups, and reads `MAX_FILES` files and `MAX_READ` bytes
    and one file more. Nothing is searched for: what is looked at was named.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import stat
from collections.abc import Iterator

from suture.lsp.context.exclusions import MAX_BYTES, is_left_out
from suture.lsp.context.git_ignored import GitIgnored
from suture.lsp.context.imports import Mention
from suture.lsp.context.parsed import Stamp
from suture.lsp.context.workspace import Folder, Workspace
from suture.lsp.settings import Options

MAX_LOOKUPS = 600
MAX_FILES = 40
MAX_READ = 2 * 1024 * 1024
# Of one directory: its entries looked at, and its files that may be meant.
MAX_ENTRIES = 200
MAX_MEANT = 12


class Disk:
    """The disk in one step (C4, C5)."""

    def __init__(self, workspace: Workspace, options: Options, ignored: GitIgnored) -> None:
        self._workspace = workspace
        self._options = options
        self._ignored = ignored
        self._directories: dict[str, bool] = {}
        self._stats: dict[str, os.stat_result | None] = {}
        self._real_roots = {one.root: os.path.realpath(one.root) for one in workspace.folders}
        self.n_lookups = 0
        self.n_files = 0
        self.n_bytes = 0

    def find(self, folder: Folder, mention: Mention, ending: str) -> list[str]:
        """The files that a mention may mean: the first of its places that is there.

        Of a directory's files only those with this ending are meant.
        """
        for place in mention:
            path = posixpath.normpath(posixpath.join(folder.root, place))
            if place.endswith("/"):
                if self._is_directory(path):
                    return list(self._files_in(path, ending))
            elif self._is_directory(posixpath.dirname(path)) and self._look(path) is not None:
                return [path]
        return []

    def may_show(self, path: str) -> bool:
        """Whether a file may be shown by its path, and by what it is called behind a link."""
        return self._may_name(path) and self._may_name(os.path.realpath(path))

    def _may_name(self, path: str) -> bool:
        """One outside all folders is not git's."""
        if is_left_out(path, self._options):
            return False
        folder = self._workspace.folder_of(path)
        return folder is None or not self._ignored.has(folder.root, folder.inside(path))

    def stamp(self, path: str) -> Stamp | None:
        """What a file is like now; None where it may not be shown (C4)."""
        told = self._look(path)
        real = os.path.realpath(path)
        if told is None or not 0 < told.st_size <= MAX_BYTES or not self._is_inside(real):
            return None
        if not self.may_show(path):
            return None
        return told.st_mtime_ns, told.st_size

    def read(self, path: str) -> str | None:
        """The text of a file that has a stamp; None where that is none, or so much was read."""
        if self.n_files >= MAX_FILES or self.n_bytes >= MAX_READ:
            return None
        self.n_files += 1
        try:
            with open(path, "rb") as file:
                raw = file.read(MAX_BYTES + 1)
            self.n_bytes += len(raw)
            return raw.decode("utf-8-sig")
        except (OSError, ValueError):
            return None

    def _is_inside(self, real: str) -> bool:
        return any(real.startswith(root.rstrip("/") + "/") for root in self._real_roots.values())

    def _is_directory(self, path: str) -> bool:
        """Whether a directory is there: none is in one that is not."""
        known = self._directories.get(path)
        if known is None:
            is_root = path.rstrip("/") in self._real_roots
            known = is_root or (len(path) > 1 and self._is_directory(posixpath.dirname(path)))
            if known and not is_root:
                told = self._stat(path)
                known = told is not None and stat.S_ISDIR(told.st_mode)
            self._directories[path] = known
        return known

    def _look(self, path: str) -> os.stat_result | None:
        told = self._stat(path)
        return told if told is not None and stat.S_ISREG(told.st_mode) else None

    def _stat(self, path: str) -> os.stat_result | None:
        if path not in self._stats and self.n_lookups < MAX_LOOKUPS:
            self.n_lookups += 1
            try:
                self._stats[path] = os.stat(path)
            except (OSError, ValueError):
                self._stats[path] = None
        return self._stats.get(path)

    def _files_in(self, directory: str, ending: str) -> Iterator[str]:
        """The files of a directory that were changed last."""
        if not self._is_inside(os.path.realpath(directory) + "/"):
            return
        found: list[tuple[int, str]] = []
        try:
            with os.scandir(directory) as entries:
                for entry in itertools.islice(entries, MAX_ENTRIES):
                    if entry.name.endswith(ending) and (told := self._look(entry.path)) is not None:
                        found.append((-told.st_mtime_ns, entry.path))
        except OSError:
            return
        yield from (path for _, path in sorted(found)[:MAX_MEANT])
