"""Typing what was answered: the same generation goes on, or its answer is in memory."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import pytest

from support.toy import toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.server.answers import Answer, Answers, Recalled, Rest, is_remembered
from suture.server.completion import Completions, LoadedModel
from suture.server.engine.protocol import Logits
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine, speaking_model
from suture.server.prompt.families import detect_family
from suture.server.request import (
    CompletionChunk,
    CompletionRequest,
    CompletionResult,
    Edit,
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
        family = detect_family(VOCABULARY, "toy")
        self.model = LoadedModel(self.engine, family, toy_budget(), toy_codec(toy_encode))

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
        self.reached, self.go = threading.Event(), threading.Event()
        self.model = speaking_model(VOCABULARY, SAID)

    def __call__(self, tokens: Sequence[int]) -> Logits:
        spoken = sum(len(VOCABULARY.bytes_of(token)) for token in tokens)
        if spoken >= self.until:
            self.reached.set()
            assert self.go.wait(20)
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


def test_a_mistake_taken_back_gets_an_answer_of_its_own() -> None:
    """Not the rest of the one that the mistake has superseded, which is about to end."""
    gate = Gate(b"def x = (me, user")

    async def work(editor: Editor) -> None:
        first = editor.ask(FIRST)
        await anext(first)
        # Or the mistake would be answered beside it.
        assert await asyncio.to_thread(gate.reached.wait, 20)
        mistyped = asyncio.create_task(editor.complete(replace(FIRST, prefix="def x = [", seq=2)))
        await asyncio.sleep(0.01)
        taken_back = asyncio.create_task(editor.complete(replace(FIRST, seq=3)))
        await asyncio.sleep(0.01)
        gate.go.set()
        assert (await mistyped)[1].finish == "superseded"
        assert (await taken_back)[1].finish == "eos"
        assert (await rest_of(first))[1].finish == "superseded"

    run(work, gate)


def test_without_a_number_nobody_is_superseded() -> None:
    gate = Gate(b"def x = (me, user")

    async def work(editor: Editor) -> None:
        unnumbered = replace(FIRST, seq=None)
        first = editor.ask(unnumbered)
        text = (await anext(first)).text
        second = asyncio.create_task(editor.complete(unnumbered))
        await asyncio.sleep(0.01)
        gate.go.set()
        rest, result = await rest_of(first)
        assert (text + rest, result.finish) == (REST, "eos")
        assert (await second)[0] == REST

    run(work, gate)


def test_deadlines_begin_anew_for_who_goes_on_with_an_answer() -> None:
    gate = Gate(b"def x = (me, user")

    async def work(editor: Editor) -> None:
        timed = replace(FIRST, deadline_ms=400)
        first = editor.ask(timed)
        await anext(first)
        await asyncio.sleep(0.3)
        second = asyncio.create_task(editor.complete(replace(timed, seq=2)))
        await asyncio.sleep(0.2)
        gate.go.set()
        assert (await second)[1].finish == "eos"

    run(work, gate)


def test_an_answer_that_has_ended_holds_its_text_only() -> None:
    async def work(editor: Editor) -> None:
        await editor.complete(FIRST)
        found = editor.completions._answers.find(replace(FIRST, seq=2))
        assert found is not None and found[0].jobs == ()
        assert found[0].n_chars == len(FIRST.prefix) + len(REST)

    run(work)


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


@pytest.mark.parametrize(("typed", "is_expected"), [(" (me", True), (" [", False)])
def test_what_was_said_before_a_client_left_is_drafted(typed: str, is_expected: bool) -> None:
    gate = Gate(b"def x = (me, user)")

    async def work(editor: Editor) -> None:
        first = editor.ask(FIRST)
        said = ""
        while not said.startswith(" (me, us"):
            said += (await anext(first)).text
        await first.aclose()
        gate.go.set()
        text, result = await editor.complete(replace(FIRST, prefix=FIRST.prefix + typed, seq=2))
        assert (FIRST.prefix + typed + text).encode() == SAID or not is_expected
        assert (result.draft.accepted > 0) == is_expected

    run(work, gate)


def test_what_is_recalled_is_the_sessions_own() -> None:
    answers = Answers()
    answers.add(finished(FIRST, REST, "length"))

    typed = replace(FIRST, prefix=FIRST.prefix + " (me", max_tokens=3)
    assert answers.recall(typed) == Recalled(REST, REST.removeprefix(" (me"))
    assert answers.recall(replace(FIRST, prefix="def y")) == Recalled(REST, "")
    for other in ("another", None):
        assert answers.recall(replace(FIRST, session=other)) == Recalled()


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
        replace(FIRST, n_probs=0),
        replace(FIRST, min_tokens=2),
        replace(FIRST, prefix="def x"),
        replace(FIRST, prefix="def x =  "),
    ],
)
def test_anything_else_that_differs_is_another_answer(other: CompletionRequest) -> None:
    answers = Answers()
    answer = finished(FIRST, REST, "eos")
    answers.add(answer)

    assert answers.find(FIRST) == (answer, Rest(REST, "", FIRST.prefix))
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
        ("suffix", " (me, user)\nreturn userNam", True),
        ("suffix", REST, False),
    ],
)
def test_an_answer_that_is_used_up_is_made_anew(
    finish: FinishReason, typed: str, known: bool
) -> None:
    answer = finished(FIRST, REST, finish)

    prefix = FIRST.prefix + typed
    rest = answer.rest_for(replace(FIRST, prefix=prefix))

    assert rest == (Rest(REST.removeprefix(typed), "", prefix) if known else None)


def test_the_answers_kept_are_bounded_but_running_ones_stay() -> None:
    answers = Answers(max_answers=3)
    running = Answer(replace(FIRST, prefix="r"))
    answers.add(running)
    for n in range(9):
        answers.add(finished(replace(FIRST, prefix=str(n)), "text", "eos"))

    assert answers.find(replace(FIRST, prefix="r")) == (running, Rest("", "", "r"))
    assert answers.find(replace(FIRST, prefix="0")) is None
    assert answers.find(replace(FIRST, prefix="8")) is not None
    long = finished(replace(FIRST, prefix="y" * (1 << 21)), "text", "eos")
    answers.add(long)
    assert answers.find(replace(FIRST, prefix="8")) is None


# In a hole, whose suffix the scripted model is shown first.
HOLE = replace(FIRST, prefix="f", suffix="\nbar\n", infill=True, layout="anchor")
CALL = "([a, {'k': b}], c)\nd()\n"
IN_HOLE = speaking_model(VOCABULARY, b"\nbar\nf" + CALL.encode())


def heard(answer: Answer, request: CompletionRequest) -> tuple[str, CompletionResult]:
    """What a request that goes on with an answer gets of it."""
    rest = answer.rest_for(request)
    assert rest is not None
    listener, text = answer.hand_over(rest), ""
    while not listener.empty():
        item = listener.get_nowait()
        assert isinstance(item, CompletionChunk)
        text += item.text
        if item.result is not None:
            return text, item.result
    raise AssertionError("no result")


@pytest.mark.parametrize(
    ("typed", "closed", "text", "edit"),
    [
        ("(", ")", "[a, {'k': b}], c", Edit(1, "[a, {'k': b}], c)\nd()\n")),
        ("([", "])", "a, {'k': b}", Edit(2, "a, {'k': b}], c)\nd()\n")),
        ("([a, {'", "'}])", "k", Edit(4, "k': b}], c)\nd()\n")),
        ("([a, {'", "])", "k': b}", Edit(2, "k': b}], c)\nd()\n")),
        ("([a, {'k': b", "}])", "", Edit(3, "}], c)\nd()\n")),
        ("([a, {'k': b}]", ")", ", c", Edit(1, ", c)\nd()\n")),
        ("([a, {'k': b}], c)", "", "\nd()\n", None),
        ("([a", "", ", {'k': b}], c)\nd()\n", None),
    ],
)
def test_closers_that_the_editor_put_there_are_no_difference(
    typed: str, closed: str, text: str, edit: Edit | None
) -> None:
    request = replace(HOLE, prefix="f" + typed, suffix=closed + "\nbar\n")
    answer = finished(HOLE, CALL, "eos")

    insertion, result = heard(answer, request)

    assert (insertion, result.edit) == (text, edit)


@pytest.mark.parametrize(
    "other",
    [
        replace(HOLE, prefix="f(", suffix="]\nbar\n"),
        replace(HOLE, prefix="f([", suffix=")]\nbar\n"),
        replace(HOLE, prefix="f(", suffix=");\nbar\n"),
        replace(HOLE, prefix="f(", suffix=")\nbaz\n"),
        replace(HOLE, prefix="f(", suffix=")"),
        replace(HOLE, prefix="f([a, {'k': b}]", suffix="])\nbar\n"),
    ],
)
def test_other_text_behind_the_cursor_is_another_answer(other: CompletionRequest) -> None:
    assert finished(HOLE, CALL, "eos").rest_for(other) is None


def test_a_raw_answer_is_no_edit() -> None:
    raw = replace(HOLE, shape="raw")
    answer = finished(raw, CALL, "eos")

    assert answer.rest_for(replace(raw, prefix="f(", suffix=")\nbar\n")) is None
    assert answer.rest_for(replace(raw, prefix="f(")) == Rest(CALL[1:], "", "f(")


@pytest.mark.parametrize(
    ("typed", "suffix", "text", "edit"),
    [
        ("", "])\nbar\n", "a", Edit(2, "a], c)\nd()\n")),
        ("a", "])\nbar\n", "", Edit(2, "], c)\nd()\n")),
        ("a]", ")\nbar\n", ", c", Edit(1, ", c)\nd()\n")),
        ("a], c)", "\nbar\n", "\nd()\n", None),
        ("a], c)\nd(", ")\nbar\n", "", Edit(1, ")\n")),
    ],
)
def test_closers_that_one_types_over_are_no_difference(
    typed: str, suffix: str, text: str, edit: Edit | None
) -> None:
    request = replace(HOLE, prefix="f([", suffix="])\nbar\n")
    answer = Answer(request, "])")
    whole = Edit(2, "a], c)\nd()\n")
    answer.put_nowait(CompletionChunk("a", result=CompletionResult("eos", edit=whole)))

    going_on = replace(request, prefix="f([" + typed, suffix=suffix)

    insertion, result = heard(answer, going_on)
    assert (insertion, result.edit) == (text, edit)
    assert answer.rest_for(replace(going_on, suffix=suffix + "x")) is None
    if typed == "a]":
        # A second bracket beside the one that stood there.
        assert answer.rest_for(replace(going_on, suffix="])\nbar\n")) is None


def test_a_running_generation_goes_on_where_the_editor_closes_a_bracket() -> None:
    gate = Gate(b"\nbar\nf([a, {")
    gate.model = IN_HOLE

    async def work(editor: Editor) -> None:
        first = editor.ask(HOLE)
        text = ""
        while not text.startswith("("):
            text += (await anext(first)).text
        second = editor.ask(replace(HOLE, prefix="f(", suffix=")\nbar\n", seq=2))
        heard = (await anext(second)).text
        third = editor.ask(replace(HOLE, prefix="f([", suffix="])\nbar\n", seq=3))
        going_on = asyncio.create_task(rest_of(third))
        await asyncio.sleep(0.01)
        gate.go.set()
        ended, result = await rest_of(second)
        assert result.finish == "superseded" and "[a, {'k': b}], c".startswith(heard + ended)
        text, result = await going_on
        assert (text, result.edit) == ("a, {'k': b}", Edit(2, "a, {'k': b}], c)\nd()"))
        assert (result.finish, result.prompt.evaluated) == ("eos", 0)
        assert editor.scheduler.counters.jobs == 1

    run(work, gate)


def test_over_closers_and_back_nothing_is_evaluated_again() -> None:
    """The bracket is there when the first request comes, and one types over it."""

    async def work(editor: Editor) -> None:
        asked = replace(HOLE, prefix="f([", suffix="])\nbar\n")
        text, result = await editor.complete(asked)
        assert (text, result.edit) == ("a, {'k': b}", Edit(2, "a, {'k': b}], c)\nd()"))
        over = replace(asked, prefix="f([a, {'k': b}]", suffix=")\nbar\n", seq=2)
        text, result = await editor.complete(over)
        assert (text, result.edit) == (", c", Edit(1, ", c)\nd()"))
        over = replace(asked, prefix="f([a, {'k': b}], c)", suffix="\nbar\n", seq=3)
        assert (await editor.complete(over))[0] == "\nd()"
        assert editor.scheduler.counters.jobs == 1

    run(work, IN_HOLE)


def test_answers_to_a_grammar_are_not_typed_through() -> None:
    """The rest of a text that a grammar describes is not itself one that it describes."""
    assert is_remembered(FIRST)
    assert not is_remembered(replace(FIRST, grammar='root ::= "x"'))
    assert not is_remembered(replace(FIRST, n_probs=0))
