"""Every scenario in every front end: three raw clients, and the editors that are installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from editors.front_end import FrontEnd, Name
from editors.needed import missing
from editors.playing import Play
from editors.scenario import FRONT_ENDS, Scenario, load_scenarios
from editors.stage import Stage, staging

SCENARIOS = load_scenarios(Path(__file__).with_name("scenarios.toml"))


def editing(name: Name, url: str, workspace: Path) -> AbstractContextManager[FrontEnd]:
    """The front end of that name. One whose editor is not installed skips its tests."""
    module, _, manner = name.partition("-")
    if importlib.util.find_spec(f"editors.{module}") is None:
        pytest.skip(missing(f"a driver for {name}"))
    driver = importlib.import_module(f"editors.{module}")
    named = {"name": name} if manner else {}
    editor: AbstractContextManager[FrontEnd] = driver.editing(url, workspace, **named)
    return editor


@pytest.fixture(scope="module", params=FRONT_ENDS)
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FrontEnd, Stage]]:
    """An editor for all scenarios, and the server that it asks."""
    workspace = tmp_path_factory.mktemp("workspace")
    with (
        staging(tmp_path_factory.mktemp("stage")) as stage,
        editing(request.param, stage.url, workspace) as front,
    ):
        yield front, stage


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.slug)
def test_scenario(scenario: Scenario, scene: tuple[FrontEnd, Stage]) -> None:
    front, stage = scene
    if front.name not in scenario.only:
        pytest.skip(scenario.because)
    play = Play(scenario, front, stage)
    try:
        play.run()
    finally:
        play.end()
