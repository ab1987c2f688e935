"""One look at the files that matter now: what it is to see, and what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from suture.lsp.context.chunks import Chunk, around, joined
from suture.lsp.context.disk import Disk
from suture.lsp.context.git_ignored import GitIgnored
from suture.lsp.context.parsed import Parsed, Stamp
from suture.lsp.context.workspace import Workspace
from suture.lsp.settings import Options

if TYPE_CHECKING:
    from suture.lsp.context.sources import Sources


@dataclass(frozen=True, slots=True)
class Opened:
    """An open document at one moment. Its path is that of its file, or its URI if it has none."""

    path: str
    language: str
    stamp: Stamp
    text: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What looks remember for the next one."""

    parsed: Parsed = field(default_factory=Parsed)
    ignored: GitIgnored = field(default_factory=GitIgnored)


@dataclass(frozen=True, slots=True)
class Found:
    """The text around the cursor; the chunks of files that were left, and of those that matter,
    the best one last; and files that were shown before, and must not be any more."""

    at_hand: Chunk
    left: tuple[Chunk, ...] = ()
    neighbours: tuple[Chunk, ...] = ()
    forbidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """From a document at hand with the cursor in a row, at the documents that are open.

    `left` are documents that were left or edited, and in which row, if that is known; `closed`
    those of them that are open no more, as they were. `shown` are files that are sent now.
    """

    workspace: Workspace
    options: Options
    at_hand: str
    row: int
    opened: Mapping[str, Opened]
    left: Mapping[str, int | None]
    closed: Mapping[str, Opened] = field(default_factory=dict)
    shown: Sequence[str] = ()

    def take(self, memory: Memory) -> Found:
        """What there is to see. It reads files and parses them: call it on a thread."""
        # Not before: parsers take memory, and some editors never have anything to look at.
        from suture.lsp.context.neighbours import Neighbours
        from suture.lsp.context.sources import Sources

        context = self.options.context
        folder = self.workspace.folder_of(self.at_hand) if context.neighbours else None
        disk = Disk(self.workspace, self.options, memory.ignored)
        sources = Sources({**self.closed, **self.opened}, disk, memory.parsed)
        # Before others are looked for: what could not be looked at must not be sent on.
        forbidden = frozenset(
            path for path in self.shown if not self._may_stay(path, disk, sources)
        )
        neighbours = Neighbours(self.workspace, disk, sources)
        maybe = [path for path in self.opened if path != self.at_hand] if context.open_files else []
        at_hand = sources.at_hand(self.at_hand)
        own = joined(at_hand.lines, around(at_hand.lines, self.row))
        found = neighbours.of(at_hand, self.row, folder, maybe)
        left = [neighbours.left(*one) for one in self.left.items()] if context.open_files else []
        return Found(
            Chunk(self.at_hand, "", own),
            tuple(one for one in left if one is not None),
            tuple(found),
            forbidden,
        )

    def _may_stay(self, path: str, disk: Disk, sources: Sources) -> bool:
        """Whether a file that is sent may still be; with no disk to read that is told by names."""
        is_read = self.options.context.neighbours or path in self.opened
        return sources.has(path) if is_read else disk.may_show(path)
