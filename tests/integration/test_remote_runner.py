"""Jobs on a fleet of backends: each is told its end, once, and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from support.fake_backend import FakeBackend, playing
from support.toy import toy_budget, toy_encode, toy_vocabulary
from suture.healing import TokenTransducer
from suture.server.decoding.text_stream import byte_stream
from suture.server.engine.job import Clock
from suture.server.engine.remote.backend import Backend
from suture.server.engine.remote.fleet import Ask, Fleet
from suture.server.engine.remote.generation import RemoteGeneration
from suture.server.engine.remote.probe import Probed
from suture.server.engine.remote.protocol import Affinity, Heard
from suture.server.engine.remote.runner import RemoteJob, RemoteRunner
from suture.server.engine.remote.served import Served
from suture.server.engine.remote.vllm import Vllm
from suture.server.engine.scripted import speaking_model
from suture.server.errors import SutureError
from suture.server.prompt.plan import plan_prompt
from suture.server.request import CompletionChunk, CompletionRequest, FinishReason

VOCABULARY = toy_vocabulary()
SPEAKING = speaking_model(VOCABULARY, b"def add(x): return userName()\n    return me")
Told = list[CompletionChunk | SutureError]


def job_of(told: Told, prompt_deadline_ms: int | None = None) -> RemoteJob:
    request = CompletionRequest("def add(x): return userNa", shape="raw", max_tokens=8)
    plan = plan_prompt(request, VOCABULARY, None, toy_encode, toy_budget())
    text = byte_stream(request, plan, TokenTransducer(VOCABULARY, (), "skip"))
    generation = RemoteGeneration(request, plan, VOCABULARY, text, toy_encode, Affinity("k"))
    return RemoteJob(generation, told.append, prompt_deadline_ms=prompt_deadline_ms)


def ends(told: Told) -> list[FinishReason]:
    results = [one.result for one in told if isinstance(one, CompletionChunk)]
    return [result.finish for result in results if result is not None]


async def _probe(backend: Backend) -> Served:
    return Served(Probed("vllm", "0.32.0", "toy", 4096, "recursive", ""), Vllm())


@asynccontextmanager
async def running(url: str, parallel: int) -> AsyncGenerator[RemoteRunner, None]:
    fleet = Fleet([Backend(url)], _probe)
    fleet.start()
    try:
        while not fleet.is_ready:
            await asyncio.sleep(0.01)
        yield RemoteRunner(fleet, VOCABULARY, parallel, queue_size=8)
    finally:
        await fleet.close()


def test_f4_a_job_that_ends_before_its_first_step_is_told_so() -> None:
    async def scenario(url: str) -> None:
        told: Told = []
        spare_told: Told = []
        async with running(url, parallel=1) as runner:
            job = job_of(told)
            runner.submit(job)
            runner.cancel(job, "superseded")
            await asyncio.sleep(0.05)
            assert ends(told) == ["superseded"]
            assert not runner.running
            assert runner.counters.cancelled_waiting["superseded"] == 1
            runner.submit_spare(spare := job_of(spare_told))
            runner.cancel(spare, "cancelled")
            await asyncio.sleep(0.05)
            assert ends(spare_told) == ["cancelled"]

    with playing(FakeBackend(SPEAKING)) as url:
        asyncio.run(scenario(url))


@pytest.mark.parametrize("deadline_ms", [0, 50])
def test_f4_a_job_whose_time_is_over_does_not_wait_for_a_place(deadline_ms: int) -> None:
    async def scenario(url: str) -> None:
        first: Told = []
        told: Told = []
        async with running(url, parallel=1) as runner:
            runner.submit(stalled := job_of(first))
            runner.submit(job_of(told, deadline_ms))
            await asyncio.sleep(0.2)
            assert ends(told) == ["deadline"]
            assert runner.n_waiting == 0
            assert runner.running == [stalled]
            runner.cancel(stalled, "cancelled")
            await asyncio.sleep(0.05)

    with playing(FakeBackend(SPEAKING, fault="stalls")) as url:
        asyncio.run(scenario(url))


class _Steered:
    """A fleet whose backend says "x" as often as it is told to."""

    is_ready = True
    n_backends = n_ready = 1

    def __init__(self) -> None:
        self.say = asyncio.Event()
        self.n_said = 0

    def check_ready(self) -> None:
        """There is always one."""

    async def stream(self, key: str, ask: Ask) -> AsyncGenerator[tuple[Backend, Heard], None]:
        while True:
            await self.say.wait()
            self.say.clear()
            self.n_said += 1
            yield cast(Backend, None), Heard((ord("x"),))


def test_a_job_that_another_request_goes_on_with_has_its_time_anew() -> None:
    async def scenario() -> None:
        told: Told = []
        runner = RemoteRunner(cast("Fleet[Served]", _Steered()), VOCABULARY, 1, 1)
        runner.submit(job := job_of(told, prompt_deadline_ms=1000))
        # It is being waited for what the backend says.
        await asyncio.sleep(0.1)
        job.clock = Clock(None, prompt_deadline_ms=60_000)
        await asyncio.sleep(1.2)
        assert not told
        runner.cancel(job, "superseded")
        await asyncio.sleep(0.01)
        assert ends(told) == ["superseded"]

    asyncio.run(scenario())


def test_a_deadline_that_begins_with_the_first_token_ends_a_job_that_waits_for_more() -> None:
    async def scenario() -> None:
        told: Told = []
        runner = RemoteRunner(cast("Fleet[Served]", fleet := _Steered()), VOCABULARY, 1, 1)
        job = job_of(told, prompt_deadline_ms=60_000)
        job.clock = Clock(deadline_ms=20, prompt_deadline_ms=60_000)
        runner.submit(job)
        fleet.say.set()
        async with asyncio.timeout(10):
            while not ends(told):
                await asyncio.sleep(0.01)
        assert ends(told) == ["deadline"]
        assert fleet.n_said == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("n_turns", range(6))
def test_f3_a_job_ends_whenever_it_is_cancelled_while_a_token_comes(n_turns: int) -> None:
    async def scenario() -> None:
        told: Told = []
        fleet = _Steered()
        runner = RemoteRunner(cast("Fleet[Served]", fleet), VOCABULARY, 1, 1)
        runner.submit(job := job_of(told, prompt_deadline_ms=60_000))
        await asyncio.sleep(0.01)
        fleet.say.set()
        for _ in range(n_turns):
            await asyncio.sleep(0)
        runner.cancel(job, "superseded")
        await asyncio.sleep(0.01)
        assert ends(told) == ["superseded"]
        assert not runner.running

    asyncio.run(scenario())
