"""Typing what was answered: the same generation goes on, or its answer is in memory."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import pytest

from support.toy import toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.server.answers import Answer, Answers, is_remembered
from suture.server.completion import Completions, LoadedModel
from suture.server.engine.protocol import Logits
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine, speaking_model
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    FinishReason,
    SamplingParams,
)

VOCABULARY = toy_vocabulary()
SAID = b"def x = (me, user)\nreturn userName\n"
FIRST = CompletionRequest("def x =", session="s", seq=1)
REST = " (me, user)\nreturn userName\n"


class Editor:
    """One client on a scripted engine."""

    def __init__(self, model: Model) -> None:
        self.engine = ScriptedEngine(VOCABULARY, toy_encode, model)
        self.scheduler = Scheduler(lambda: self.engine)
        self.scheduler.start()
        self.scheduler.wait_ready(20)
        self.completions = Completions(self.scheduler)
        self.model = LoadedModel(self.engine, None, toy_budget(), toy_codec(toy_encode))

    def ask(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        return self.completions.complete(request, self.model)

    async def complete(self, request: CompletionRequest) -> tuple[str, CompletionResult]:
        return await rest_of(self.ask(request))


async def rest_of(
    chunks: AsyncGenerator[CompletionChunk, None],
) -> tuple[str, CompletionResult]:
    text = ""
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            text += chunk.text
            if chunk.result is not None:
                return text, chunk.result
    raise AssertionError("no result")


def run(
    work: Callable[[Editor], AsyncGenerator[None, None]] | Callable[[Editor], object],
    model: Model | None = None,
) -> None:
    async def go() -> None:
        editor = Editor(model or speaking_model(VOCABULARY, SAID))
        try:
            await work(editor)  # type: ignore[misc]
        finally:
            editor.completions.close()
            await asyncio.to_thread(editor.scheduler.close)

    asyncio.run(go())


class Gate:
    """A model that speaks up to a text, and on when it is let."""

    def __init__(self, until: bytes) -> None:
        self.until = len(until)
        self.go = threading.Event()
        self.model = speaking_model(VOCABULARY, SAID)

    def __call__(self, tokens: Sequence[int]) -> Logits:
        spoken = sum(len(VOCABULARY.bytes_of(token)) for token in tokens)
        assert spoken < self.until or self.go.wait(20)
        return self.model(tokens)


def test_a_finished_answer_is_served_from_memory() -> None:
    async def work(editor: Editor) -> None:
        assert (await editor.complete(FIRST))[0] == REST
        n_evaluated = editor.engine.n_evaluated
        typed = replace(FIRST, prefix="def x = (me", seq=2)
        text, result = await editor.complete(typed)
        assert text == REST.removeprefix(" (me")
        assert (result.finish, result.prompt.evaluated) == ("eos", 0)
        assert editor.engine.n_evaluated == n_evaluated

    run(work)


def test_a_running_generation_goes_on_for_who_types_it() -> None:
    gate = Gate(b"def x = (me, user")

    async def work(editor: Editor) -> None:
        first = editor.ask(FIRST)
        text = ""
        while not text.startswith(" (me"):
            text += (await anext(first)).text
        second = editor.ask(replace(FIRST, prefix="def x = (m", seq=2))
        heard = (await anext(second)).text
        assert heard and REST.removeprefix(" (m").startswith(heard)
        gate.go.set()
        old, new = await asyncio.gather(rest_of(first), rest_of(second))
        assert old[1].finish == "superseded" and REST.startswith(text + old[0])
        assert heard + new[0] == REST.removeprefix(" (m")
        assert new[1].prompt.evaluated == 0
        assert editor.scheduler.counters.jobs == 1

    run(work, gate)


def test_who_types_something_else_supersedes() -> None:
    gate = Gate(b"def x = (me, user")

    async def work(editor: Editor) -> None:
        first = editor.ask(FIRST)
        await anext(first)
        second = asyncio.create_task(editor.complete(replace(FIRST, prefix="def x = [", seq=2)))
        await asyncio.sleep(0.01)
        gate.go.set()
        assert (await rest_of(first))[1].finish == "superseded"
        await second
        assert editor.scheduler.counters.jobs == 2

    run(work, gate)


def test_a_client_that_left_leaves_nothing_to_go_on_with() -> None:
    gate = Gate(b"def x = (me, user")

    async def work(editor: Editor) -> None:
        first = editor.ask(FIRST)
        await anext(first)
        await first.aclose()
        gate.go.set()
        text, result = await editor.complete(replace(FIRST, seq=2))
        assert (text, result.finish) == (REST, "eos")

    run(work, gate)


def test_the_listener_that_took_over_cancels_when_it_leaves() -> None:
    gate = Gate(b"def x = (me, user")

    async def work(editor: Editor) -> None:
        first = editor.ask(FIRST)
        await anext(first)
        second = editor.ask(replace(FIRST, seq=2))
        await anext(second)
        await first.aclose()
        assert editor.scheduler.n_running == 1
        await second.aclose()
        gate.go.set()
        while editor.scheduler.n_running:
            await asyncio.sleep(0.001)

    run(work, gate)


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, suffix="x", infill=True),
        replace(FIRST, session="another"),
        replace(FIRST, session=None),
        replace(FIRST, max_tokens=5),
        replace(FIRST, sampling=SamplingParams(temperature=0.5)),
        replace(FIRST, stop=("\n",)),
        replace(FIRST, return_tokens=True),
        replace(FIRST, min_tokens=2),
        replace(FIRST, prefix="def x"),
        replace(FIRST, prefix="def x =  "),
    ],
)
def test_anything_else_that_differs_is_another_answer(other: CompletionRequest) -> None:
    answers = Answers()
    answer = finished(FIRST, REST, "eos")
    answers.add(answer)

    assert answers.find(FIRST) == (answer, REST)
    assert answers.find(other) is None


def finished(request: CompletionRequest, text: str, finish: FinishReason) -> Answer:
    answer = Answer(request)
    answer.put_nowait(CompletionChunk(text, result=CompletionResult(finish)))
    return answer


@pytest.mark.parametrize(
    ("finish", "typed", "known"),
    [
        ("eos", " (me, user)\nreturn userName", True),
        ("eos", REST, False),
        ("length", " (me", True),
        ("length", " (me, user)\nreturn user", False),
        ("stop", " (me, user)\nreturn userNam", True),
    ],
)
def test_an_answer_that_is_used_up_is_made_anew(
    finish: FinishReason, typed: str, known: bool
) -> None:
    answer = finished(FIRST, REST, finish)

    rest = answer.rest_for(replace(FIRST, prefix=FIRST.prefix + typed))

    assert (rest == REST.removeprefix(typed)) if known else (rest is None)


def test_the_answers_kept_are_bounded_but_running_ones_stay() -> None:
    answers = Answers(max_answers=3)
    running = Answer(replace(FIRST, prefix="r"))
    answers.add(running)
    for n in range(9):
        answers.add(finished(replace(FIRST, prefix=str(n)), "text", "eos"))

    assert answers.find(replace(FIRST, prefix="r")) == (running, "")
    assert answers.find(replace(FIRST, prefix="0")) is None
    assert answers.find(replace(FIRST, prefix="8")) is not None
    long = finished(replace(FIRST, prefix="y" * (1 << 21)), "text", "eos")
    answers.add(long)
    assert answers.find(replace(FIRST, prefix="8")) is None


def test_answers_to_a_grammar_are_not_typed_through() -> None:
    """The rest of a text that a grammar describes is not itself one that it describes."""
    assert is_remembered(FIRST)
    assert not is_remembered(replace(FIRST, grammar='root ::= "x"'))
