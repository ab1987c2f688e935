"""Any order of requests, loads and unloads: each request gets its own model's answer, or is told
clearly why not; what is loaded fits, and all of it is freed."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from support.driving import TIMEOUT_S
from support.http_server import settings as settings_of
from support.pools import Log, Scripted, answer, model_of
from suture.server.errors import Loading, NoRoom, SutureError
from suture.server.pool import ModelPool

TEXTS = {"a": b"def x = (me)", "b": b"def x = user", "c": b"def x = ret"}
SAID = {"a": " (me)", "b": " user", "c": " ret"}
SIZES = {"a": 60, "b": 100, "c": 120}
BUDGET = 200

Step = tuple[str, str]
kinds = st.sampled_from(["ask", "ask", "ask", "load", "unload", "wait", "wait"])
steps = st.lists(st.tuples(kinds, st.sampled_from("abc")), max_size=24)


async def take(pool: ModelPool, todo: list[Step], log: Log) -> list[tuple[str, str | SutureError]]:
    """What each request got, of the model it asked."""

    async def ask(name: str) -> tuple[str, str | SutureError]:
        try:
            return name, await answer(pool, name, log)
        except SutureError as error:
            return name, error

    asked = []
    for what, name in todo:
        if what == "ask":
            asked.append(asyncio.ensure_future(ask(name)))
        elif what == "wait":
            while "loading" in [model.state() for model in pool.models]:
                await asyncio.sleep(0.001)
        else:
            model = model_of(pool, name)
            try:
                model.load() if what == "load" else model.unload()
            except (Loading, NoRoom):
                pass
        await asyncio.sleep(0)
        pool.tend()
    return [await one for one in asked]


@settings(max_examples=20, deadline=None)
@given(steps, st.sampled_from([0.0, 0.00001]))
def test_p1_p2_p3_any_order_of_requests_loads_and_unloads(todo: list[Step], idle: float) -> None:
    models = Scripted(TEXTS, settings_of(memory_mb=BUDGET, idle_minutes=idle), SIZES)
    with models.pool() as pool:
        answers = asyncio.run(asyncio.wait_for(take(pool, todo, models.log), TIMEOUT_S))
    for name, said in answers:
        assert said == SAID[name] or isinstance(said, Loading | NoRoom)
    held, running = Counter[str](), Counter[str]()
    for what, name in models.log:
        held[name] += {"load": 1, "free": -1}.get(what, 0)
        running[name] += {"begin": 1, "end": -1}.get(what, 0)
        assert sum(SIZES[one] * n for one, n in held.items()) <= BUDGET
        assert not (what == "free" and running[name])
        assert 0 <= held[name] <= 1
    assert not held.total() and not running.total()
    assert not [one for one in threading.enumerate() if one.name in ("engine", "models")]
