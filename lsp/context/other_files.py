"""What is sent of other files with a request, and when that changes.

A *step* looks at the files that matter to the document at hand, and makes the list of chunks that
its requests are sent. It is taken in a pause, after something happened: a document was opened,
saved, closed or left, another one was edited, the cursor went far, or a while after edits. The
server reads a new list ahead, and from then on it is sent.

C1  Nothing but a step changes what a document's requests are sent: typing does not, and neither
    does what happens elsewhere. Only what must not be sent any more goes at once.
C4  Nothing is sent of what the exclusions leave out, of a closed document outside the workspace,
    and of the document at hand. What they leave out only since it is sent goes with the next step,
    before the server has read any other list.
C5  A request waits for nothing here. What a step does is bounded (`disk.py`), and on a thread.
C8  A list is sent once the server has read it ahead. It reads while nobody types or waits: a key
    ends that, and the next pause begins it anew. Until its first step a document has the list of
    the one before it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from suture.lsp.context.chunks import Chunk
from suture.lsp.context.exclusions import is_left_out
from suture.lsp.context.listing import Recent, arranged
from suture.lsp.context.look import Found, Look, Memory, Opened
from suture.lsp.context.workspace import Workspace
from suture.lsp.documents import Cursor, Document, Documents, Position
from suture.lsp.gates import has_code, path_of
from suture.lsp.settings import Options

logger = logging.getLogger(__name__)

# Nobody types: long enough not to be between two words.
QUIET_S = 1.0
# After which edits are looked at that nothing else was heard of.
PAUSE_S = 5.0
POLL_S = 0.1
# Lines that the cursor goes until other names stand around it.
FAR = 48
# The server's cache has room for some.
MAX_LISTS = 8
MAX_OPENED = 64
MAX_CLOSED = 8
_LINE_END = 2**31 - 1


class Server(Protocol):
    """Who asks the server. `may_read` says whether anything is asked in a document at all."""

    @property
    def is_busy(self) -> bool: ...

    def may_read(self, uri: str, language: str) -> bool: ...

    async def read_ahead(self, cursor: Cursor, chunks: Sequence[Chunk]) -> bool:
        """Whether the server has read them, and the text around a cursor."""
        ...


@dataclass
class _Due:
    """What the next step is for: `left` are documents that were left or edited, `closed` those of
    them that were closed since and where the cursor was in each, by their URI."""

    left: dict[str, Document] = field(default_factory=dict)
    closed: dict[str, tuple[Document, int | None]] = field(default_factory=dict)
    is_step: bool = False
    is_edit: bool = False

    def add(self, other: _Due) -> None:
        self.left |= other.left
        self.closed |= other.closed
        while len(self.closed) > MAX_CLOSED:
            del self.closed[next(iter(self.closed))]
        self.is_step |= other.is_step
        self.is_edit |= other.is_edit


class OtherFiles:
    """The text of other files, for the documents of one editor.

    No step is taken before it is `configured`: the configuration may exclude any file.
    """

    def __init__(self, documents: Documents, server: Server, configured: asyncio.Event) -> None:
        self._documents = documents
        self._server = server
        self._configured = configured
        self._options = Options()
        self._workspace = Workspace()
        self._memory = Memory()
        self._recent = Recent()
        # By the URI of the document they are sent with, the latest last.
        self._lists: OrderedDict[str, tuple[Chunk, ...]] = OrderedDict()
        self._at_hand: str | None = None
        # As it was when it came to hand: the same document, also once it is closed.
        self._document: Document | None = None
        self._cursor: Cursor | None = None
        self._rows: dict[str, int] = {}
        # Where the cursor was at the last step, in the document at hand.
        self._looked_from: int | None = None
        self._is_unread = False
        # Documents whose lists the server had read before it ended.
        self._lost: set[str] = set()
        self._due = _Due()
        self._active_at = 0.0
        self._working: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[bool] | None = None

    def sent_with(self, uri: str) -> tuple[Chunk, ...]:
        """What a request in a document is sent of other files now."""
        own = self._lists.get(uri)
        if own is not None:
            return own
        latest = next(reversed(self._lists.values()), ())
        return tuple(one for one in latest if one.path != _path(uri))

    def path_in(self, uri: str) -> str | None:
        """The path of a document as the model is told it; None where it has no file."""
        path = path_of(uri)
        if not path.startswith("/"):
            return None
        return path if self._workspace.folder_of(path) is None else self._workspace.name_of(path)

    def take(self, options: Options, workspace: Workspace) -> None:
        """These options and folders hold from now on."""
        if (options, workspace) == (self._options, self._workspace):
            return
        is_other = options.context != self._options.context
        self._options, self._workspace = options, workspace
        if is_other:
            self._lists.clear()
            self._recent = Recent()
        self._drop_forbidden()
        self._hear(_Due(is_step=True))

    def asked(self, cursor: Cursor) -> None:
        """Somebody waits for a text at a cursor."""
        self._go_to(cursor.uri)
        self._cursor = cursor
        self._rows[cursor.uri] = cursor.line
        seen = self._looked_from
        is_far = seen is None or abs(cursor.line - seen) > FAR
        self._hear(_Due(is_step=is_far or self._is_unread))

    def opened(self, uri: str) -> None:
        """A document was opened, or has the focus."""
        if self._documents.find(uri) is not None:
            self._go_to(uri)
            self._hear(_Due(is_step=True))

    def changed(self, uri: str) -> None:
        """A document was edited."""
        document = self._documents.find(uri)
        if uri == self._at_hand:
            self._hear(_Due(is_edit=True))
        elif document is not None and self._may_show(document):
            # Nobody types there, and it may go on for ever: nothing waits for it to end.
            self._plan(_Due({uri: document}, is_edit=True))

    def saved(self, uri: str) -> None:
        """A document was saved."""
        self._hear(_Due(is_step=True))

    def closed(self, uri: str) -> None:
        """A document was closed."""
        left, row = self._due.left.pop(uri, None), self._rows.pop(uri, None)
        self._lists.pop(uri, None)
        if uri == self._at_hand:
            left = self._document
            self._at_hand, self._document, self._cursor = None, None, None
        self._drop_forbidden()
        is_kept = left is not None and self._may_show(left) and self._is_inside(_path(uri))
        closed = {uri: (left, row)} if left is not None and is_kept else {}
        self._hear(_Due(closed=closed, is_step=True))

    def server_came(self) -> None:
        """The server is there, or there again: it has read nothing."""
        self._lost = set(self._lists)
        self._hear(_Due(is_step=True))

    def end(self) -> None:
        """All that runs ends."""
        for task in (self._working, self._reading):
            if task is not None:
                task.cancel()

    def _go_to(self, uri: str) -> None:
        before, self._document = self._document, self._documents.find(uri)
        if uri == self._at_hand:
            return
        if before is not None:
            self._due.left[before.uri] = before
        self._due.left.pop(uri, None)
        self._due.is_step = True
        self._at_hand, self._cursor, self._looked_from = uri, None, None

    def _hear(self, due: _Due) -> None:
        """Something happened: nothing is read meanwhile, and a step may be due for it."""
        self._active_at = time.monotonic()
        if self._reading is not None:
            self._reading.cancel()
        self._plan(due)

    def _plan(self, due: _Due) -> None:
        """Take a step in the next pause, if one is due."""
        self._due.add(due)
        if self._is_due and (self._working is None or self._working.done()):
            self._working = asyncio.ensure_future(self._work())

    @property
    def _is_due(self) -> bool:
        return self._due.is_step or self._due.is_edit

    async def _work(self) -> None:
        """Take steps until none is due, each in a pause since the one before."""
        await self._configured.wait()
        while self._is_due:
            while not self._has_paused(QUIET_S if self._due.is_step else PAUSE_S):
                await asyncio.sleep(POLL_S)
            due, self._due = self._due, _Due()
            try:
                await self._step(due)
            except Exception:  # a fault of ours: the list stays as it is
                logger.exception("a look at other files failed")
            self._active_at = time.monotonic()

    def _has_paused(self, seconds: float) -> bool:
        return not self._server.is_busy and time.monotonic() - self._active_at >= seconds

    async def _step(self, due: _Due) -> None:
        uri = self._at_hand
        document = None if uri is None else self._documents.find(uri)
        if uri is None or document is None or not self._is_wanted(document, due):
            newer, self._due = self._due, _Due(due.left, due.closed)
            self._due.add(newer)
            return
        row = self._rows.get(uri, 0)
        look = self._look(document, due)
        found = await asyncio.to_thread(look.take, self._memory)
        if found.forbidden:
            self._keep(lambda chunk: chunk.path not in found.forbidden)
        wanted = self._list(uri, found)
        if uri == self._at_hand and not self._due.is_step:
            self._looked_from = row
            await self._take_up(uri, wanted)

    def _is_wanted(self, at_hand: Document, due: _Due) -> bool:
        """Whether there is anything to look at, for a document in which somebody may ask."""
        context = self._options.context
        is_inside = self._is_inside(_path(at_hand.uri))
        others = (one for one in self._documents if one is not at_hand and self._may_show(one))
        has_others = bool(due.closed) or any(others)
        is_any = (context.neighbours and is_inside) or (context.open_files and has_others)
        is_on = context.max_chunks > 0 and (is_any or bool(self.sent_with(at_hand.uri)))
        return is_on and self._server.may_read(at_hand.uri, at_hand.language)

    def _look(self, at_hand: Document, due: _Due) -> Look:
        shown = [one for one in self._documents if one is not at_hand and self._may_show(one)]
        # The last ones are the latest.
        opened = {_path(one.uri): _opened(one, one.text) for one in shown[-MAX_OPENED:]}
        text, row = self._text_of(at_hand)
        opened[_path(at_hand.uri)] = _opened(at_hand, text)
        closed = {
            _path(uri): (_opened(document, document.text), row)
            for uri, (document, row) in due.closed.items()
            if self._documents.find(uri) is None
        }
        left = {_path(one): self._rows.get(one) for one in due.left}
        left = {path: row for path, row in left.items() if path in opened}
        sent = [one.path for chunks in self._lists.values() for one in chunks]
        sent += [one.path for one in self._recent.chunks]
        return Look(
            self._workspace,
            self._options,
            _path(at_hand.uri),
            row,
            opened,
            {path: row for path, (_, row) in closed.items()} | left,
            {path: document for path, (document, _) in closed.items()},
            tuple(dict.fromkeys(reversed(sent))),
        )

    def _text_of(self, at_hand: Document) -> tuple[str, int]:
        """The text at hand, and the row of the cursor in it; of a notebook that of all cells."""
        cursor, text = self._cursor, at_hand.text
        if cursor is not None and cursor.uri == at_hand.uri and self._documents.is_current(cursor):
            # Around a cell stands more than its own text; else it may be less of a long one.
            around = cursor.prefix + cursor.suffix
            if len(around) > len(text):
                return around, cursor.prefix.count("\n")
        return text, self._rows.get(at_hand.uri, 0)

    def _may_show(self, document: Document) -> bool:
        scheme = document.uri.partition(":")[0]
        return scheme in ("file", "untitled") and has_code(document.language)

    def _list(self, uri: str, found: Found) -> tuple[Chunk, ...]:
        """The list for a document, out of what was found."""
        n_most = self._options.context.max_chunks
        for chunk in filter(self._is_allowed, found.left):
            self._recent.put(chunk, n_most)
        neighbours = list(filter(self._is_allowed, found.neighbours))
        old = self._lists.get(uri, ())
        return arranged(self._recent, old, neighbours, found.at_hand, n_most)

    async def _take_up(self, uri: str, wanted: tuple[Chunk, ...]) -> None:
        """Send a list once the server has read it (C8), unless another one is due before."""
        self._is_unread = wanted != self._lists.get(uri, ()) or uri in self._lost
        while self._is_unread and not self._due.is_step:
            if not self._has_paused(QUIET_S):
                await asyncio.sleep(POLL_S)
            elif not await self._reads(uri, wanted):
                return

    async def _reads(self, uri: str, wanted: tuple[Chunk, ...]) -> bool:
        """Whether it is worth to go on: the list was read, or a key came."""
        if (document := self._documents.find(uri)) is None:
            return False
        cursor = self._cursor_in(document)
        self._reading = asyncio.ensure_future(self._server.read_ahead(cursor, wanted))
        await asyncio.wait({self._reading})
        reading, self._reading = self._reading, None
        if reading.cancelled() or self._due.is_step:
            return True
        if reading.result():
            self._is_unread = False
            self._lost.discard(uri)
            self._lists[uri] = wanted
            self._lists.move_to_end(uri)
            while len(self._lists) > MAX_LISTS:
                self._lists.popitem(last=False)
        return not self._is_unread

    def _cursor_in(self, document: Document) -> Cursor:
        """Where the next request may come; without a guess only other files are read."""
        cursor, uri = self._cursor, document.uri
        if cursor is not None and cursor.uri == uri and self._documents.is_current(cursor):
            return cursor
        if uri in self._rows:
            return document.cursor(Position(self._rows[uri], _LINE_END), self._documents.encoding)
        return Cursor(uri, document.language, document.version, 0, "", "", "", "")

    def _drop_forbidden(self) -> None:
        """What must not be sent any more is not (C1, C4)."""
        self._keep(self._is_allowed)

    def _keep(self, is_kept: Callable[[Chunk], bool]) -> None:
        """Nothing is sent of all other chunks."""
        self._recent.keep(is_kept)
        for uri, chunks in self._lists.items():
            self._lists[uri] = tuple(filter(is_kept, chunks))

    def _is_allowed(self, chunk: Chunk) -> bool:
        if is_left_out(chunk.path, self._options):
            return False
        is_open = any(_path(one.uri) == chunk.path for one in self._documents)
        return is_open or self._is_inside(chunk.path)

    def _is_inside(self, path: str) -> bool:
        return self._workspace.folder_of(path) is not None


def _path(uri: str) -> str:
    """What tells a document from others: the path of its file, or its URI if it has none.

    A cell of a notebook is a part of its file.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "vscode-notebook-cell":
        return f"{path_of(uri)}#{rest.rpartition('#')[2]}"
    return path_of(uri) if scheme == "file" else uri


def _opened(document: Document, text: str) -> Opened:
    return Opened(_path(document.uri), document.language, (-1, hash(text)), text)
