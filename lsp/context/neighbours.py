"""The files that matter to the document at hand, and what is shown of each. For one thread.

They are those that it names, its counterpart, and what defines a name near the cursor: other open
documents, files of its directory where a language has it so. A file that was named is shown if
anything of it is used, one that only may be meant if it defines a name near the cursor.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from suture.lsp.context.chunks import Chunk, around, joined
from suture.lsp.context.counterparts import counterparts
from suture.lsp.context.definitions import names_of
from suture.lsp.context.disk import Disk
from suture.lsp.context.excerpts import Names, excerpt, names_near
from suture.lsp.context.imports import mentions
from suture.lsp.context.sources import Source, Sources
from suture.lsp.context.workspace import Folder, Workspace

_NOTHING = Names(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Finds them for one step."""

    workspace: Workspace
    disk: Disk
    sources: Sources

    def of(
        self, at_hand: Source, row: int, folder: Folder | None, maybe: Iterable[str]
    ) -> list[Chunk]:
        """A chunk of each file that matters to a document with the cursor in this row.

        The one that matters most stands last. `maybe` are files that only may be meant. What the
        document names is looked for in `folder`.
        """
        names = names_near(at_hand.lines, row, names_of(at_hand.definitions))
        found: dict[str, tuple[int, int, Chunk]] = {}
        named = () if folder is None else self._named(at_hand, folder)
        for path, is_sure in (*named, *((path, False) for path in maybe)):
            if path in found or path == at_hand.path:
                continue
            if (source := self.sources.of(path)) is None:
                continue
            shown = excerpt(source.lines, source.definitions, names, path)
            if shown.text and (shown.n_used if is_sure else shown.n_near):
                chunk = Chunk(path, self.workspace.name_of(path), shown.text)
                found[path] = shown.n_near, shown.n_used, chunk
        # Of equals the first one named is the last one shown.
        ranked = sorted(reversed(found.values()), key=lambda one: one[:2])
        return [one for *_, one in ranked]

    def left(self, path: str, place: int | None) -> Chunk | None:
        """What is shown of a document that was left at a place; without one, its heads."""
        source = self.sources.of(path)
        if source is None:
            return None
        if place is None and source.definitions:
            text = excerpt(source.lines, source.definitions, _NOTHING, path).text
        else:
            starts = (one.start for one in source.definitions)
            text = joined(source.lines, around(source.lines, place or 0, starts))
        return Chunk(path, self.workspace.name_of(path), text) if text else None

    def _named(self, at_hand: Source, folder: Folder) -> Iterator[tuple[str, bool]]:
        """The files of its folder that a document may mean, and whether it does."""
        inside = folder.inside(at_hand.path)
        text = "\n".join(at_hand.lines)
        ending = posixpath.splitext(inside)[1]
        seen: set[str] = set()
        for mention in (*mentions(at_hand.grammar, inside, text), *counterparts(inside)):
            for path in self.disk.find(folder, mention, ending):
                if path not in seen:
                    seen.add(path)
                    yield path, not mention[0].endswith("/")
