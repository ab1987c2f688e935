"""Answers of typing sessions, running and finished: who types what was answered has it already.

Typing the next characters of a suggestion is a new request whose prefix is the old one's and the
beginning of the old answer. Its answer is the rest of that one, at no cost: a running generation
goes on for it, a finished one is in memory. Nothing is ever stale, because all else of the request
is compared, the whole texts on both sides of the cursor included.

Closers that the editor put behind the cursor as one typed their openers, or that one typed over,
are no difference: the rest of the answer is an edit over those that stand there (`closers.py`).
"""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass, replace
from typing import Any

from suture.server.engine.job import Job
from suture.server.errors import SutureError
from suture.server.prompt.anchors import MAX_LINES
from suture.server.request import CompletionChunk, CompletionRequest, CompletionResult
from suture.server.shaping.closers import OverClosers, are_auto_closed

Item = CompletionChunk | SutureError

MAX_ANSWERS = 256
MAX_CHARS = 1 << 20


@dataclass(frozen=True, slots=True)
class Rest:
    """What is known of an answer behind the cursor of a later request.

    `closers` are those it is an edit over, `prefix` is the text before it.
    """

    text: str
    closers: str
    prefix: str


class Answer:
    """What a request's generations say, on the event loop; the latest listener hears it.

    `text` is that of a single candidate, and so is `result`: several are never gone on with.
    `rest` are the closers behind the cursor that the generations themselves are an edit over.
    `is_far` says that the cursor will soon be too far from the anchor of the prompt.
    """

    def __init__(self, request: CompletionRequest, rest: str = "", is_far: bool = False) -> None:
        self.request = request
        self._is_far = is_far
        self._rest = rest
        self._over_closers: OverClosers | None = None
        self.jobs: tuple[Job[Any], ...] = ()
        self.text = ""
        self.result: CompletionResult | None = None
        self._has_failed = False
        self.listener: asyncio.Queue[Item] = asyncio.Queue()

    @property
    def is_running(self) -> bool:
        return self.result is None and not self._has_failed

    def put_nowait(self, item: Item) -> None:
        """Another chunk, or the error that ended the generation."""
        if isinstance(item, SutureError):
            self._has_failed = True
        elif self.request.n == 1:
            self.text += item.text
            self.result = item.result
            item = self._heard(item)
        if self.request.n == 1 and not self.is_running:
            # Generations hold their whole prompt; only the text is remembered.
            self.jobs = ()
        self.listener.put_nowait(item)

    def leave(self) -> None:
        """Nobody listens any more: what runs is about to be cancelled, and goes on for nobody."""
        self._has_failed = self._has_failed or self.is_running

    def is_far_at(self, request: CompletionRequest) -> bool:
        """Whether the cursor of a request that ends with this answer's result is far too."""
        if self.result is not None and self.result.finish in ("superseded", "cancelled"):
            return False
        n_lines = request.prefix.count("\n", len(self.request.prefix))
        is_anchored = self.result is not None and self.result.prompt.layout == "anchor"
        return self._is_far or (is_anchored and n_lines > MAX_LINES // 2)

    def rest_for(self, request: CompletionRequest) -> Rest | None:
        """What is known of the answer to `request`; None if it is not the rest of this one."""
        mine, whole = self.request, self.whole
        if self._has_failed or not request.prefix.startswith(mine.prefix):
            return None
        typed = request.prefix[len(mine.prefix) :]
        if not whole.startswith(typed) or _but_for_texts(request) != _but_for_texts(mine):
            return None
        closers = self._closers_behind(typed, request)
        if closers is None:
            return None
        rest = Rest(whole[len(typed) :], closers, request.prefix)
        if self.result is None or (self.result.finish == "eos" and rest.text):
            return rest
        # An answer that was cut off by its length is worth only so much.
        is_complete = self.result.finish in ("stop", "suffix") or 2 * len(rest.text) >= len(whole)
        return rest if rest.text and is_complete and self.result.reason is None else None

    def hand_over(self, rest: Rest) -> asyncio.Queue[Item]:
        """A new listener that hears `rest` and what comes; the one before is superseded."""
        if self.is_running:
            self.listener.put_nowait(SUPERSEDED)
        self.listener = asyncio.Queue()
        self._over_closers = OverClosers(rest.closers, rest.prefix)
        text = self._over_closers.feed(rest.text)
        if self.result is not None:
            result = replace(self.result, edit=self._over_closers.edit)
            self.listener.put_nowait(CompletionChunk(text, result=result))
        elif text:
            self.listener.put_nowait(CompletionChunk(text))
        return self.listener

    @property
    def n_chars(self) -> int:
        """All the text that it holds."""
        request = self.request
        n_extra = sum(len(extra.text) for extra in request.extra)
        return len(request.prefix) + len(request.suffix) + n_extra + len(self.whole)

    @property
    def whole(self) -> str:
        """All that is known of the text: once it has ended, also what it writes over its rest."""
        edit = self.result.edit if self.result is not None else None
        return self.text if edit is None else edit.text

    def _closers_behind(self, typed: str, request: CompletionRequest) -> str | None:
        """The closers that the rest of the text is an edit over, once `typed` is typed.

        None where the text behind the cursor is another one.
        """
        written = OverClosers(self._rest, self.request.prefix)
        written.feed(typed)
        n_over = written.edit.delete_after if written.edit else 0
        suffix = self.request.suffix[n_over:]
        if not request.suffix.endswith(suffix):
            return None
        added = request.suffix.removesuffix(suffix)
        if added and (request.shape == "raw" or not are_auto_closed(added, typed)):
            return None
        return added + self._rest[n_over:]

    def _heard(self, chunk: CompletionChunk) -> CompletionChunk:
        """A chunk as the latest listener hears it, who may have typed some closers since."""
        if self._over_closers is None:
            return chunk
        if chunk.result is None:
            return replace(chunk, text=self._over_closers.feed(chunk.text))
        text = self._over_closers.feed(chunk.text + self.whole[len(self.text) :])
        result = replace(chunk.result, edit=self._over_closers.edit)
        return replace(chunk, text=text, result=result)


SUPERSEDED = CompletionChunk("", result=CompletionResult("superseded", "SUPERSEDED"))
EXCLUDED = CompletionChunk("", result=CompletionResult("eos", "EXCLUDED"))


def for_each_candidate(chunk: CompletionChunk, request: CompletionRequest) -> list[CompletionChunk]:
    """The chunks of a request all of whose candidates end with this one."""
    return [replace(chunk, index=index) for index in range(request.n)]


@dataclass(frozen=True, slots=True)
class Recalled:
    """The text of an earlier answer, and what of it is expected to come next."""

    text: str = ""
    rest: str = ""


class Answers:
    """The answers of late, of all sessions; the oldest finished ones are forgotten."""

    def __init__(self, max_answers: int = MAX_ANSWERS, max_chars: int = MAX_CHARS) -> None:
        self._max_answers = max_answers
        self._max_chars = max_chars
        self._answers: collections.deque[Answer] = collections.deque()

    def find(self, request: CompletionRequest) -> tuple[Answer, Rest] | None:
        """The latest answer that `request` goes on with, and what is known of its text."""
        if not is_remembered(request):
            return None
        for answer in reversed(self._answers):
            if answer.is_running and request.seq is None:
                # Who hears it now would be superseded, and without a number nobody is.
                continue
            rest = answer.rest_for(request)
            if rest is not None:
                return answer, rest
        return None

    def recall(self, request: CompletionRequest) -> Recalled:
        """What the latest answer of the session suggests, where none is the request's own.

        Also one that was left, or is used up: its text is a guess like any other.
        """
        if request.session is None:
            return Recalled()
        answers = (a for a in reversed(self._answers) if a.request.session == request.session)
        latest = next((answer for answer in answers if answer.whole), None)
        if latest is None:
            return Recalled()
        typed = request.prefix[len(latest.request.prefix) :]
        whole = latest.whole
        goes_on = request.prefix.startswith(latest.request.prefix) and whole.startswith(typed)
        return Recalled(whole, whole[len(typed) :] if goes_on else "")

    def add(self, answer: Answer) -> None:
        if not is_remembered(answer.request):
            return
        self._answers.append(answer)
        while len(self._answers) > self._max_answers or self._n_chars() > self._max_chars:
            oldest = next((old for old in self._answers if not old.is_running), None)
            if oldest is None or oldest is answer:
                return
            self._answers.remove(oldest)

    def _n_chars(self) -> int:
        return sum(answer.n_chars for answer in self._answers)


def is_remembered(request: CompletionRequest) -> bool:
    """Whether another request may go on with this one's answer.

    Only within typing sessions: elsewhere the same request twice may want two answers. Where ids
    are asked for, or a number of tokens, text alone is no answer. And the rest of what a grammar
    describes is seldom what it describes.
    """
    wants_ids = request.return_tokens or not request.detokenize or request.n_probs is not None
    wants_tokens = wants_ids or request.min_tokens > 0
    is_one = request.n == 1 and request.max_tokens > 0
    is_free = request.grammar is None
    return request.session is not None and is_one and is_free and not wants_tokens


def reported_for_rest(chunk: CompletionChunk) -> CompletionChunk:
    """A chunk of another request's generation: of its prompt nothing was evaluated for this one."""
    if chunk.result is None:
        return chunk
    prompt = chunk.result.prompt
    reused = replace(prompt, reused=prompt.tokens, evaluated=0)
    return replace(chunk, result=replace(chunk.result, prompt=reused))


def _but_for_texts(request: CompletionRequest) -> CompletionRequest:
    return replace(request, prefix="", suffix="", seq=None)
