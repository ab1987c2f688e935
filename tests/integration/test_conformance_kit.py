"""The conformance kit finds what it looks for, and nothing where there is nothing to be found.

Its checks are run against a server with a model that copies, once without any fault and once for
each check with a fault that the check is there for.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator

import pytest

from conformance.check import Result
from conformance.suite import CHECKS, score
from support.copying_server import CopyingServer
from support.http_server import serving, serving_app, settings
from support.scripted_completer import VOCABULARY, ScriptedCompleter
from suture.server.engine.protocol import Engine
from suture.server.engine.scripted import Model, speaking_model
from suture.server.errors import Loading
from suture.server.request import CompletionChunk, CompletionRequest
from suture.server.settings import Settings

# Checks that must see a server before its model is loaded, without holes, or at its own speed.
SERVERS: dict[str, dict[str, float]] = {
    "A13": {"fills": False},
    "D1": {"step_s": 0.0005},
    "D2": {"step_s": 0.01},
    "D4": {"step_s": 0.005},
    "D5": {"step_s": 0.012},
    "D7": {"n_loading": 4},
    "D8": {"step_s": 0.002},
}
# Checks of how long something takes, or at once: a busy machine may have a bad moment, hardly two.
TIMED = {"D1", "D2", "D5", "D8"}
NAMES = {one.id.split(", ")[0]: one for one in CHECKS}


def judged(name: str, wanted: str, *faults: str) -> Result:
    """What the kit says of one check; asked twice where time made it something else."""
    result = result_of(name, *faults)
    if name in TIMED and result.outcome != wanted:
        result = result_of(name, *faults)
    return result


def result_of(name: str, *faults: str) -> Result:
    server = CopyingServer(frozenset(faults), **SERVERS.get(name, {}))  # type: ignore[arg-type]
    with serving_app(server.app) as url:
        found = asyncio.run(score(url, [NAMES[name]], limit_s=60, wait_s=5))
    [result] = found.results
    return result


@pytest.mark.parametrize("name", NAMES)
def test_a_server_without_faults_passes(name: str) -> None:
    result = judged(name, "pass")
    assert (result.outcome, result.detail) == ("pass", result.detail)


@pytest.mark.parametrize("name", NAMES)
def test_a_server_with_the_fault_fails(name: str) -> None:
    result = judged(name, "fail", name)
    assert (result.outcome, result.detail) == ("fail", result.detail)


class SlowToLoad(ScriptedCompleter):
    """Ours, whose model is there once somebody was told that it is not."""

    def __init__(self, model: Model, settings: Settings) -> None:
        self.was_refused = threading.Event()
        super().__init__(model, settings)

    def _load(self) -> Engine:
        assert self.was_refused.wait(30)
        return super()._load()

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionChunk, None]:
        try:
            async with contextlib.aclosing(super().complete(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except Loading:
            self.was_refused.set()
            raise


def test_our_server_says_when_to_come_back_while_its_model_loads() -> None:
    completer = SlowToLoad(speaking_model(VOCABULARY, b"const userName = ret;\n"), settings())
    completer.start()
    try:
        with serving(completer) as url:
            found = asyncio.run(score(url, [NAMES["D7"]]))
    finally:
        completer.close()
    [result] = found.results
    assert (result.outcome, result.detail) == ("pass", result.detail)
