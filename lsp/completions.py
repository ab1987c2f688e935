"""From a cursor to a suggestion, or the reason why there is none.

    gates -> what was shown -> wait for the next key -> one request per document -> the server

What follows a suggestion is asked for ahead (`ahead.py`, Q2); of a text that takes the engine long
the first line is shown early (`writings.py`, Q3).

Q1  A request ends the one before it in its document: that is answered with nothing, and the engine
    stops. So does a cancelled one, before its reply.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suture.lsp.ahead import Ahead, after_accepting
from suture.lsp.bodies import Bodies, extra_of, files_in
from suture.lsp.context.chunks import Chunk
from suture.lsp.debounce import Debounce
from suture.lsp.documents import Cursor
from suture.lsp.gates import Refusal, Switches, cursor_gate, file_gate
from suture.lsp.http_client import STATES, STATES_AHEAD, Answer, ServerClient, Unanswered
from suture.lsp.remembered import Remembered
from suture.lsp.settings import Options
from suture.lsp.shown import Suggestion
from suture.lsp.writing import Writing
from suture.lsp.writings import Writings
from suture.server.request import Reason

Json = dict[str, Any]

# Who asks by hand where a text is shown gets so many others beside it, drawn as freely.
N_ALTERNATIVES = 3
_FREELY: Json = {"temperature": 0.8, "top_p": 0.95}
# How long what is known may be held back for others beside it.
ALTERNATIVES_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request; `source` is `typed`, `ahead` or `server` where a text came.

    `alternatives` may come in the place of the suggestion. `report` is the server's `suture`
    object, where it was asked, and `files` are those whose text it was sent beside the cursor's:
    where it was asked for alternatives, those of that request.
    """

    suggestion: Suggestion | None = None
    reason: Reason | None = None
    message: str = ""
    source: str = ""
    took_ms: float = 0.0
    report: Json = field(default_factory=dict)
    files: tuple[str, ...] = ()
    alternatives: tuple[Suggestion, ...] = ()


SUPERSEDED = Outcome(reason="SUPERSEDED", message="a newer request came")


class Completions:
    """Completes in all documents of one editor.

    `options` and `switches` are those in force, which may change at any time. `session` is a name
    that no other editor has.
    """

    def __init__(self, client: ServerClient, session: str, options: Options) -> None:
        self.options = options
        self.switches = Switches()
        self.last = Outcome(message="nothing was asked yet")
        self.bodies = Bodies(session)
        self.remembered = Remembered()
        self.writings = Writings(client, self.remembered, self._on_whole)
        self._client = client
        self._debounce = Debounce()
        self._ahead = Ahead(self._write_ahead)
        # The request that waits in each document.
        self._flights: dict[str, asyncio.Task[Outcome]] = {}
        # Where a text came last, and where one was dismissed.
        self._last_place: tuple[str, str, str] | None = None
        self._dismissed: tuple[str, str, str] | None = None

    async def complete(self, cursor: Cursor, is_automatic: bool) -> Outcome:
        """What to suggest at a cursor, and why nothing."""
        started = time.perf_counter()
        self.writings.end_elsewhere(cursor, self._flights)
        outcome = self._at_hand(cursor, is_automatic)
        growing = self.writings.growing_at(cursor)
        if outcome is None or (growing is not None and not is_automatic):
            outcome = await self._fly(cursor.uri, self._ask(cursor, is_automatic))
        elif outcome.suggestion is None:
            self._end_flight(cursor.uri)
        elif is_automatic or self._last_place != _place(cursor):
            self._end_flight(cursor.uri)
            if growing is None:
                self._fetch_ahead(cursor, outcome.suggestion)
        else:
            others = self._with_alternatives(cursor, outcome, outcome.suggestion)
            outcome = await self._fly(cursor.uri, others)
        took_ms = (time.perf_counter() - started) * 1000
        outcome = replace(outcome, took_ms=round(took_ms, 1))
        outcome = self._newest(cursor, outcome)
        if outcome.reason != "SUPERSEDED":
            self.last = outcome
        if outcome.suggestion is not None:
            self._last_place = _place(cursor)
            self.writings.note_shown(cursor, outcome.suggestion)
        return outcome

    def _newest(self, cursor: Cursor, outcome: Outcome) -> Outcome:
        """The outcome with as much of its text as there is by now."""
        suggestion, rest = outcome.suggestion, self.remembered.rest(cursor)
        if suggestion is None or rest is None or rest.number != suggestion.number:
            return outcome
        return replace(outcome, suggestion=rest)

    def refuse(self, uri: str, refusal: Refusal) -> Outcome:
        """Note why nothing is asked in a document, where what was asked before ends."""
        self._end_flight(uri)
        self._end_writing(uri)
        self.last = _refused(refusal)
        return self.last

    def dismiss(self, uri: str | None) -> None:
        """The user wants the last text no more: none comes by itself where it was.

        Nothing changes where it came in another document than `uri`; None is any.
        """
        place = self._last_place
        if place is not None and uri in (None, place[0]):
            self._dismissed = place
            self.forget(place[0])

    async def warm_up(self, cursor: Cursor) -> Outcome:
        """Let the server read the text around a cursor, before anything is asked there."""
        gate = self._file_gate(cursor)
        if gate is not None:
            return self.refuse(cursor.uri, gate)
        self._end_writing(cursor.uri)
        return await self._fly(cursor.uri, self._warm(cursor))

    async def _warm(self, cursor: Cursor) -> Outcome:
        try:
            answer = await self._client.infill(
                self.bodies.at(cursor, self.options) | {"n_predict": 0}
            )
        except Unanswered as error:
            return Outcome(reason=error.health.reason, message=str(error))
        return Outcome(source="server", report=answer.report)

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for the server, or will for what it writes ahead."""
        return self._ahead.is_busy or bool(self._flights) or self.writings.is_busy

    def may_read(self, uri: str, language: str) -> bool:
        """Whether anything is asked in a document."""
        return self._gate(uri, language) is None

    async def read_ahead(self, cursor: Cursor, chunks: Sequence[Chunk]) -> bool:
        """Whether the server has read text of other files, and that around a cursor (C8)."""
        # In a session of its own, for it is nobody's wait that it would end.
        body = self.bodies.at(cursor, self.options, "/read")
        body |= {"input_extra": extra_of(chunks), "n_predict": 0}
        try:
            answer = await self._client.read(body)
        except Unanswered:
            return False
        return answer.reason is None

    def forget(self, uri: str | None = None) -> None:
        """Forget what was shown in a document, or in all."""
        self._ahead.end()
        self.writings.end_shown(uri)
        self.remembered.forget(uri)

    def snooze(self, until: float) -> None:
        """Suggest nothing until then, on the monotonic clock."""
        self.switches = replace(self.switches, snoozed_until=until)

    @property
    def snoozed_s(self) -> float:
        """For how long nothing is suggested yet."""
        return max(0.0, self.switches.snoozed_until - time.monotonic())

    def end(self) -> None:
        """All that runs ends."""
        self._ahead.end()
        self.writings.end_all()
        for uri in list(self._flights):
            self._end_flight(uri)

    def close(self, uri: str) -> None:
        """A document was closed: what runs for it ends."""
        self._end_flight(uri)
        self.writings.end(uri)
        self.forget(uri)

    def _at_hand(self, cursor: Cursor, is_automatic: bool) -> Outcome | None:
        """What is known without asking."""
        gate = self._file_gate(cursor) or self._dismissal(cursor, is_automatic)
        if gate is not None:
            self._end_writing(cursor.uri)
            return _refused(gate)
        if (rest := self.remembered.rest(cursor)) is not None:
            if (ahead := self._ahead.take_shown(rest)) is not None:
                ahead.is_shown = True
                self.writings.hold(ahead)
            self.writings.show(cursor, rest)
            return Outcome(rest, source="typed")
        gate = cursor_gate(cursor, is_automatic)
        if gate is None:
            return None
        self._end_writing(cursor.uri)
        return _refused(gate)

    def _end_writing(self, uri: str) -> None:
        """End what is written in a document, and what is ahead anywhere."""
        self.writings.end(uri)
        self._ahead.end()

    def _dismissal(self, cursor: Cursor, is_automatic: bool) -> Refusal | None:
        if not is_automatic or self._dismissed != _place(cursor):
            return None
        return Refusal("DISABLED", "what was suggested here was dismissed")

    async def _ask(self, cursor: Cursor, is_automatic: bool) -> Outcome:
        asked = time.perf_counter()
        if (coming := await self._coming(cursor, asked, is_automatic)) is not None:
            return coming
        self._end_writing(cursor.uri)
        if not is_automatic:
            self._client.try_again()
        wait_ms = self._debounce.wait_ms(is_automatic, self.options.debounce_ms)
        await asyncio.sleep(wait_ms / 1000)
        began = time.perf_counter()
        body = self.bodies.at(cursor, self.options)
        writing = self.writings.begin(cursor, body, STATES, not is_automatic)
        self.writings.hold(writing)
        try:
            rest = await self.writings.shown(writing, cursor, asked, not is_automatic)
        except asyncio.CancelledError:
            self._debounce.given_up((time.perf_counter() - began) * 1000)
            raise
        if rest is None and (failure := writing.failure) is not None:
            return Outcome(reason=failure.reason, message=failure.message)
        self._debounce.answered((time.perf_counter() - began) * 1000)
        return _outcome_of(writing, rest)

    async def _coming(self, cursor: Cursor, asked: float, is_automatic: bool) -> Outcome | None:
        """What is written for a cursor already: behind what was shown, or ahead of it."""
        if (growing := self.writings.growing_at(cursor)) is not None:
            rest = await self.writings.shown(growing, cursor, asked, not is_automatic)
            if rest is not None:
                return Outcome(rest, source="typed")
        if (ahead := self._ahead.take(cursor)) is not None:
            self.writings.hold(ahead)
            rest = await self.writings.shown(ahead, cursor, asked, not is_automatic)
            if rest is not None:
                return Outcome(rest, source="ahead")
        return None

    def _on_whole(self, writing: Writing) -> None:
        """All of a text is there: what follows it is asked for."""
        assert writing.answer is not None
        suggestion, report = writing.answer.suggestion, writing.answer.report
        if not suggestion.says_nothing(writing.cursor.suffix):
            self._fetch_ahead(writing.cursor, suggestion)
        if writing.last_shown is not None and self.last.suggestion == writing.last_shown[1]:
            self.last = replace(self.last, report=self.last.report or report)

    async def _with_alternatives(
        self, cursor: Cursor, outcome: Outcome, suggestion: Suggestion
    ) -> Outcome:
        """The outcome with other texts for its place: who asks by hand where it is shown, asks for
        them. What is known does not wait for them long.
        """
        self._ahead.end()
        self._client.try_again()
        body = self.bodies.at(cursor, self.options) | _FREELY
        answers, message = await self._alternatives(body)
        found = dict.fromkeys(self.remembered.cut(cursor, answer.suggestion) for answer in answers)
        others = [one for one in found if one != suggestion and not one.says_nothing(cursor.suffix)]
        # The latest is gone on with, where several have what is typed: that is the first again.
        for one in (*reversed(others), suggestion):
            self.remembered.add(cursor, one)
        self._fetch_ahead(cursor, suggestion)
        report = answers[0].report if answers else {}
        alternatives = tuple(others)
        return replace(
            outcome, message=message, report=report, files=files_in(body), alternatives=alternatives
        )

    async def _alternatives(self, body: Json) -> tuple[list[Answer], str]:
        """Several answers to a body of `/infill`, or why there are none."""
        try:
            async with asyncio.timeout(ALTERNATIVES_S):
                return await self._client.candidates(body, N_ALTERNATIVES), ""
        except TimeoutError:
            return [], "other texts took the server too long"
        except Unanswered as error:
            return [], str(error)

    def _fetch_ahead(self, cursor: Cursor, suggestion: Suggestion) -> None:
        """Ask for what follows a suggestion, in the pause while the user reads it (Q2)."""
        there = after_accepting(cursor, suggestion)
        if self.remembered.rest(there) is None and self.options.prefetch:
            self._ahead.fetch(there)

    def _write_ahead(self, cursor: Cursor) -> Writing:
        # In a session of its own: what was typed last is where the next key comes.
        body = self.bodies.at(cursor, self.options, "/ahead")
        return self.writings.begin(cursor, body, STATES_AHEAD)

    async def _fly(self, uri: str, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The outcome of `work`, which is the only one in its document (Q1)."""
        self._end_flight(uri)
        task = asyncio.ensure_future(work)
        self._flights[uri] = task
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await _end(task)
            raise
        finally:
            if self._flights.get(uri) is task:
                del self._flights[uri]
        return SUPERSEDED if task.cancelled() else task.result()

    def _end_flight(self, uri: str) -> None:
        if (task := self._flights.get(uri)) is not None:
            task.cancel()

    def _file_gate(self, cursor: Cursor) -> Refusal | None:
        return self._gate(cursor.uri, cursor.language)

    def _gate(self, uri: str, language: str) -> Refusal | None:
        return file_gate(uri, language, self.options, self.switches, time.monotonic())


def _outcome_of(writing: Writing, rest: Suggestion | None) -> Outcome:
    """What came of a text that was asked for, of which `rest` is shown."""
    answer, files = writing.answer, writing.files
    reason, report = (None, {}) if answer is None else (answer.reason, answer.report)
    if rest is not None:
        return Outcome(rest, reason, source="server", report=report, files=files)
    said = "" if answer is None else answer.suggestion.text
    nothing: Reason = "DUPLICATE_SUFFIX" if said.strip() else "EMPTY"
    return Outcome(reason=reason or nothing, report=report, files=files)


def _place(cursor: Cursor) -> tuple[str, str, str]:
    """Where a cursor is, for as long as its text does not change."""
    return cursor.uri, cursor.prefix, cursor.suffix


def _refused(refusal: Refusal) -> Outcome:
    return Outcome(reason=refusal.reason, message=refusal.message)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has let go of what it held."""
    task.cancel()
    await asyncio.wait({task})
