"""complete() over the scripted engine: sessions, refusals, and what is kept between requests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import pytest

from support.toy import toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.healing import Encode
from suture.server.codec import Encoder
from suture.server.completion import Completions, LoadedModel, TransducerCache
from suture.server.encoding import EncodingThread, open_encoding
from suture.server.engine.protocol import Logits
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import Model, ScriptedEngine, random_model, speaking_model
from suture.server.errors import InfillUnsupported, InvalidRequest, QueueFull
from suture.server.prompt.budget import PromptBudget
from suture.server.prompt.families import LayoutDefaults, detect_family
from suture.server.request import CompletionRequest, CompletionResult, ExtraText, SamplingParams

VOCABULARY = toy_vocabulary()
TEXT = b"def x = (me)"


class Completing:
    """`Completions` over one scripted engine."""

    def __init__(self, model: Model, queue_size: int, encode_batch: int, pause_s: float) -> None:
        self.engine = ScriptedEngine(VOCABULARY, toy_encode, model)
        self.scheduler = Scheduler(lambda: self.engine, queue_size, parallel=1)
        self.scheduler.start()
        self.scheduler.wait_ready(20)
        encoding = open_encoding(encode_batch, 0.002)
        self.completions = Completions(self.scheduler, encoding, pause_s)
        self.model = LoadedModel(self.engine, None, toy_budget(), toy_codec(toy_encode))

    async def complete(self, request: CompletionRequest) -> tuple[str, CompletionResult]:
        text = ""
        async with contextlib.aclosing(self.completions.complete(request, self.model)) as chunks:
            async for chunk in chunks:
                text += chunk.text
                if chunk.result is not None:
                    return text, chunk.result
        raise AssertionError("no result")


@contextlib.asynccontextmanager
async def completing(
    model: Model, queue_size: int = 8, encode_batch: int = 1, pause_s: float = 60.0
) -> AsyncGenerator[Completing, None]:
    made = Completing(model, queue_size, encode_batch, pause_s)
    try:
        yield made
    finally:
        made.completions.close()
        await asyncio.to_thread(made.scheduler.close)


def gated(model: Model, go: threading.Event) -> Model:
    def logits(tokens: Sequence[int]) -> Logits:
        assert go.wait(20)
        return model(tokens)

    return logits


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def fill(made: Completing) -> list[asyncio.Task[tuple[str, CompletionResult]]]:
    """One request that runs and one that waits: a queue of one is full."""
    tasks = [asyncio.create_task(made.complete(CompletionRequest("def x =")))]
    await until(lambda: made.scheduler.n_running > 0)
    tasks.append(asyncio.create_task(made.complete(CompletionRequest("def x ="))))
    await until(lambda: made.scheduler.n_waiting == 1)
    return tasks


def test_a_request_completes() -> None:
    async def run() -> tuple[str, CompletionResult]:
        async with completing(speaking_model(VOCABULARY, TEXT)) as made:
            return await made.complete(CompletionRequest("def x ="))

    text, result = asyncio.run(run())
    assert (text, result.finish) == (" (me)", "eos")


def test_a_calibrated_layout_is_what_auto_stands_for_and_no_more() -> None:
    family = detect_family(VOCABULARY, "qwen2.5-coder")
    hole = CompletionRequest("def x", "()", infill=True, max_tokens=1)

    async def run() -> list[str]:
        async with completing(random_model(VOCABULARY.n_vocab)) as made:
            layouts = []
            for defaults in (None, LayoutDefaults("psm", "keep")):
                made.model = replace(made.model, family=family, defaults=defaults)
                for request in (hole, replace(hole, layout="spm")):
                    _, result = await made.complete(request)
                    layouts.append(result.prompt.layout)
            return layouts

    assert asyncio.run(run()) == ["anchor", "spm", "psm", "spm"]


async def candidates(
    made: Completing, request: CompletionRequest
) -> dict[int, tuple[str, CompletionResult]]:
    texts: dict[int, str] = {}
    done: dict[int, tuple[str, CompletionResult]] = {}
    async with contextlib.aclosing(made.completions.complete(request, made.model)) as chunks:
        async for chunk in chunks:
            texts[chunk.index] = texts.get(chunk.index, "") + chunk.text
            if chunk.result is not None:
                done[chunk.index] = texts[chunk.index], chunk.result
    return done


def test_candidates_are_those_of_the_seeds_that_follow_and_read_one_prompt() -> None:
    async def run() -> None:
        async with completing(random_model(VOCABULARY.n_vocab)) as made:
            sampling = SamplingParams(temperature=1.0, seed=5)
            request = CompletionRequest("def x = (me) " * 9, sampling=sampling, max_tokens=8, n=3)
            done = await candidates(made, request)
            n_prompt = done[0][1].prompt.tokens
            assert made.engine.n_evaluated <= n_prompt + 3 * 8
            assert [done[index][1].seed for index in range(3)] == [5, 6, 7]
            for index, (text, _) in done.items():
                alone = replace(request, n=1, sampling=replace(sampling, seed=5 + index))
                assert (await made.complete(alone))[0] == text

    asyncio.run(run())


def test_the_first_candidate_may_be_greedy_and_the_others_drawn() -> None:
    async def run() -> None:
        async with completing(random_model(VOCABULARY.n_vocab)) as made:
            greedy, drawn = SamplingParams(seed=5), SamplingParams(temperature=1.0, seed=5)
            request = CompletionRequest("def x = (me) ", sampling=greedy, max_tokens=8, n=3)
            done = await candidates(made, replace(request, sampling_of_others=drawn))
            for index, sampling in enumerate((greedy, drawn, drawn)):
                alone = replace(request, n=1, sampling=replace(sampling, seed=5 + index))
                assert (await made.complete(alone))[0] == done[index][0]
            assert len({text for text, _ in done.values()}) == 3

    asyncio.run(run())


def test_candidates_are_refused_and_cancelled_together() -> None:
    async def run() -> None:
        go = threading.Event()
        async with completing(gated(speaking_model(VOCABULARY, TEXT), go), 3) as made:
            with pytest.raises(InvalidRequest, match="at most 4"):
                await candidates(made, CompletionRequest("def x", n=5))
            waiting = asyncio.create_task(candidates(made, CompletionRequest("def x", n=2)))
            await until(lambda: made.scheduler.n_running + made.scheduler.n_waiting == 2)
            too_many = CompletionRequest("def x", n=3)
            with pytest.raises(QueueFull):
                await candidates(made, too_many)
            waiting.cancel()
            await asyncio.wait([waiting])
            go.set()
            await until(lambda: made.scheduler.n_running + made.scheduler.n_waiting == 0)
            go.clear()
            leaving = asyncio.create_task(candidates(made, CompletionRequest("def x =", n=4)))
            await until(lambda: made.scheduler.n_running + made.scheduler.n_waiting == 4)
            leaving.cancel()
            await asyncio.wait([leaving])
            go.set()
            await until(lambda: made.scheduler.n_running + made.scheduler.n_waiting == 0)
            assert (await made.complete(CompletionRequest("def x =")))[0] == " (me)"

    asyncio.run(run())


def test_all_candidates_of_a_superseded_request_are_superseded() -> None:
    async def run() -> None:
        async with completing(speaking_model(VOCABULARY, TEXT)) as made:
            await candidates(made, CompletionRequest("def x =", session="s", seq=2))
            late = CompletionRequest("def x =", session="s", seq=1, n=2)
            done = await candidates(made, late)
            assert [done[index][1].finish for index in range(2)] == ["superseded"] * 2

    asyncio.run(run())


def test_a_newer_request_supersedes_and_a_late_one_is_superseded() -> None:
    async def run() -> list[object]:
        go = threading.Event()
        async with completing(gated(speaking_model(VOCABULARY, TEXT), go)) as made:
            older = CompletionRequest("def x =", session="s", seq=1)
            first = asyncio.create_task(made.complete(older))
            await until(lambda: made.scheduler.n_running > 0)
            second = asyncio.create_task(
                made.complete(CompletionRequest("def x =", session="s", seq=2))
            )
            await asyncio.sleep(0.02)
            late = await made.complete(older)
            go.set()
            return [late[1].finish, (await first)[1].finish, (await second)[1].finish]

    assert asyncio.run(run()) == ["superseded", "superseded", "eos"]


def test_what_was_refused_may_come_again_with_its_number() -> None:
    async def run() -> list[object]:
        go = threading.Event()
        finishes: list[object] = []
        async with completing(gated(speaking_model(VOCABULARY, TEXT), go), queue_size=1) as made:
            blocking = await fill(made)
            request = CompletionRequest("def x =", session="s", seq=7)
            with pytest.raises(QueueFull):
                await made.complete(request)
            go.set()
            finishes += [(await task)[1].finish for task in blocking]
            with pytest.raises(InfillUnsupported):
                await made.complete(CompletionRequest("a", "b", infill=True, session="s", seq=8))
            finishes.append((await made.complete(request))[1].finish)
        return finishes

    # The refused 8 does not outrank the 7 that comes again either.
    assert asyncio.run(run()) == ["eos", "eos", "eos"]


def test_a_grammar_is_checked_once_for_all_candidates_and_blamed_on_its_field() -> None:
    async def run() -> None:
        async with completing(random_model(VOCABULARY.n_vocab)) as made:
            checked: list[str] = []
            check = made.engine.check_grammar
            made.engine.check_grammar = lambda gbnf: checked.append(gbnf) or check(gbnf)  # type: ignore[method-assign,func-returns-value]
            request = CompletionRequest("x", grammar='root ::= "a"', n=4, max_tokens=2)
            await made.complete(request)
            assert checked == ['root ::= "a"']
            for field in ("grammar", "json_schema"):
                bad = replace(request, grammar="root ::= x", grammar_field=field)
                with pytest.raises(InvalidRequest) as raised:
                    await made.complete(bad)
                assert raised.value.field == field and "rule x is not" in str(raised.value)

    asyncio.run(run())


def hole(typed: str) -> CompletionRequest:
    prefix = "def x = me\n" * 9 + typed
    return CompletionRequest(prefix, "return\n" * 9, infill=True, layout="anchor", max_tokens=3)


FAR = "x = me\n" * 6 + "x ="


def anchored(made: Completing) -> None:
    family = detect_family(VOCABULARY, "toy")
    assert family is not None
    made.model = replace(made.model, family=family)


def test_the_anchor_moves_in_a_pause() -> None:
    async def run() -> None:
        async with completing(random_model(VOCABULARY.n_vocab), pause_s=0.001) as made:
            anchored(made)
            await made.complete(hole("x"))
            _, far = await made.complete(hole(FAR))
            await until(lambda: made.scheduler.spare.finishes["length"] == 1)
            await asyncio.sleep(0.01)  # until the anchor is adopted
            assert 0 < made.scheduler.spare.evaluated_tokens < far.prompt.tokens
            # From the old anchor this would be too far.
            _, moved = await made.complete(hole(FAR + " x" * 3 + "\n" * 5))
            assert moved.prompt.evaluated < 20
            assert moved.prompt.layout == "anchor"

    asyncio.run(run())


def test_text_from_other_files_that_was_read_ahead_stays_in_the_cache() -> None:
    extra = (ExtraText("x = me\n" * 60, "b.py"), ExtraText("return\n" * 60, "c.py"))

    async def run() -> None:
        async with completing(random_model(VOCABULARY.n_vocab)) as made:
            anchored(made)
            budget = PromptBudget(made.engine.n_ctx, prefill_tokens_per_s=96)
            made.model = replace(made.model, budget=budget)
            typed = replace(hole("x"), extra=extra)
            _, before = await made.complete(typed)
            _, warming = await made.complete(replace(typed, max_tokens=0))
            assert warming.prompt.tokens > before.prompt.tokens + 200
            _, after = await made.complete(replace(typed, prefix=typed.prefix + "y"))
            assert after.prompt.tokens >= warming.prompt.tokens
            assert after.prompt.evaluated < 20
            # Elsewhere in the file only that place is read.
            elsewhere = replace(typed, prefix="def x()\n" * 5, suffix="import x\n" * 9)
            _, there = await made.complete(elsewhere)
            assert there.prompt.reused > 200

    asyncio.run(run())


def test_a_request_ends_the_pause() -> None:
    async def run() -> None:
        async with completing(random_model(VOCABULARY.n_vocab), pause_s=0.2) as made:
            anchored(made)
            await made.complete(hole("x"))
            await made.complete(hole(FAR))
            await made.complete(hole(FAR + " x"))
            n_evaluated = made.engine.n_evaluated
            await asyncio.sleep(0.05)
            assert made.engine.n_evaluated == n_evaluated

    asyncio.run(run())


def test_a_full_queue_is_noticed_before_planning() -> None:
    async def run() -> int:
        go = threading.Event()
        n_encoded = 0

        def counting(piece: bytes) -> Sequence[int]:
            nonlocal n_encoded
            n_encoded += 1
            return toy_encode(piece)

        async with completing(gated(speaking_model(VOCABULARY, TEXT), go), queue_size=1) as made:
            tasks = await fill(made)
            made.engine._encode = counting
            with pytest.raises(QueueFull):
                await made.complete(CompletionRequest("def x ="))
            go.set()
            await asyncio.gather(*tasks)
        return n_encoded

    assert asyncio.run(run()) == 0


@pytest.mark.parametrize("encode_batch", [1, 4])
def test_those_being_planned_count_towards_a_full_queue(encode_batch: int) -> None:
    async def run() -> list[object]:
        go = threading.Event()

        def waiting(piece: bytes) -> Sequence[int]:
            assert go.wait(20)
            return toy_encode(piece)

        model = speaking_model(VOCABULARY, TEXT)
        async with completing(model, queue_size=5, encode_batch=encode_batch) as made:
            made.model = replace(made.model, codec=toy_codec(waiting))
            request = CompletionRequest("def x =" + " " * 600)
            tasks = [asyncio.create_task(made.complete(request)) for _ in range(6)]
            await until(lambda: made.completions.n_preparing == 6)
            with pytest.raises(QueueFull):
                await made.complete(request)
            assert made.completions.n_preparing == 6
            tasks[3].cancel()
            await asyncio.gather(tasks[3], return_exceptions=True)
            assert made.completions.n_preparing == 5
            tasks[3] = asyncio.create_task(made.complete(request))
            await until(lambda: made.completions.n_preparing == 6)
            go.set()
            finishes: list[object] = [(await task)[1].finish for task in tasks]
            return [*finishes, made.completions.n_preparing]

    assert asyncio.run(run()) == [*["eos"] * 6, 0]


def test_a_crowd_gets_the_same_texts_however_it_is_planned() -> None:
    async def run(encode_batch: int) -> list[str]:
        model = speaking_model(VOCABULARY, TEXT)
        async with completing(model, queue_size=64, encode_batch=encode_batch) as made:
            requests = [CompletionRequest(f"{'#' * 600}{at}\ndef x =") for at in range(24)]
            answers = await asyncio.gather(*map(made.complete, requests))
            assert sum(made.completions.counters.encode_s.counts) == 24
            return [text for text, _ in answers]

    assert asyncio.run(run(1)) == asyncio.run(run(8))


def test_closing_waits_for_planning_that_reads_the_vocabulary() -> None:
    encoding = EncodingThread()
    begun, ended = threading.Event(), threading.Event()

    def work(encode: Encode) -> None:
        begun.set()
        time.sleep(0.05)
        ended.set()

    async def run() -> None:
        task = asyncio.create_task(encoding.run(work, Encoder(toy_encode)))
        await until(begun.is_set)
        task.cancel()  # which does not stop the thread
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    encoding.close()
    assert ended.is_set()


def test_the_transducers_kept_are_bounded() -> None:
    cache = TransducerCache(max_stop_bytes=100, max_entries=3)
    same = cache.get(VOCABULARY, ("a",), "skip")
    assert cache.get(VOCABULARY, ("a",), "skip") is same
    assert cache.get(VOCABULARY, ("a",), "show") is not same
    for i in range(10):
        cache.get(VOCABULARY, (f"{i}" * 40,), "skip")
    assert len(cache._transducers) == 2
    cache.get(VOCABULARY, ("z" * 500,), "skip")
    assert len(cache._transducers) == 1
