"""The texts that the server writes, one in each document, and those who wait for them.

Q3  Where a client can be told that a text has grown, a request that nobody made by hand is answered
    with the first lines of a text that takes the engine long. It is written on, in the same
    generation, for whoever types or accepts what is shown of it; a request anywhere else ends that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from suture.lsp.bodies import files_in
from suture.lsp.documents import Cursor
from suture.lsp.http_client import Answer, ServerClient, Unanswered
from suture.lsp.pace import Pace
from suture.lsp.remembered import Remembered
from suture.lsp.shown import Suggestion
from suture.lsp.writing import Writing

Json = dict[str, Any]


class Writings:
    """Has texts written, and remembers what is known of them as it comes.

    `on_whole` hears of a text that has come to its end, where it is the one of its document.
    `on_grown` hears of a cursor where a part of one was shown; without it all is shown at once.
    """

    def __init__(
        self, client: ServerClient, remembered: Remembered, on_whole: Callable[[Writing], None]
    ) -> None:
        self.on_grown: Callable[[Cursor], None] | None = None
        self._client = client
        self._remembered = remembered
        self._on_whole = on_whole
        self._pace = Pace()
        self._in: dict[str, Writing] = {}

    @property
    def is_busy(self) -> bool:
        """Whether one is being written for somebody, or was shown in part."""
        return bool(self._in)

    def begin(
        self, cursor: Cursor, body: Json, tells: Collection[str], is_by_hand: bool = False
    ) -> Writing:
        """Have the text at a cursor written; of failures the client is told what it `tells`.

        It is not that of its document before it is held.
        """
        writing = Writing(cursor, files_in(body))
        ask: Callable[[], Awaitable[Answer]] = partial(self._client.infill, body, tells)
        if self.on_grown is not None and not is_by_hand:
            ask = partial(self._client.write, body, partial(self._hear, writing), tells)
        writing.run(self._write(writing, ask))
        return writing

    def hold(self, writing: Writing) -> None:
        """It is that of its document from now on; if it is over, it has been."""
        uri = writing.cursor.uri
        self.end(uri)
        if not writing.is_over:
            self._in[uri] = writing
        elif writing.answer is not None:
            self._on_whole(writing)

    async def shown(
        self, writing: Writing, cursor: Cursor, asked: float, is_by_hand: bool
    ) -> Suggestion | None:
        """What is shown of a text at a cursor that was asked for then, on the performance counter;
        None where it has nothing for it.

        All of it, where that comes soon or one asks by hand, else its first lines. Who is cancelled
        ends it, unless some of it is known: that is shown to whoever types on.
        """
        is_all = is_by_hand or self.on_grown is None
        try:
            while not writing.is_over and writing.may_reach(cursor):
                if is_all or self._remembered.rest(cursor) is None:
                    await writing.more()
                    continue
                waited_ms = (time.perf_counter() - asked) * 1000
                await writing.over(within_s=self._pace.patience_ms(waited_ms) / 1000)
                writing.is_shown = True
                break
        except asyncio.CancelledError:
            if is_all or writing.known is None:
                if not writing.is_shown:
                    await writing.stopped()
            else:
                writing.is_shown = True
            raise
        return self._remembered.rest(cursor)

    def show(self, cursor: Cursor, suggestion: Suggestion) -> None:
        """That is shown at a cursor. Where it is known of a text that somebody waits for, they need
        not any more for it to go on."""
        writing = self._in.get(cursor.uri)
        if writing is not None and writing.known is not None:
            writing.is_shown |= writing.known.number == suggestion.number

    def growing_at(self, cursor: Cursor) -> Writing | None:
        """The text that is written on behind what was shown of it, if a cursor is on its way."""
        writing = self._in.get(cursor.uri)
        is_it = writing is not None and writing.is_shown and writing.may_reach(cursor)
        return writing if is_it else None

    def note_shown(self, cursor: Cursor, suggestion: Suggestion) -> None:
        """That is shown at a cursor now, a part perhaps of what is written."""
        writing = self.growing_at(cursor)
        if writing is not None and writing.known is not None:
            if writing.known.number == suggestion.number:
                writing.last_shown = cursor, suggestion

    def end_elsewhere(self, cursor: Cursor, waited_for: Collection[str]) -> None:
        """End what is written on where one does not type any more (Q3).

        In other documents that for which somebody waits goes on, by their URIs.
        """
        here = self.growing_at(cursor)
        for uri, writing in list(self._in.items()):
            is_wanted = uri != cursor.uri and uri in waited_for
            if writing.is_shown and writing is not here and not is_wanted:
                self.end(uri)

    def end(self, uri: str) -> None:
        """End what is written in a document."""
        if (writing := self._in.pop(uri, None)) is not None:
            writing.cancel()

    def end_shown(self, uri: str | None = None) -> None:
        """End what is written on behind what was shown of it, in a document or in all."""
        for each, writing in list(self._in.items()):
            if writing.is_shown and uri in (None, each):
                self.end(each)

    def end_all(self) -> None:
        """End all of them."""
        for uri in list(self._in):
            self.end(uri)

    def _hear(self, writing: Writing, said: Suggestion) -> None:
        if writing.came(said, self._pace.came) and writing.known is not None:
            self._remembered.add(writing.cursor, writing.known)

    async def _write(self, writing: Writing, ask: Callable[[], Awaitable[Answer]]) -> None:
        try:
            self._take(writing, await ask())
        except Unanswered as error:
            writing.failure = error.health
        finally:
            writing.end()
            is_held = self._in.get(writing.cursor.uri) is writing
            if is_held:
                del self._in[writing.cursor.uri]
        if is_held and writing.answer is not None:
            self._on_whole(writing)
            self._tell_grown(writing)

    def _take(self, writing: Writing, answer: Answer) -> None:
        """All of a text is there."""
        if writing.known is not None:
            self._pace.ended(writing.n_behind)
        suggestion = self._remembered.cut(writing.cursor, answer.suggestion)
        known = writing.ended(replace(answer, suggestion=suggestion))
        self._remembered.add(writing.cursor, known)

    def _tell_grown(self, writing: Writing) -> None:
        if writing.last_shown is None or self.on_grown is None:
            return
        cursor, shown = writing.last_shown
        rest = self._remembered.rest(cursor)
        if rest is not None and rest != shown:
            self.on_grown(cursor)
