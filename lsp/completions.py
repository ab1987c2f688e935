"""From a cursor to a suggestion, or the reason why there is none.

    gates -> what was shown -> wait for the next key -> one request per document -> the server

Q1  A request ends the one before it in its document: that is answered with nothing, and the engine
    stops. So does a cancelled one, before its reply.
Q2  What follows a suggestion is asked for ahead, one text at a time. Any other request ends that;
    who accepts the suggestion gets it, also while it is on its way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suture.lsp.context.chunks import Chunk
from suture.lsp.debounce import Debounce
from suture.lsp.documents import Cursor, without_halves
from suture.lsp.gates import Refusal, Switches, cursor_gate, file_gate, path_of
from suture.lsp.http_client import Answer, ServerClient, Unanswered
from suture.lsp.settings import Options
from suture.lsp.shown import Shown, Suggestion
from suture.server.request import Reason
from suture.server.shaping.closers import line_rest

Json = dict[str, Any]

# Who asks by hand where a text is shown gets so many others beside it, drawn as freely.
N_ALTERNATIVES = 3
_FREELY: Json = {"temperature": 0.8, "top_p": 0.95}
# What an engine has written by then is shown, up to its last whole line.
MAX_PREDICT_MS = 4000
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


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A request for what follows a suggestion, and where that is."""

    prefix: str
    suffix: str
    task: asyncio.Task[None]


class Completions:
    """Completes in all documents of one editor.

    `options` and `switches` are those in force, which may change at any time. `session` is a name
    that no other editor has. Without `shows_last_line_end` a text on an empty line is cut before
    its last line ends: what is shown, counted and gone on from is one text. `others_with` and
    `path_in` tell of a document, by its URI, what is sent of other files with it, and its path as
    the model is told it.
    """

    def __init__(self, client: ServerClient, session: str, options: Options) -> None:
        self.options = options
        self.switches = Switches()
        self.shows_last_line_end = True
        self.last = Outcome(message="nothing was asked yet")
        self.others_with: Callable[[str], Sequence[Chunk]] = _nothing
        self.path_in: Callable[[str], str | None] = _whole_path
        self._client = client
        self._session = session
        self._seq = 0
        self._debounce = Debounce()
        self._shown: dict[str, Shown] = {}
        self._flights: dict[str, asyncio.Task[Outcome]] = {}
        self._ahead: _Ahead | None = None
        # Where a text came last, and where one was dismissed.
        self._last_place: tuple[str, str, str] | None = None
        self._dismissed: tuple[str, str, str] | None = None

    async def complete(self, cursor: Cursor, is_automatic: bool) -> Outcome:
        """What to suggest at a cursor, and why nothing."""
        started = time.perf_counter()
        outcome = self._at_hand(cursor, is_automatic)
        if outcome is None:
            outcome = await self._fly(cursor.uri, self._ask(cursor, is_automatic))
        elif outcome.suggestion is None:
            self._end_flight(cursor.uri)
        elif is_automatic or self._last_place != _place(cursor):
            self._end_flight(cursor.uri)
            self._fetch_ahead(cursor, outcome.suggestion)
        else:
            others = self._with_alternatives(cursor, outcome, outcome.suggestion)
            outcome = await self._fly(cursor.uri, others)
        took_ms = (time.perf_counter() - started) * 1000
        outcome = replace(outcome, took_ms=round(took_ms, 1))
        if outcome.reason != "SUPERSEDED":
            self.last = outcome
        if outcome.suggestion is not None:
            self._last_place = _place(cursor)
        return outcome

    def refuse(self, uri: str, refusal: Refusal) -> Outcome:
        """Note why nothing is asked in a document, where what was asked before ends."""
        self._end_flight(uri)
        self._end_ahead()
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
        return await self._fly(cursor.uri, self._warm(cursor))

    async def _warm(self, cursor: Cursor) -> Outcome:
        try:
            answer = await self._client.infill(self._body(cursor) | {"n_predict": 0})
        except Unanswered as error:
            return Outcome(reason=error.health.reason, message=str(error))
        return Outcome(source="server", report=answer.report)

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for the server, or will for what it writes ahead."""
        is_ahead = self._ahead is not None and not self._ahead.task.done()
        return is_ahead or bool(self._flights)

    def may_read(self, uri: str, language: str) -> bool:
        """Whether anything is asked in a document."""
        return self._gate(uri, language) is None

    async def read_ahead(self, cursor: Cursor, chunks: Sequence[Chunk]) -> bool:
        """Whether the server has read text of other files, and that around a cursor (C8)."""
        # In a session of its own, for it is nobody's wait that it would end.
        body = self._body(cursor, "/read") | {"input_extra": _extra(chunks), "n_predict": 0}
        try:
            answer = await self._client.read(body)
        except Unanswered:
            return False
        return answer.reason is None

    def forget(self, uri: str | None = None) -> None:
        """Forget what was shown in a document, or in all."""
        self._end_ahead()
        if uri is None:
            self._shown.clear()
        else:
            self._shown.pop(uri, None)

    def snooze(self, until: float) -> None:
        """Suggest nothing until then, on the monotonic clock."""
        self.switches = replace(self.switches, snoozed_until=until)

    @property
    def snoozed_s(self) -> float:
        """For how long nothing is suggested yet."""
        return max(0.0, self.switches.snoozed_until - time.monotonic())

    def end(self) -> None:
        """All that runs ends."""
        self._end_ahead()
        for uri in list(self._flights):
            self._end_flight(uri)

    def close(self, uri: str) -> None:
        """A document was closed: what runs for it ends."""
        self._end_flight(uri)
        self.forget(uri)

    def _at_hand(self, cursor: Cursor, is_automatic: bool) -> Outcome | None:
        """What is known without asking."""
        gate = self._file_gate(cursor) or self._dismissal(cursor, is_automatic)
        if gate is not None:
            self._end_ahead()
            return _refused(gate)
        if (rest := self._rest(cursor)) is not None:
            return Outcome(rest, source="typed")
        gate = cursor_gate(cursor, is_automatic)
        if gate is None:
            return None
        self._end_ahead()
        return _refused(gate)

    def _dismissal(self, cursor: Cursor, is_automatic: bool) -> Refusal | None:
        if not is_automatic or self._dismissed != _place(cursor):
            return None
        return Refusal("DISABLED", "what was suggested here was dismissed")

    async def _ask(self, cursor: Cursor, is_automatic: bool) -> Outcome:
        if (ahead := await self._fetched_ahead(cursor)) is not None:
            return ahead
        self._end_ahead()
        if not is_automatic:
            self._client.try_again()
        wait_ms = self._debounce.wait_ms(is_automatic, self.options.debounce_ms)
        await asyncio.sleep(wait_ms / 1000)
        started = time.perf_counter()
        body = self._body(cursor)
        files = _files(body)
        try:
            answer = await self._client.infill(body)
        except Unanswered as error:
            return Outcome(reason=error.health.reason, message=str(error))
        self._debounce.answered((time.perf_counter() - started) * 1000)
        suggestion = self._cut(cursor, answer.suggestion)
        if suggestion.says_nothing(cursor.suffix):
            nothing: Reason = "DUPLICATE_SUFFIX" if suggestion.text.strip() else "EMPTY"
            reason = answer.reason or nothing
            return Outcome(reason=reason, report=answer.report, files=files)
        self._shown_in(cursor.uri).add(cursor.prefix, cursor.suffix, suggestion)
        self._fetch_ahead(cursor, suggestion)
        return Outcome(
            suggestion,
            answer.reason,
            source="server",
            report=answer.report,
            files=files,
        )

    async def _with_alternatives(
        self, cursor: Cursor, outcome: Outcome, suggestion: Suggestion
    ) -> Outcome:
        """The outcome with other texts for its place: who asks by hand where it is shown, asks for
        them. What is known does not wait for them long.
        """
        self._end_ahead()
        self._client.try_again()
        body = self._body(cursor) | _FREELY
        answers, message = await self._alternatives(body)
        found = dict.fromkeys(self._cut(cursor, answer.suggestion) for answer in answers)
        others = [one for one in found if one != suggestion and not one.says_nothing(cursor.suffix)]
        # The latest is gone on with, where several have what is typed: that is the first again.
        for one in (*reversed(others), suggestion):
            self._shown_in(cursor.uri).add(cursor.prefix, cursor.suffix, one)
        self._fetch_ahead(cursor, suggestion)
        report = answers[0].report if answers else {}
        alternatives = tuple(others)
        return replace(
            outcome, message=message, report=report, files=_files(body), alternatives=alternatives
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
        is_known = self._is_ahead_of(there) or self._rest(there) is not None
        if is_known or not self.options.prefetch:
            return
        self._end_ahead()
        task = asyncio.ensure_future(self._fetch(there))
        self._ahead = _Ahead(there.prefix, there.suffix, task)

    def _is_ahead_of(self, cursor: Cursor) -> bool:
        ahead = self._ahead
        return ahead is not None and (ahead.prefix, ahead.suffix) == (cursor.prefix, cursor.suffix)

    async def _fetch(self, cursor: Cursor) -> None:
        try:
            # In a session of its own: what was typed last is where the next key comes.
            answer = await self._client.infill(self._body(cursor, "/ahead"))
        except Unanswered:
            return
        suggestion = self._cut(cursor, answer.suggestion)
        self._shown_in(cursor.uri).add(cursor.prefix, cursor.suffix, suggestion)

    async def _fetched_ahead(self, cursor: Cursor) -> Outcome | None:
        """The text that was asked for ahead, if it is for this very cursor (Q2)."""
        ahead = self._ahead
        if ahead is None or not self._is_ahead_of(cursor):
            return None
        try:
            await asyncio.wait({ahead.task})
        except asyncio.CancelledError:
            await _end(ahead.task)
            raise
        if (rest := self._rest(cursor)) is None:
            return None
        self._fetch_ahead(cursor, rest)
        return Outcome(rest, source="ahead")

    def _end_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.task.cancel()
            self._ahead = None

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

    def _rest(self, cursor: Cursor) -> Suggestion | None:
        """What is left, at a cursor, of what was shown or fetched ahead."""
        rest = self._shown_in(cursor.uri).rest(cursor.prefix, cursor.suffix)
        return None if rest is None else self._cut(cursor, rest)

    def _cut(self, cursor: Cursor, suggestion: Suggestion) -> Suggestion:
        """A suggestion as it can be shown at a cursor."""
        if self.shows_last_line_end or not cursor.is_on_empty_line:
            return suggestion
        return replace(suggestion, text=suggestion.text.rstrip("\r\n"))

    def _shown_in(self, uri: str) -> Shown:
        return self._shown.setdefault(uri, Shown())

    def _body(self, cursor: Cursor, kind: str = "") -> Json:
        """The body of `/infill` for a cursor. Sessions are documents: one has one cursor."""
        self._seq += 1
        options = self.options
        body = {
            "input_prefix": without_halves(cursor.prefix),
            "input_suffix": without_halves(cursor.suffix),
            "n_predict": options.max_tokens,
            "temperature": 0,
            "t_max_predict_ms": MAX_PREDICT_MS,
            "shape": "auto" if options.multiline and _may_go_on(cursor) else "line",
            "session": f"{self._session}/{hash(cursor.uri):x}{kind}",
            "seq": self._seq,
            "path": self.path_in(cursor.uri),
            "language": cursor.language or None,
            "healing": options.healing,
            "give_back": options.give_back,
            "layout": options.layout,
            "input_extra": _extra(self.others_with(cursor.uri)) or None,
        }
        return {name: value for name, value in body.items() if value is not None}


def _extra(chunks: Sequence[Chunk]) -> list[Json]:
    return [{"text": chunk.text, "filename": chunk.name} for chunk in chunks]


def _files(body: Json) -> tuple[str, ...]:
    """The files whose text a body bears beside the cursor's."""
    return tuple(chunk["filename"] for chunk in body.get("input_extra", ()))


def _nothing(uri: str) -> Sequence[Chunk]:
    return ()


def _whole_path(uri: str) -> str | None:
    path = path_of(uri)
    return path if path.startswith("/") else None


def after_accepting(cursor: Cursor, suggestion: Suggestion) -> Cursor:
    """The cursor behind a suggestion that was accepted."""
    prefix = cursor.prefix + suggestion.text
    suffix = cursor.suffix[suggestion.delete_after :]
    before = (cursor.before + suggestion.text).replace("\r", "\n").rpartition("\n")[2]
    after = cursor.after[suggestion.delete_after :]
    return replace(
        cursor,
        line=cursor.line + suggestion.text.count("\n"),
        before=before,
        after=after,
        prefix=prefix,
        suffix=suffix,
        is_on_empty_line=not before and not after,
    )


def _may_go_on(cursor: Cursor) -> bool:
    """Whether lines may follow: nothing stands behind the cursor in its line but closers."""
    return not cursor.after.strip() or bool(line_rest(cursor.prefix, cursor.suffix))


def _place(cursor: Cursor) -> tuple[str, str, str]:
    """Where a cursor is, for as long as its text does not change."""
    return cursor.uri, cursor.prefix, cursor.suffix


def _refused(refusal: Refusal) -> Outcome:
    return Outcome(reason=refusal.reason, message=refusal.message)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has let go of what it held."""
    task.cancel()
    await asyncio.wait({task})
