"""One list of chunks, changed as little as can be: the server has read it. PURE.

The list has two parts. First the files that were left of late, then the neighbours of the document
at hand: what stands last matters most, as the server drops the first where its room is small. While
one edits a document only the second part changes.

C2  Of each part, what is there already and still wanted keeps its order, and new chunks stand
    behind: the list begins as it began, up to the first chunk that went or has another text.
C3  At most one chunk of a file, none of the document at hand, no two that say much the same, and
    none that says for the most part what stands around the cursor.
C7  No more chunks than are allowed, and no more than `MAX_TEXT` characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from suture.lsp.context.chunks import Chunk, share_in, similarity

MAX_TEXT = 48_000
# What is as similar as this to a newer chunk of another file is a copy of it.
MAX_SIMILARITY = 0.9
# A model would go on as the copy does; the server leaves such chunks out, too.
MAX_SHARE = 0.5


class Recent:
    """The chunks of files that were left of late; the list's first part."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        # Paths in the order of their use, the latest last.
        self._used: dict[str, None] = {}

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return tuple(self._chunks)

    def put(self, chunk: Chunk, capacity: int) -> None:
        """A file was left: the chunk is the newest, unless it is there already (C2, C3)."""
        if chunk not in self._chunks:
            self.keep(lambda one: one.path != chunk.path and not _is_copy(one, chunk))
            self._chunks.append(chunk)
        self._used.pop(chunk.path, None)
        self._used[chunk.path] = None
        kept = set(list(self._used)[-capacity:] if capacity else ())
        self.keep(lambda one: one.path in kept)

    def keep(self, is_kept: Callable[[Chunk], bool]) -> None:
        """Forget all other chunks."""
        self._chunks = [one for one in self._chunks if is_kept(one)]
        paths = {one.path for one in self._chunks}
        self._used = {path: None for path in self._used if path in paths}

    def newest(self, n: int, n_chars: int, without: AbstractSet[str]) -> list[Chunk]:
        """The `n` used last that have no more characters, and none of some paths."""
        chunks = {one.path: one for one in self._chunks if one.path not in without}
        kept: set[str] = set()
        for path in reversed(self._used):
            if path in chunks and len(kept) < n:
                n_chars -= len(chunks[path].text)
                if n_chars < 0:
                    break
                kept.add(path)
        return [one for one in chunks.values() if one.path in kept]


def _is_copy(old: Chunk, new: Chunk) -> bool:
    return similarity(old.text, new.text) > MAX_SIMILARITY


def _says_again(chunk: Chunk, at_hand: Chunk) -> bool:
    return share_in(chunk.text, at_hand.text) > MAX_SHARE


def in_place(old: Sequence[Chunk], wanted: Sequence[Chunk]) -> list[Chunk]:
    """The chunks that are wanted, those of the old list where they are (C2)."""
    kept = [one for one in old if one in wanted]
    return [*kept, *(one for one in wanted if one not in kept)]


def arranged(
    recent: Recent,
    old: Sequence[Chunk],
    neighbours: Sequence[Chunk],
    at_hand: Chunk,
    max_chunks: int,
) -> tuple[Chunk, ...]:
    """The list for a document; `old` is the one it has, `neighbours` have the best one last.

    `at_hand` is the text around the cursor.
    """
    room = max_chunks - max_chunks // 4
    best: list[Chunk] = []
    for one in reversed(neighbours):
        shown = [at_hand, *best]
        is_new = not _says_again(one, at_hand) and all(
            one.path != other.path and not _is_copy(one, other) for other in shown
        )
        if is_new and len(best) < room and _n_chars(best) + len(one.text) <= MAX_TEXT:
            best.append(one)
    last = in_place(old, best[::-1])
    paths = {at_hand.path, *(one.path for one in last)}
    paths |= {one.path for one in recent.chunks if _says_again(one, at_hand)}
    first = recent.newest(max_chunks - len(last), MAX_TEXT - _n_chars(last), paths)
    return (*(one for one in first if not any(_is_copy(one, other) for other in last)), *last)


def _n_chars(chunks: Sequence[Chunk]) -> int:
    return sum(len(one.text) for one in chunks)
