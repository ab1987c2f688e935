"""Three hundred streams at once: each is whole, and the server still answers others at once."""

from __future__ import annotations

import asyncio
import time

import httpx2

from support.engine_completer import EngineCompleter
from support.http_server import events, serving
from support.toy import toy_budget, toy_codec, toy_encode, toy_vocabulary
from suture.server.completion import LoadedModel
from suture.server.engine.scheduler import Scheduler
from suture.server.engine.scripted import ScriptedEngine, random_model

N_STREAMS, N_TOKENS = 300, 12
BODY = {"max_tokens": N_TOKENS, "ignore_eos": True, "stream": True, "healing": "off"}
VOCABULARY = toy_vocabulary()


def engine() -> ScriptedEngine:
    """One that steps all streams at once, more than `--parallel` allows."""
    made = ScriptedEngine(
        VOCABULARY,
        toy_encode,
        random_model(VOCABULARY.n_vocab),
        n_ctx=30_000,
        n_batch=2048,
        n_sequences=N_STREAMS + 16,
    )
    made.n_rows = N_STREAMS
    return made


async def ask(url: str) -> tuple[list[httpx2.Response], list[float]]:
    """The streams' answers, and how long each `/health` took meanwhile."""
    waits: list[float] = []
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60, limits=limits) as http:
        streams = asyncio.gather(
            *(
                http.post("/v1/completions", json=BODY | {"prompt": f"{n}"})
                for n in range(N_STREAMS)
            )
        )
        while not streams.done():
            asked = time.perf_counter()
            assert (await http.get("/health")).status_code == 200
            waits.append(time.perf_counter() - asked)
            await asyncio.sleep(0.01)
        return await streams, waits


def test_three_hundred_streams_are_whole_and_health_answers_meanwhile() -> None:
    """Client, loop and engine share one interpreter here: the bound is no measure of speed."""
    made = engine()
    scheduler = Scheduler(lambda: made, queue_size=N_STREAMS, parallel=N_STREAMS)
    loaded = LoadedModel(made, None, toy_budget(), toy_codec(toy_encode))
    completer = EngineCompleter("toy", scheduler, loaded)
    scheduler.start()
    scheduler.wait_ready()
    try:
        with serving(completer) as url:
            began = time.perf_counter()
            answers, waits = asyncio.run(ask(url))
            took = time.perf_counter() - began
    finally:
        completer.close()
        scheduler.close()
    assert len(answers) == N_STREAMS
    assert all(events(answer)[-1] == "[DONE]" for answer in answers)
    assert len(waits) > 2 and max(waits) < max(5.0, took / 2)
