"""What turns the tokens of one generation into text, over joined bytes or over a decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from suture.healing import (
    Decoding,
    Detokenizer,
    OnStop,
    TokenTransducer,
    Vocabulary,
    WindowDetokenizer,
)
from suture.healing.utf8 import incomplete_tail
from suture.server.prompt.plan import PromptPlan
from suture.server.request import CompletionRequest

# No character has more bytes, so none is cut by more tokens.
_CHARACTER_BYTES = 4


class TextStream(Protocol):
    """One text being generated, token by token; `Detokenizer` says what the names mean."""

    @property
    def held_steps(self) -> int: ...

    @property
    def held_max_bytes(self) -> int: ...

    @property
    def held_chars(self) -> int: ...

    @property
    def stopped(self) -> bool: ...

    @property
    def stop_match(self) -> str | None: ...

    def feed(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


def byte_stream(
    request: CompletionRequest, plan: PromptPlan, transducer: TokenTransducer
) -> TextStream:
    """The text as the joined bytes of its tokens; the transducer has the request's stop strings."""
    return Detokenizer(
        transducer,
        skip_bytes=len(plan.pending),
        min_tokens=request.min_tokens,
        include_stop=_on_stop(request),
        on_incomplete=request.on_incomplete,
    )


def window_stream(
    request: CompletionRequest,
    plan: PromptPlan,
    vocabulary: Vocabulary,
    decoding: Decoding,
    stops: Sequence[str],
) -> TextStream:
    """The text as `decoding` makes it of a few tokens at a time."""
    return WindowDetokenizer(
        decoding,
        plan.kept_ids,
        stops=stops,
        skip=_pending_text(plan, vocabulary),
        min_tokens=request.min_tokens,
        include_stop=_on_stop(request),
        on_incomplete=request.on_incomplete,
    )


def _on_stop(request: CompletionRequest) -> OnStop:
    return OnStop.INCLUDE if request.include_stop else OnStop.EXCLUDE


def _pending_text(plan: PromptPlan, vocabulary: Vocabulary) -> str:
    """The pending bytes as text, from the start of the character that the kept prompt ends in."""
    if not plan.pending:
        return ""
    kept = b"".join(map(vocabulary.bytes_of, plan.kept_ids[-_CHARACTER_BYTES:]))
    unfinished = kept[len(kept) - incomplete_tail(kept) :]
    return (unfinished + plan.pending).decode("utf-8", "replace")
