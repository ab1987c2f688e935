"""The folders of a workspace, and how files are named in it. PURE."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from suture.lsp.gates import path_of


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the workspace: an absolute path, and the name that the user knows it by."""

    root: str
    name: str

    def has(self, path: str) -> bool:
        return path.startswith(self.root.rstrip("/") + "/")

    def inside(self, path: str) -> str:
        """A path of this folder as it is inside."""
        return path[len(self.root.rstrip("/")) + 1 :]


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders that are open."""

    folders: tuple[Folder, ...] = ()

    def folder_of(self, path: str) -> Folder | None:
        """The innermost folder that has a file."""
        having = (folder for folder in self.folders if folder.has(path))
        return max(having, key=lambda folder: len(folder.root), default=None)

    def name_of(self, path: str) -> str:
        """A file as it is named inside the workspace; one from elsewhere by its last part."""
        folder = self.folder_of(path)
        if folder is None:
            # One that is in no file yet has only a URI.
            return posixpath.basename(path if path.startswith("/") else path_of(path))
        inside = folder.inside(path)
        return inside if len(self.folders) == 1 else f"{folder.name}/{inside}"


def workspace_of(folders: Iterable[tuple[str, str]]) -> Workspace:
    """The workspace of folders with a URI and a name; only those on this disk are any.

    The root of the disk is none: all files would be inside.
    """
    found = ((path_of(uri).rstrip("/"), name) for uri, name in folders if uri.startswith("file:"))
    return Workspace(
        tuple(Folder(root, name or posixpath.basename(root)) for root, name in found if root)
    )
