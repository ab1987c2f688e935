"""What one does in an editor and what must come of it, read from a file. PURE.

A scenario is a document, what the model has in mind, and steps. A step does one thing, by its
*verb*, and says what must be so then; it may only say. In texts `‸` is the cursor.

What is said of requests is about those that generate, since the step before that said something of
them: how many there were until then depends on how fast one types.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from editors.front_end import Key, Name, Part

CARET = "‸"
Mode = Literal[
    "ready",
    "start",
    "kill",
    "slow",
    "silent",
    "halting",
    "loading",
    "refuse-key",
    "garbage",
    "broken",
]
FRONT_ENDS: tuple[Name, ...] = get_args(Name)


class WrongScenario(ValueError):
    """A scenario file that says what cannot be read."""


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Opened(_Said):
    """Another document that one goes to."""

    file: str
    text: str = CARET

    @model_validator(mode="after")
    def _one_cursor(self) -> Self:
        _has_cursor("text", self.text)
        return self


_VERBS = ("type", "press", "paste", "accept", "ask", "dismiss", "undo", "popup", "split", "go_to",
          "open", "server")  # fmt: skip


class Step(_Said):
    """One thing done, and what must be so then.

    `stays` types key by key and wants `shows` after each; `type` may have `ms_a_key` instead.
    `shows` is the document with what is suggested in it, `nothing` that nothing is. A `reason` that
    is empty is none. `requests` began to generate, `cancelled` are all of them that were since the
    scenario began; `idle`: none runs.
    """

    type: str | None = None
    press: Key | None = None
    paste: str | None = None
    accept: Part | None = None
    ask: Literal[True] | None = None
    dismiss: Literal[True] | None = None
    undo: Literal[True] | None = None
    popup: tuple[str, ...] | None = Field(default=None, strict=False)
    split: Literal[True] | None = None
    go_to: tuple[int, int] | None = Field(default=None, strict=False)
    open: Opened | None = None
    server: Mode | None = None

    ms_a_key: int = 0
    stays: bool = False
    shows: str | None = None
    nothing: Literal[True] | None = None
    text: str | None = None
    contains: str | None = None
    reason: str | None = None
    kind: Literal["Normal", "Warning", "Error", "Inactive"] | None = None
    requests: int | None = None
    requests_at_most: int | None = None
    cancelled_at_least: int | None = None
    idle: Literal[True] | None = None

    @property
    def verb(self) -> str | None:
        """What is done; None where something is only said."""
        return next((verb for verb in _VERBS if getattr(self, verb) is not None), None)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        verbs = [verb for verb in _VERBS if getattr(self, verb) is not None]
        if len(verbs) > 1:
            raise ValueError(f"two verbs: {verbs[0]} and {verbs[1]}")
        if not self.model_fields_set:
            raise ValueError("nothing is done or said")
        if (self.stays or self.ms_a_key) and self.type is None:
            raise ValueError("only what is typed has keys: expected type")
        if self.stays and self.shows is None:
            raise ValueError("what stays? expected shows")
        if self.text is not None and self.text.count(CARET) > 1:
            raise ValueError(f"text: more than one {CARET}")
        return self


class Scenario(_Said):
    """One scenario. `above` stands `above_times` over each text of its own document.

    The model goes on with the rest of `writes` behind any place in it, or says `says` wherever it
    is asked. `file` is by default a Python file of its own; an empty one is a buffer without one.
    `issues` are what users reported, somewhere, that it is about.
    """

    name: str
    file: str | None = None
    text: str = CARET
    above: str = ""
    above_times: int = 1
    writes: str | None = None
    says: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    closes_brackets: bool = False
    only: tuple[Name, ...] = Field(default=FRONT_ENDS, strict=False)
    because: str = ""
    issues: tuple[str, ...] = Field(default=(), strict=False)
    steps: tuple[Step, ...] = Field(strict=False)

    @property
    def slug(self) -> str:
        """The name as one word."""
        return "-".join(self.name.replace(",", "").replace("'", "").split())

    @property
    def file_name(self) -> str:
        """No two scenarios share one: the bridge remembers what it suggested in a document."""
        return f"{self.slug[:40]}.py" if self.file is None else self.file

    @property
    def over(self) -> str:
        return self.above * self.above_times

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        _has_cursor("text", self.text)
        if (self.writes is None) == (self.says is None):
            raise ValueError("expected either writes or says")
        if self.only != FRONT_ENDS and not self.because:
            raise ValueError("only some front ends? expected because")
        return self


class _Sheet(_Said):
    """A scenario file; `options` are those of all scenarios, which may say otherwise."""

    options: dict[str, Any] = Field(default_factory=dict)
    scenario: tuple[Scenario, ...] = Field(strict=False)


def read_scenarios(text: str) -> list[Scenario]:
    """The scenarios of a file; raises `WrongScenario` with the scenario and the step."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WrongScenario(str(error)) from None
    try:
        sheet = _Sheet.model_validate(told)
    except ValidationError as error:
        raise WrongScenario(_explained(error, told)) from None
    names = [scenario.slug for scenario in sheet.scenario]
    if twice := {name for name in names if names.count(name) > 1}:
        raise WrongScenario(f"two scenarios are called {min(twice)}")
    return [
        scenario.model_copy(update={"options": sheet.options | scenario.options})
        for scenario in sheet.scenario
    ]


def load_scenarios(path: Path) -> list[Scenario]:
    """The scenarios of a file at a path."""
    return read_scenarios(path.read_text("utf-8"))


def place_of(text: str) -> tuple[str, int, int]:
    """A text without its cursor, and the line and the code points before that in the line."""
    before, _, after = text.partition(CARET)
    lines = before.replace("\r\n", "\n").split("\n")
    return before + after, len(lines) - 1, len(lines[-1])


def _has_cursor(name: str, text: str) -> None:
    if text.count(CARET) != 1:
        raise ValueError(f"{name}: expected one {CARET}, found {text.count(CARET)}")


def _explained(error: ValidationError, told: dict[str, Any]) -> str:
    """The first thing that is wrong, and where."""
    wrong = error.errors(include_url=False)[0]
    at = [str(part) for part in wrong["loc"]]
    message = wrong["msg"].removeprefix("Value error, ")
    where = []
    if at[:1] == ["scenario"] and len(at) > 1:
        scenario = told["scenario"][int(at[1])]
        where.append(f"scenario {scenario.get('name', int(at[1]) + 1)!r}")
        at = at[2:]
        if at[:1] == ["steps"] and len(at) > 1:
            where.append(f"step {int(at[1]) + 1}")
            at = at[2:]
    if at:
        where.append(".".join(at))
    return f"{', '.join(where)}: {message}"
