"""Models that are loaded when they are asked for, and leave where others need their room."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from support.driving import TIMEOUT_S
from support.http_server import settings
from support.pools import UNKNOWN, Log, Scripted, answer, model_of, patient_answer
from suture.server import pooled_model
from suture.server.errors import EngineError, Loading, ModelError, NoRoom, SetupError
from suture.server.pool import ModelPool, TooLarge
from suture.server.pooled_model import PooledModel
from suture.server.routes.completer import ModelInfo

TEXTS = {"a": b"def x = (me)", "b": b"def x = user", "c": b"def x = ret"}
SAID = {"a": " (me)", "b": " user", "c": " ret"}
SIZES = dict.fromkeys(TEXTS, 100)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


async def until(pool: ModelPool, **states: str) -> None:
    while any(model_of(pool, name).state() != state for name, state in states.items()):
        await asyncio.sleep(0.002)


async def until_logged(log: Log, *entries: tuple[str, str]) -> None:
    while not set(entries) <= set(log):
        await asyncio.sleep(0.002)


def test_the_first_is_loaded_at_the_start_and_others_when_they_are_asked_for() -> None:
    models = Scripted(TEXTS, settings())
    models.gate.clear()

    async def work(pool: ModelPool) -> None:
        assert pool.state() == "loading"
        models.gate.set()
        assert await patient_answer(pool, "a") == SAID["a"]
        assert pool.state() == "ready"
        assert [model.state() for model in pool.models] == ["ready", "unloaded", "unloaded"]
        models.gate.clear()
        with pytest.raises(Loading) as raised:
            await answer(pool, "b")
        assert raised.value.retry_after >= 1
        assert pool.state() == "ready"
        models.gate.set()
        assert await patient_answer(pool, "b") == SAID["b"]
        assert await answer(pool, "a") == SAID["a"]

    with models.pool() as pool:
        run(work(pool))
    assert models.log == [("load", "a"), ("load", "b"), *[("free", "a"), ("free", "b")]]


def test_names_are_those_of_the_files_as_ollamas_clients_write_them_too() -> None:
    with Scripted({"qwen-1.5b": b"", "Other": b""}, settings()).pool() as pool:
        first, second = pool.models
        for name in ("qwen-1.5b", "qwen:1.5b", "library/qwen:1.5b", "QWEN-1.5B:latest"):
            assert pool.named(name) is first
        assert pool.named("other") is second
        assert pool.named("") is None is pool.named("qwen")


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(SetupError, match="a name of its own"):
        ModelPool(
            [Scripted(TEXTS, settings())._source(name) for name in ("a", "b", "a")], settings()
        )


def test_p1_a_leased_model_stays_until_its_last_request_ends() -> None:
    models = Scripted(TEXTS, settings())

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        model = model_of(pool, "a")
        with model.lease() as completer, model.lease():
            model.unload()
            assert completer.state() == "ready" and model.state() == "ready"
        assert model.state() == "unloaded"
        await until_logged(models.log, ("free", "a"))

    with models.pool() as pool:
        run(work(pool))


def test_p1_who_asks_again_keeps_it() -> None:
    models = Scripted(TEXTS, settings())

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        model = model_of(pool, "a")
        with model.lease():
            model.unload()
            assert await answer(pool, "a") == SAID["a"]
        assert model.state() == "ready"
        with model.lease():
            model.unload()
            model.load()
        assert model.state() == "ready"

    with models.pool() as pool:
        run(work(pool))
    assert models.log == [("load", "a"), ("free", "a")]


def test_p2_who_was_not_used_for_longest_makes_room_and_is_freed_first() -> None:
    models = Scripted(TEXTS, settings(memory_mb=200), SIZES)

    async def work(pool: ModelPool) -> None:
        for name in ("a", "b", "a", "c"):
            assert await patient_answer(pool, name) == SAID[name]
        assert [model.state() for model in pool.models] == ["ready", "unloaded", "ready"]
        assert await patient_answer(pool, "b") == SAID["b"]
        assert [model.state() for model in pool.models] == ["unloaded", "ready", "ready"]

    with models.pool() as pool:
        run(work(pool))
    p3_in_order = [("load", "a"), ("load", "b"), ("free", "b"), ("load", "c"), ("free", "a")]
    assert models.log[:6] == [*p3_in_order, ("load", "b")]


def test_p2_where_all_are_in_use_there_is_no_room_and_none_goes() -> None:
    models = Scripted(TEXTS, settings(memory_mb=150), SIZES)

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        with model_of(pool, "a").lease():
            with pytest.raises(NoRoom, match="b: others are in use, and it would be 50 MB") as told:
                await answer(pool, "b")
            assert (told.value.status, told.value.reason) == (503, "BUSY")
        assert model_of(pool, "b").state() == "unloaded"
        assert await patient_answer(pool, "b") == SAID["b"]

    with models.pool() as pool:
        run(work(pool))


def test_p2_a_model_that_can_never_fit_is_refused_and_the_first_one_at_once() -> None:
    sizes = SIZES | {"b": 151}
    models = Scripted(TEXTS, settings(memory_mb=150), sizes)

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        with pytest.raises(TooLarge, match="b takes 151 MB") as told:
            await answer(pool, "b")
        assert told.value.status == 400
        assert await answer(pool, "a") == SAID["a"]

    with models.pool() as pool:
        run(work(pool))
    first = Scripted({"b": b""}, settings(memory_mb=150), sizes)
    with pytest.raises(SetupError, match="--memory-mb"), first.pool():
        pass


def test_p4_who_was_just_loaded_for_somebody_waits_for_him(monkeypatch: pytest.MonkeyPatch) -> None:
    models = Scripted(TEXTS, settings(memory_mb=150), SIZES)

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        models.gate.clear()
        with pytest.raises(Loading):
            await answer(pool, "b")
        models.gate.set()
        await until(pool, b="ready")
        with pytest.raises(NoRoom):
            await answer(pool, "a")
        monkeypatch.setattr(pooled_model, "UNUSED_S", 0.0)
        assert await patient_answer(pool, "a") == SAID["a"]

    with models.pool() as pool:
        run(work(pool))


def test_p5_a_model_that_cannot_be_loaded_fails_its_own_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models = Scripted(TEXTS | {"b": b"broken"}, settings())

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        for _ in range(2):
            with pytest.raises(EngineError, match=r"^the model b could not be loaded$"):
                await patient_answer(pool, "b")
        assert model_of(pool, "b").state() == "failed" and pool.state() == "ready"
        assert caplog.text.count("not a GGUF file") == 1
        monkeypatch.setattr(pooled_model, "RETRY_S", 0.0)
        models.gate.clear()
        with pytest.raises(Loading):
            await answer(pool, "b")
        models.gate.set()
        await until(pool, b="failed")
        model_of(pool, "b").unload()
        assert model_of(pool, "b").state() == "unloaded"
        assert await answer(pool, "a") == SAID["a"]

    with models.pool() as pool:
        run(work(pool))


def test_p5_the_first_one_ends_the_server_where_it_cannot_be_loaded() -> None:
    async def work(pool: ModelPool) -> None:
        with pytest.raises(ModelError, match="not a GGUF file"):
            while True:
                assert pool.state() == "loading"
                await asyncio.sleep(0.002)

    with Scripted(TEXTS | {"a": b"broken"}, settings()).pool() as pool:
        run(work(pool))


def test_an_engine_that_is_gone_ends_the_server_whichever_it_is() -> None:
    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        await patient_answer(pool, "b")
        with model_of(pool, "b").lease() as completer:
            vars(completer)["state"] = lost
        with pytest.raises(EngineError, match="gone"):
            pool.state()

    def lost() -> str:
        raise EngineError("the engine is gone")

    with Scripted(TEXTS, settings()).pool() as pool:
        run(work(pool))


def test_who_had_no_request_for_long_is_unloaded_and_loaded_again_by_the_next() -> None:
    models = Scripted(TEXTS, settings(idle_minutes=60))

    def tend_much_later(pool: ModelPool) -> None:
        vars(model_of(pool, "a"))["_used_at"] = time.monotonic() - 3601
        pool.tend()

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        pool.tend()
        assert model_of(pool, "a").state() == "ready"
        with model_of(pool, "a").lease():
            tend_much_later(pool)
            assert model_of(pool, "a").state() == "ready"
        pool.tend()
        assert model_of(pool, "a").state() == "ready"
        tend_much_later(pool)
        assert model_of(pool, "a").state() == "unloaded" and pool.state() == "ready"
        assert await patient_answer(pool, "a") == SAID["a"]

    with models.pool() as pool:
        run(work(pool))
    assert models.log == [("load", "a"), ("free", "a")] * 2


def test_without_a_time_nobody_is_unloaded() -> None:
    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        vars(model_of(pool, "a"))["_used_at"] = time.monotonic() - 1e6
        pool.tend()
        assert model_of(pool, "a").state() == "ready"

    with Scripted(TEXTS, settings()).pool() as pool:
        run(work(pool))


def test_a_model_can_be_unloaded_while_it_is_loaded_but_not_the_first_at_the_start() -> None:
    models = Scripted(TEXTS, settings())
    models.gate.clear()

    async def work(pool: ModelPool) -> None:
        with pytest.raises(Loading):
            model_of(pool, "a").unload()
        models.gate.set()
        await patient_answer(pool, "a")
        model_of(pool, "b").load()
        model_of(pool, "b").unload()
        assert model_of(pool, "b").state() == "unloaded"
        assert await patient_answer(pool, "b") == SAID["b"]

    with models.pool() as pool:
        run(work(pool))


def test_what_models_have_counted_outlives_them() -> None:
    models = Scripted(TEXTS, settings())

    async def work(pool: ModelPool) -> None:
        for name in ("a", "b", "b"):
            await patient_answer(pool, name)
        before = pool.measured()
        assert before.counters.jobs == 3 == sum(before.counters.finishes.values())
        assert sum(before.counters.queue_s.counts) == 3
        model_of(pool, "b").unload()
        await until_logged(models.log, ("free", "b"))
        # What counts never falls, or it looks like a restart.
        assert pool.measured().counters.jobs == 3
        while pool.measured().counters.cells_free == before.counters.cells_free:
            await asyncio.sleep(0.002)
            assert pool.measured().counters.jobs == 3
        after = pool.measured()
        assert after.counters.finishes == before.counters.finishes
        assert 0 < after.counters.cells_free < before.counters.cells_free
        assert [(one.name, one.is_loaded) for one in after.models] == [
            *[("a", True), ("b", False), ("c", False)]
        ]
        assert pool.measured().summary()["requests"] == 3

    with models.pool() as pool:
        run(work(pool))


def test_what_a_file_says_is_known_before_the_model_is_loaded() -> None:
    models = Scripted(TEXTS, settings(), SIZES)

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        assert not model_of(pool, "b").info.fim
        while not model_of(pool, "c").info.fim:
            pool.tend()
            await asyncio.sleep(0.002)
        assert model_of(pool, "b").info.family == "qwen"
        assert [model.n_bytes for model in pool.models] == [100_000_000] * 3

    with models.pool() as pool:
        run(work(pool))


def test_files_are_read_one_at_a_time_and_none_any_more_at_the_end() -> None:
    models = Scripted(TEXTS, settings())
    began: list[str] = []
    goes_on = threading.Event()

    def surveyed(name: str) -> Callable[[], ModelInfo]:
        def survey() -> ModelInfo:
            began.append(name)
            assert goes_on.wait(TIMEOUT_S)
            return replace(UNKNOWN, name=name)

        return survey

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        for model in pool.models:
            source = model._source
            vars(model)["_source"] = replace(source, survey=surveyed(model.name))
        while not began:
            pool.tend()
            await asyncio.sleep(0.002)
        for _ in range(3):
            pool.tend()
        # What is to be loaded does not wait for the other files.
        model_of(pool, "c").load()
        goes_on.set()
        await until(pool, c="ready")
        assert began == ["b"] and not model_of(pool, "b").info.fim
        goes_on.clear()
        pool.tend()
        assert model_of(pool, "b").info.fim
        goes_on.set()

    with models.pool() as pool:
        run(work(pool))
    assert began == ["b"]


def test_what_was_learned_of_a_loaded_model_stays_when_its_file_is_read_late() -> None:
    models = Scripted(TEXTS, settings())

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        model = model_of(pool, "b")
        survey = model.survey()
        await patient_answer(pool, "b")
        model.unload()
        model.learn(survey())
        assert model.info.n_ctx == 4096

    with models.pool() as pool:
        run(work(pool))


def test_where_room_is_to_be_made_the_models_are_measured_at_the_start() -> None:
    models = Scripted(TEXTS, settings(memory_mb=200), SIZES)
    measured: list[str] = []

    def n_bytes(model: PooledModel) -> int:
        if model.name == "b":
            raise ModelError("not a GGUF file")
        measured.append(model.name)
        return 100

    pool = ModelPool([models._source(name) for name in TEXTS], models.settings)
    for model in pool.models:
        vars(model)["_n_bytes"] = None
        vars(model)["_source"] = replace(model._source, n_bytes=partial(n_bytes, model))
    pool.start()
    assert measured == ["a", "c"]
    pool.close()


def test_nothing_holds_a_model_that_was_unloaded() -> None:
    models = Scripted(TEXTS, settings())

    async def work(pool: ModelPool) -> None:
        await patient_answer(pool, "a")
        with model_of(pool, "a").lease() as completer:
            held = weakref.ref(completer)
        del completer
        model_of(pool, "a").unload()
        await until_logged(models.log, ("free", "a"))
        while held() is not None:
            # The pool's own collection may not be done yet.
            gc.collect()
            await asyncio.sleep(0.01)
        assert model_of(pool, "a").info.tokens is None
        assert model_of(pool, "a").info.n_ctx == 4096

    with models.pool() as pool:
        run(work(pool))
