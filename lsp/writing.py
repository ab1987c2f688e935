"""A text that the server writes at a cursor: what is known of it while it comes.

G1  What is known are whole lines, the first of which say something, or all of it. It is the
    beginning of whatever it grows to: what is shown of it never changes.
G2  While lines alone are known they go over nothing behind the cursor: only the end of a text says
    what it replaces there, and what comes before that end is never more than can be inserted.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from suture.lsp.documents import Cursor
from suture.lsp.http_client import Answer, Health
from suture.lsp.shown import Suggestion
from suture.server.shaping.closers import are_auto_closed

# Of lines without one nobody knows what comes: they end, or begin, what other lines say.
_WORD = re.compile(r"\w")
_BLANKS = " \t\r\n"


def whole_lines(text: str) -> str:
    """The lines of a text that have ended, without the blank end; none before there is a word."""
    end = max(text.rfind("\n"), text.rfind("\r")) + 1
    lines = text[:end].rstrip(_BLANKS)
    return lines if _WORD.search(lines) else ""


class Writing:
    """One text, written at `cursor`. `files` are those whose text the server was sent with it.

    `known` is what is known of it, `answer` all of it once it has ended, `failure` why it has not.
    `is_shown` says that somebody was answered with what was known before: then it is written on
    though nobody waits for it. Nothing more comes once it `is_over`.
    """

    def __init__(self, cursor: Cursor, files: tuple[str, ...]) -> None:
        self.cursor = cursor
        self.files = files
        self.known: Suggestion | None = None
        self.answer: Answer | None = None
        self.failure: Health | None = None
        self.is_over = False
        self.is_shown = False
        # Where it was shown last, and what of it.
        self.last_shown: tuple[Cursor, Suggestion] | None = None
        self.n_pieces = 0
        self.n_behind = 0  # pieces that came since a line was known
        self._said = ""
        self._piece_at = 0.0
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it written by `work`, which tells of what comes."""
        self._task = asyncio.ensure_future(work)
        # One that is cancelled before it began says nothing itself.
        self._task.add_done_callback(lambda _: self.end())

    def came(self, said: Suggestion, pace: Callable[[float], None]) -> bool:
        """So much of it has come; whether more of it is known for that (G1).

        `pace` hears how many milliseconds the last piece of it took.
        """
        now = time.perf_counter()
        if self.n_pieces:
            pace((now - self._piece_at) * 1000)
        self._piece_at = now
        self.n_pieces += 1
        self.n_behind += self.known is not None
        self._said = said.text
        lines = whole_lines(said.text)
        is_more = len(lines) > len(self.known.text if self.known else "")
        if is_more:
            self.known = replace(said, text=lines)
        self._wake()
        return is_more

    def ended(self, answer: Answer) -> Suggestion:
        """That was all of it; what is known now."""
        if self.known is not None and not answer.suggestion.text.startswith(self.known.text):
            # A server that takes back what it said: what is shown stays (G1).
            answer = replace(answer, suggestion=self.known)
        self.answer, self.known = answer, answer.suggestion
        return answer.suggestion

    def may_reach(self, cursor: Cursor) -> bool:
        """Whether it may go on at a cursor, if what was typed since is what it says."""
        at = self.cursor
        if not cursor.prefix.startswith(at.prefix) or not cursor.suffix.endswith(at.suffix):
            return False
        typed = cursor.prefix[len(at.prefix) :]
        added = cursor.suffix.removesuffix(at.suffix)
        is_on_its_way = self._said.startswith(typed) or typed.startswith(self._said)
        return is_on_its_way and are_auto_closed(added, typed)

    async def more(self) -> None:
        """Wait until more of it has come, or nothing more does."""
        if not self.is_over:
            await self._more.wait()

    async def over(self, within_s: float) -> None:
        """Wait until nothing more of it comes, for so long at most."""
        if self._task is not None and within_s > 0:
            await asyncio.wait({self._task}, timeout=within_s)

    def cancel(self) -> None:
        """Nobody wants it any more."""
        if self._task is not None:
            self._task.cancel()
        self.end()

    def end(self) -> None:
        """Nothing more of it comes."""
        self.is_over = True
        self._wake()

    async def stopped(self) -> None:
        """End it, and wait until the server was let go of."""
        self.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()
