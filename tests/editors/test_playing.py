"""That a scenario fails where an editor does not do as it must: a runner that sees nothing proves
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from editors import playing
from editors.front_end import Key, Name, Part
from editors.playing import Play
from editors.scenario import read_scenarios
from editors.stage import Stage, rest_of, staging

TEXT = "x = 1"


class Puppet:
    """An editor that suggests the rest of `TEXT`, but for the look at it that a test names."""

    name: Name = "raw-vscode"
    status: dict[str, Any]

    def __init__(self) -> None:
        self.written = ""
        self.n_looks = 0
        self.hides_at = -1
        self.complaints: list[str] = []
        self.status = {"kind": "Normal", "reason": None}

    @property
    def text(self) -> str:
        return self.written

    @property
    def cursor(self) -> tuple[int, int]:
        return 0, len(self.written)

    @property
    def preview(self) -> str:
        self.n_looks += 1
        return self.written if self.n_looks == self.hides_at else TEXT

    def configure(self, options: Mapping[str, Any], closes_brackets: bool) -> None: ...

    def open(self, name: str, text: str) -> None:
        self.written = text

    def go_to(self, line: int, index: int) -> None: ...

    def type(self, text: str, ms_a_key: int = 0) -> None:
        self.written += text

    def press(self, key: Key) -> None: ...

    def paste(self, text: str) -> None:
        self.complaints.append("a paste")

    def accept(self, part: Part) -> None: ...

    def ask(self) -> None: ...

    def dismiss(self) -> None: ...

    def show_popup(self, rows: Sequence[str]) -> None: ...

    def split(self) -> None: ...

    def undo(self) -> None: ...


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staging(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


def play(steps: str, stage: Stage, front: Puppet) -> None:
    head = '[[scenario]]\nname = "a"\nwrites = "x = 1"\n'
    [scenario] = read_scenarios(f"{head}steps = [{steps}]")
    Play(scenario, front, stage).run()


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Puppet:
    monkeypatch.setattr(playing, "DEADLINE_S", 0.2)
    monkeypatch.setattr(playing, "HOLD_S", 0.1)
    monkeypatch.setattr(playing, "STAY_S", 0.1)
    return Puppet()


def test_one_that_does_as_it_must_passes(stage: Stage, front: Puppet) -> None:
    play(
        '{type = "x =", stays = true, shows = "x = 1", reason = "", kind = "Normal"},'
        '{text = "x =‸", contains = "x", requests = 0, idle = true}',
        stage,
        front,
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ('{type = "x"}, {shows = "x = 2"}', "step 2 (what is said): it shows: 'x = 1', expected"),
        ('{type = "x", nothing = true}', "step 1 (type): it shows"),
        ('{type = "x", text = "y"}', "the document: 'x', expected 'y'"),
        ('{type = "x", text = "‸x"}', "the cursor: (0, 1), expected (0, 0)"),
        ('{type = "x", contains = "y"}', "has no 'y'"),
        ('{reason = "ERROR"}', "the reason: '', expected 'ERROR'"),
        ('{kind = "Error"}', "the status: 'Normal'"),
        ("{requests = 1}", "0 requests"),
        ("{cancelled_at_least = 1}", "0 were cancelled"),
        ('{paste = "x"}', "the editor complained: ['a paste']"),
    ],
)
def test_one_that_does_not_fails(steps: str, said: str, stage: Stage, front: Puppet) -> None:
    with pytest.raises(AssertionError) as raised:
        play(steps, stage, front)
    assert said in str(raised.value)


def test_what_flickers_fails(stage: Stage, front: Puppet) -> None:
    front.hides_at = 3
    with pytest.raises(AssertionError, match="behind 'x': it shows: 'x'"):
        play('{type = "x =", stays = true, shows = "x = 1"}', stage, front)


@pytest.mark.parametrize(
    ("document", "prefix", "suffix", "rest"),
    [
        ("add(a, b)\n", "add", "\n", "(a, b)"),
        ("add(a, b)\n", "add(", ")\n", "a, b)"),
        ("add(a)  # x\n", "add(", ")  # x\n", "a"),
        ("add(a)", "sub", "", ""),
        ("y\n" * 500 + "x = 1\nz", "y\n" * 300 + "x = ", "\nz", "1"),
        ("x = 1" + "\nz" * 400, "x = ", "\nz" * 400, "1"),
    ],
)
def test_the_model_goes_on_with_its_document(
    document: str, prefix: str, suffix: str, rest: str
) -> None:
    assert rest_of(document, prefix, suffix) == rest
