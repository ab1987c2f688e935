"""Generations driven to their end: on an engine directly, or by what a scheduler's job answers."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from suture.server.decoding.generation import Generation
from suture.server.engine.protocol import Engine
from suture.server.errors import SutureError
from suture.server.request import CompletionChunk, CompletionResult

TIMEOUT_S = 20.0


def chunks_of(generation: Generation, engine: Engine) -> Iterator[CompletionChunk]:
    """All chunks, evaluated as the scheduler would; the last has the result."""
    sequence = engine.open()
    while not generation.finished:
        tree = generation.tree(len(engine.tokens(sequence)))
        [rows] = engine.evaluate([(sequence, tree)])
        chunk = generation.feed(rows)
        engine.commit(sequence, generation.kept)
        if chunk is not None:
            yield chunk
    engine.release(sequence)


def whole(generation: Generation, engine: Engine) -> tuple[str, CompletionResult]:
    """The text and the result."""
    chunks = list(chunks_of(generation, engine))
    result = chunks[-1].result
    assert result is not None and all(chunk.result is None for chunk in chunks[:-1])
    return "".join(chunk.text for chunk in chunks), result


def collect(answers: queue.Queue[object]) -> tuple[str, CompletionResult]:
    """The whole text and the result of a job; raises the error if one came."""
    text = ""
    while True:
        item = answers.get(timeout=TIMEOUT_S)
        if isinstance(item, SutureError):
            raise item
        assert isinstance(item, CompletionChunk)
        text += item.text
        if item.result is not None:
            return text, item.result
