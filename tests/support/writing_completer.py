"""A completer that knows what one is writing, for clients that show it as one types."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from support.explaining import EXPLANATION
from support.fake_completer import FakeCompleter
from suture.server.errors import SutureError
from suture.server.explanation import Explanation
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    DraftReport,
    HealingReport,
    PromptReport,
)
from suture.server.shaping.closers import OverClosers, line_rest


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class WritingCompleter(FakeCompleter):
    """Goes on with the rest of `text`, a word at a time, behind a prefix that it begins with.

    Where the rest of the line is closers, the answer is an edit over them, as of a real model.
    Anything else is answered without text. Each word behind the first `n_free` waits for
    `may_go_on`. `raised` is raised behind so many words. `explained` are the requests to explain,
    which are none of `requests`.
    """

    text: str = ""
    may_go_on: threading.Event = field(default_factory=_set)
    n_free: int = 0
    raised: dict[int, SutureError] = field(default_factory=dict)
    explained: list[CompletionRequest] = field(default_factory=list)

    async def explain(self, request: CompletionRequest) -> Explanation:
        self.explained.append(request)
        return EXPLANATION

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        self.requests.append(request)
        prefix = request.prefix.replace("\r\n", "\n")
        rest = self.text.removeprefix(prefix) if self.text.startswith(prefix) else ""
        if "\r\n" in request.prefix + request.suffix:
            rest = rest.replace("\n", "\r\n")
        over = OverClosers(line_rest(request.prefix, request.suffix), request.prefix)
        inserted = over.feed(rest)
        words = re.findall(r"\s*\S+|\s+", inserted)
        is_whole = False
        try:
            for n, word in enumerate([*words, None]):
                while n >= self.n_free and not self.may_go_on.is_set():
                    await asyncio.sleep(0.002)
                await asyncio.sleep(self.delay_s)
                if n in self.raised:
                    raise self.raised[n]
                if word is not None:
                    yield CompletionChunk(word, (n,))
            is_whole = True
            result = CompletionResult(
                "eos",
                reason=None if rest else "EMPTY",
                completion_tokens=len(words),
                healing=HealingReport("exact"),
                prompt=PromptReport(len(prefix), len(prefix) - 3, 3),
                draft=DraftReport(4, 3),
                edit=over.edit,
            )
            yield CompletionChunk("", result=result)
        finally:
            self.cancelled += not is_whole
