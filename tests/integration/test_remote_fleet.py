"""Several backends over real sockets: who is asked, what if one fails, when it is asked again."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fake_backend import FakeBackend, Fault, playing
from support.toy import toy_encode, toy_vocabulary
from suture.server.engine.remote import health as health_module
from suture.server.engine.remote.affinity import affinity_key, rendezvous
from suture.server.engine.remote.backend import Backend
from suture.server.engine.remote.errors import (
    BackendBusy,
    BackendFailed,
    BackendRefused,
    BackendUnreachable,
)
from suture.server.engine.remote.fleet import FREE_LOAD, SPILL, Fleet
from suture.server.engine.remote.protocol import Heard
from suture.server.engine.scripted import speaking_model
from suture.server.errors import SetupError

VOCABULARY = toy_vocabulary()
TEXT = b"def add(x): return x\n    return user"
START = b"def "
KEYS = [affinity_key("team", "user", f"{n}.py") for n in range(40)]
BODY = {
    "model": "toy",
    "prompt": list(toy_encode(START)),
    "max_tokens": 64,
    "stream": True,
    "return_token_ids": True,
}

Told = tuple[Backend, Heard]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "CALM_PAUSE_S", 0.05)
    monkeypatch.setattr(health_module, "DRAINING_PAUSE_S", 0.05)
    monkeypatch.setattr(health_module, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(health_module, "LONGEST_PAUSE_S", 0.1)


@pytest.fixture
def fakes() -> Iterator[dict[str, FakeBackend]]:
    """Three backends, by their names."""
    with ExitStack() as running:
        fakes = [FakeBackend(speaking_model(VOCABULARY, TEXT)) for _ in range(3)]
        yield {running.enter_context(playing(fake)): fake for fake in fakes}


async def ask(backend: Backend) -> AsyncGenerator[Heard, None]:
    async with aclosing(backend.stream("/v1/completions", BODY, {})) as events:
        async for event in events:
            assert isinstance(event, dict)
            for choice in event["choices"]:
                yield Heard(tuple(choice["token_ids"]), finish=choice["finish_reason"])


async def ask_with_a_role(backend: Backend) -> AsyncGenerator[Heard, None]:
    """As chats begin: with whose turn it is."""
    yield Heard(text="")
    async with aclosing(ask(backend)) as answer:
        async for heard in answer:
            yield heard


async def version(backend: Backend) -> object:
    return await backend.get("/version")


@asynccontextmanager
async def fleet_of(
    *urls: str, probe: Callable[[Backend], Any] = version, is_ready: bool = True
) -> AsyncGenerator[Fleet[object], None]:
    """A fleet that is looked after, all of it well where it is to be ready."""
    fleet = Fleet([Backend(url, stall_s=0.5) for url in urls], probe)
    fleet.start()
    try:
        if is_ready:
            await until(lambda: states(fleet) == len(urls) * ["healthy"])
        yield fleet
    finally:
        await fleet.close()


def states(fleet: Fleet[object]) -> list[str]:
    return [one.state for one in fleet.status]


def whys(fleet: Fleet[object]) -> str:
    return " ".join(one.why for one in fleet.status)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def answer(fleet: Fleet[object], key: str = KEYS[0]) -> tuple[str, bytes]:
    """Who answered, and with what text."""
    names, said = set(), b""
    async with aclosing(fleet.stream(key, ask)) as stream:
        async for backend, heard in stream:
            names.add(backend.name)
            said += b"".join(map(VOCABULARY.bytes_of, heard.token_ids or ()))
    (name,) = names
    return name, START + said


def run(work: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(bounded())


def test_a1_a_key_has_its_backend(fakes: dict[str, FakeBackend]) -> None:
    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            for key in KEYS:
                assert await answer(fleet, key) == (rendezvous(key, fakes)[0], TEXT)

    run(check())
    assert all(len(fake.completions) > 4 for fake in fakes.values())


def test_a1_a_key_finds_what_was_read_for_it(fakes: dict[str, FakeBackend]) -> None:
    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            for _ in range(5):
                await answer(fleet)

    run(check())
    assert sum(fake.n_cached for fake in fakes.values()) == 4 * len(toy_encode(START))


class Still(Backend):
    """A backend that is well and never asked."""

    async def check(self) -> None: ...

    async def close(self) -> None: ...


async def nothing(backend: Backend) -> None: ...


async def endless(backend: Backend) -> AsyncGenerator[Heard, None]:
    while True:
        yield Heard((ord("x"),))


STILL = [Still(f"http://10.0.0.{n}") for n in range(6)]


@given(keys=st.lists(st.sampled_from(KEYS), max_size=60), n_backends=st.integers(1, 6))
@settings(max_examples=30)
def test_a1_no_backend_is_loaded_while_another_one_idles(keys: list[str], n_backends: int) -> None:
    async def check() -> None:
        fleet = Fleet(STILL[:n_backends], nothing)
        fleet.start()
        await until(lambda: fleet.is_ready and "unhealthy" not in {o.state for o in fleet.status})
        loads: Counter[str] = Counter()
        async with AsyncExitStack() as answers:
            for n, key in enumerate(keys, 1):
                most = max(FREE_LOAD, math.ceil(SPILL * n / n_backends))
                order = rendezvous(key, [one.name for one in fleet.status])
                stream = await answers.enter_async_context(aclosing(fleet.stream(key, endless)))
                chosen = (await anext(stream))[0].name
                assert chosen == next(name for name in order if loads[name] < most)
                loads[chosen] += 1
                assert {one.name: one.n_leased for one in fleet.status if one.n_leased} == loads
        assert not any(one.n_leased for one in fleet.status)
        await fleet.close()

    run(check())


BEFORE: list[Fault] = [
    "dies", "stalls", "garbage", "500", "503", "429", "no events", "endless head", "endless event",
]  # fmt: skip
MIDDLE: list[Fault] = [
    "dies in the middle", "stalls in the middle", "stops in the middle", "error in the middle",
    "half JSON",
]  # fmt: skip


@pytest.mark.parametrize("fault", BEFORE)
def test_a2_what_fails_before_it_says_anything_is_asked_elsewhere(
    fakes: dict[str, FakeBackend], fault: Fault
) -> None:
    first, second, third = rendezvous(KEYS[0], fakes)
    fakes[first].fault = fault

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            assert await answer(fleet) == (second, TEXT)

    run(check())
    # The probe's connection is kept, and may have been closed before: it is tried over a new one.
    assert len(fakes[first].completions) == (2 if fault == "dies" else 1)
    assert not fakes[third].completions


def test_a2_what_says_whose_turn_it_is_has_said_nothing(fakes: dict[str, FakeBackend]) -> None:
    first, second, _ = rendezvous(KEYS[0], fakes)
    fakes[first].fault = "500"

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            told = [told async for told in fleet.stream(KEYS[0], ask_with_a_role)]
            assert next(backend.name for backend, heard in told if heard.token_ids) == second

    run(check())


@pytest.mark.parametrize("fault", MIDDLE)
def test_a2_what_fails_in_the_middle_is_an_error(
    fakes: dict[str, FakeBackend], fault: Fault
) -> None:
    first, *others = rendezvous(KEYS[0], fakes)
    fakes[first].fault = fault
    heard: list[Told] = []

    async def check() -> None:
        async with fleet_of(*fakes) as fleet, aclosing(fleet.stream(KEYS[0], ask)) as stream:
            with pytest.raises(BackendFailed):
                async for told in stream:
                    heard.append(told)

    run(check())
    assert len(heard) == 2
    assert not any(fakes[name].completions for name in others)


def test_a2_what_two_backends_die_of_is_shown_to_no_third(fakes: dict[str, FakeBackend]) -> None:
    for fake in fakes.values():
        fake.fault = "dies"

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            with pytest.raises(BackendFailed):
                await answer(fleet)

    run(check())
    assert sum(bool(fake.completions) for fake in fakes.values()) == 2


def test_a2_what_one_refuses_no_other_is_asked(fakes: dict[str, FakeBackend]) -> None:
    for fake in fakes.values():
        fake.fault = "400"

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            for _ in range(5):
                with pytest.raises(BackendRefused, match="a 400 to order"):
                    await answer(fleet)
            assert states(fleet) == 3 * ["healthy"]

    run(check())
    assert sum(len(fake.completions) for fake in fakes.values()) == 5


def test_a_busy_one_is_left_alone_as_long_as_it_wants(fakes: dict[str, FakeBackend]) -> None:
    first, second, _ = rendezvous(KEYS[0], fakes)
    fakes[first].faults, fakes[first].retry_after = deque(["429"]), "1"

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            assert [(await answer(fleet))[0] for _ in range(3)] == 3 * [second]
            assert states(fleet) == 3 * ["healthy"]
            await asyncio.sleep(1.1)
            assert (await answer(fleet))[0] == first

    run(check())
    assert len(fakes[first].completions) == 2


def test_where_all_are_busy_the_client_is_told_how_long(fakes: dict[str, FakeBackend]) -> None:
    for fake, wait in zip(fakes.values(), ("30", "7", "40"), strict=True):
        fake.fault, fake.retry_after = "503", wait

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            with pytest.raises(BackendBusy):
                await answer(fleet)
            with pytest.raises(BackendBusy) as caught:
                await answer(fleet)
            assert 5 <= caught.value.retry_after <= 7

    run(check())
    assert all(len(fake.completions) == 1 for fake in fakes.values())


def test_one_that_fails_again_and_again_is_not_asked_for_a_while(
    fakes: dict[str, FakeBackend], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health_module, "FIRST_PAUSE_S", 60)
    monkeypatch.setattr(health_module, "LONGEST_PAUSE_S", 60)
    first, second, _ = rendezvous(KEYS[0], fakes)

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            fakes[first].fault = "500"
            assert {(await answer(fleet))[0] for _ in range(8)} == {second}
            assert "requests fail" in whys(fleet)

    with caplog.at_level(logging.WARNING, "suture.remote"):
        run(check())
    assert len(fakes[first].completions) == health_module.FAILURES_IN_A_ROW
    assert f"{first}: requests fail, one after the other" in caplog.messages
    # What it says of them may quote them.
    assert "to order" not in caplog.text


def test_a3_one_that_dies_in_a_stream_is_left_found_again_and_probed_anew() -> None:
    probed: list[str] = []

    async def probe(backend: Backend) -> object:
        probed.append(backend.name)
        return await backend.get("/version")

    def starting(port: int) -> Any:
        return playing(FakeBackend(speaking_model(VOCABULARY, TEXT), step_s=0.02), port=port)

    async def check() -> None:
        dying = ExitStack()
        with dying, starting(0) as other:
            port = free_port()
            url = dying.enter_context(starting(port))
            key = next(key for key in KEYS if rendezvous(key, [url, other])[0] == url)
            async with fleet_of(url, other, probe=probe) as fleet:
                with pytest.raises(BackendFailed, match="broke off"):
                    async for _ in fleet.stream(key, ask):
                        await asyncio.to_thread(dying.close)
                assert (await answer(fleet, key)) == (other, TEXT)
                await until(lambda: "no server answers there" in whys(fleet))
                with starting(port):
                    await until(lambda: states(fleet) == ["healthy", "healthy"])
                    assert (await answer(fleet, key)) == (url, TEXT)
        assert Counter(probed) == {url: 2, other: 1}

    run(check())


def test_a3_a_backend_is_not_asked_before_it_was_probed(fakes: dict[str, FakeBackend]) -> None:
    (url, fake), *_ = fakes.items()
    go_on = asyncio.Event()

    async def probe(backend: Backend) -> str:
        await go_on.wait()
        return "probed"

    async def check() -> None:
        async with fleet_of(url, probe=probe, is_ready=False) as fleet:
            await until(lambda: bool(fake.asked))
            with pytest.raises(BackendUnreachable, match="it has not answered yet"):
                await answer(fleet)
            assert not fleet.is_ready
            go_on.set()
            await until(lambda: fleet.is_ready)
            assert [one.probed for one in fleet.status] == ["probed"]
            assert (await answer(fleet)) == (url, TEXT)

    run(check())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BackendRefused("another vocabulary"), "another voc"),
        (KeyError("x"), "looking at it"),
    ],
)
def test_a3_a_probe_that_fails_says_why_and_is_tried_again(
    fakes: dict[str, FakeBackend], error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = next(iter(fakes))
    errors = [error, error]

    async def probe(backend: Backend) -> None:
        if errors:
            raise errors.pop()

    async def check() -> None:
        async with fleet_of(url, probe=probe, is_ready=False) as fleet:
            await until(lambda: words in whys(fleet))
            with pytest.raises(BackendUnreachable, match=words):
                await answer(fleet)
            await until(lambda: fleet.is_ready)

    run(check())
    assert f"{url}: {words}" in caplog.text, "of several servers, nobody could tell which one"


def test_a4_a_backend_that_is_not_there_at_the_start_is_asked_once_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    async def check() -> None:
        async with fleet_of(url, is_ready=False) as fleet:
            await until(lambda: "no server answers there" in whys(fleet))
            with pytest.raises(BackendUnreachable, match="no server answers there"):
                await answer(fleet)
            with playing(FakeBackend(speaking_model(VOCABULARY, TEXT)), port=port):
                await until(lambda: fleet.is_ready)
                assert await answer(fleet) == (url, TEXT)

    with caplog.at_level(logging.WARNING, "suture.remote"):
        run(check())
    assert caplog.messages[:2] == [f"{url}: no server answers there", f"{url}: it answers"]


def test_one_that_drains_ends_what_it_has_begun_and_is_asked_nothing_new(
    fakes: dict[str, FakeBackend],
) -> None:
    first, second, _ = rendezvous(KEYS[0], fakes)
    fakes[first].step_s = 0.05

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            running = asyncio.create_task(answer(fleet))
            await until(lambda: fakes[first].n_said > 0)
            fakes[first].health = 503
            await until(lambda: "draining" in states(fleet))
            assert (await answer(fleet))[0] == second
            assert not running.done()
            assert await running == (first, TEXT)
            fakes[first].health = 200
            await until(lambda: states(fleet) == 3 * ["healthy"])
            assert (await answer(fleet))[0] == first

    run(check())


def test_who_leaves_is_heard_of_by_the_backend(fakes: dict[str, FakeBackend]) -> None:
    first = rendezvous(KEYS[0], fakes)[0]
    fakes[first].fault = "endless"
    fakes[first].step_s = 0.01

    async def check() -> None:
        async with fleet_of(*fakes) as fleet:
            stream = fleet.stream(KEYS[0], ask)
            for _ in range(3):
                await anext(stream)
            await stream.aclose()
            await until(lambda: fakes[first].n_left == 1)
            assert states(fleet) == 3 * ["healthy"]
            assert not any(one.n_leased for one in fleet.status)

    run(check())
    assert fakes[first].n_running == 0


def test_closing_leaves_nothing_running(fakes: dict[str, FakeBackend]) -> None:
    async def check() -> None:
        before = asyncio.all_tasks()
        async with fleet_of(*fakes):
            assert asyncio.all_tasks() > before
        assert asyncio.all_tasks() == before

    run(check())


def test_a_fleet_has_backends_that_differ() -> None:
    with pytest.raises(SetupError, match="no backend"):
        Fleet([], nothing)
    with pytest.raises(SetupError, match="twice"):
        Fleet([Backend("http://a:1"), Backend("http://a:1/v1/")], nothing)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
