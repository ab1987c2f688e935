"""Completions that are noted as they end, for who looks how the server does."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from suture.server.errors import RequestError, SutureError
from suture.server.recent import Ended, Recent
from suture.server.request import CompletionChunk, CompletionResult, Reason


async def recorded(
    completion: AsyncGenerator[CompletionChunk, None],
    n: int,
    recent: Recent,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[CompletionChunk, None]:
    """The chunks of a completion of `n` candidates, which is in `recent` once it has ended."""
    began_s = clock()
    first_text_s: float | None = None
    results: list[CompletionResult] = []
    reason: Reason | None = None
    is_refused = False
    try:
        async with aclosing(completion) as chunks:
            async for chunk in chunks:
                if chunk.text and first_text_s is None:
                    first_text_s = clock() - began_s
                if chunk.result is not None:
                    results.append(chunk.result)
                yield chunk
    except RequestError as error:
        # What is wrong with a request is no end of it, unless there is a code for that.
        reason, is_refused = error.reason, error.reason is None
        raise
    except Exception as error:
        reason = (error.reason if isinstance(error, SutureError) else None) or "ERROR"
        raise
    finally:
        # Who has the last chunk may close us without asking for one more.
        result = results[-1] if len(results) == n else None
        now_s = clock()
        if not is_refused:
            recent.add(_ended(result, reason, now_s - began_s, first_text_s), now_s)


def _ended(
    result: CompletionResult | None,
    reason: Reason | None,
    total_s: float,
    first_text_s: float | None,
) -> Ended:
    if result is not None:
        return Ended(result.finish, result.reason, total_s, first_text_s, result)
    if reason is not None:
        return Ended("error", reason, total_s, first_text_s)
    return Ended("cancelled", "CANCELLED", total_s, first_text_s)
