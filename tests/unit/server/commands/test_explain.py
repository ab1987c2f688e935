"""How `suture explain` shows an explanation: in colour, without, and where there are no blocks."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from support.explaining import EXPLANATION
from suture.server.client import ServerFailure
from suture.server.commands.explain import rendered, visible
from suture.server.routes.explain import explanation_json

GOLDEN = Path(__file__).parents[3] / "golden" / "explain"
TOLD = explanation_json(EXPLANATION, "toy")


class Ascii(io.StringIO):
    """A stream that says it is ASCII."""

    encoding = "ascii"


def shown(file: io.StringIO, is_terminal: bool, environ: dict[str, str]) -> str:
    console = Console(
        file=file,
        width=100,
        force_terminal=is_terminal,
        _environ={"TERM": "xterm-256color", **environ},
        highlight=False,
        emoji=False,
        markup=False,
    )
    return rendered(TOLD, console)


@pytest.mark.parametrize(
    ("name", "is_terminal", "encoding"),
    [("colour.txt", True, "utf-8"), ("plain.txt", False, "utf-8"), ("ascii.txt", False, "ascii")],
)
def test_it_is_shown_as_the_golden_file_has_it(name: str, is_terminal: bool, encoding: str) -> None:
    file = Ascii() if encoding == "ascii" else io.StringIO()
    assert shown(file, is_terminal, {}) == (GOLDEN / name).read_text("utf-8")


def test_no_color_is_honoured_on_a_terminal() -> None:
    text = shown(io.StringIO(), True, {"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)


def test_what_is_not_a_terminal_gets_no_escape_of_anybody() -> None:
    text = shown(io.StringIO(), False, {})
    assert "\x1b" not in text and "\u202e" not in text and "\\x1b[31m" in text
    assert "[bold]" in text, "markup of a model is text"


def test_bars_are_ascii_where_nothing_else_can_be_said() -> None:
    text = shown(Ascii(), False, {})
    assert "####" in text and not set("█│‸") & set(text)


def test_what_cannot_be_seen_is_escaped() -> None:
    assert visible("a é\n\t\x00\u202e\ufeff🎉") == "a é\\n\\t\\x00\\u202e\\ufeff🎉"


@pytest.mark.parametrize("told", [{}, {"boundary": 1, "cursor": {}}, TOLD | {"methods": [{}]}])
def test_another_answer_is_none(told: dict[str, object]) -> None:
    with pytest.raises(ServerFailure, match="not an explanation"):
        rendered(told, Console(file=io.StringIO()))
