"""How `suture explain` shows an explanation: in colour, without, and where there are no blocks."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from suture.server.client import ServerFailure
from suture.server.commands.explain import rendered, visible
from suture.server.diagnoses import SENTENCES, Diagnosis
from suture.server.explanation import (
    Boundary,
    CoverNode,
    Covers,
    CoverShare,
    Explanation,
    Method,
    MethodName,
    Next,
    PromptMap,
    Segment,
    Token,
)
from suture.server.request import CompletionResult, HealingLevel
from suture.server.routes.explain import explanation_json

GOLDEN = Path(__file__).parents[3] / "golden" / "explain"
USER, NAME = Token(5, b" user", " user"), Token(6, b"Na", "Na")


def method(name: MethodName, level: HealingLevel, text: str) -> Method:
    reason = None if text else "EMPTY"
    result = CompletionResult("length" if text else "eos", reason=reason)
    return Method(name, name == "exact", level, b" userNa", text, result)


EXPLANATION = Explanation(
    boundary=Boundary(
        before=b"def f():\n\tconst userNa",
        after="\x1b[31m;é".encode(),
        typed=(Token(1, b"const", "const"), USER, NAME),
        kept=(Token(1, b"const", "const"),),
        pending=b" userNa",
        dropped_tokens=2,
    ),
    covers=Covers(
        nodes=(CoverNode(USER, -1, 5, 0.1), CoverNode(NAME, 0, 7, 0.01)),
        best=(
            CoverShare((Token(9, b" userName", " userName"),), False, b"me", 0.7321),
            CoverShare(
                (USER, NAME), True, b"", 0.2, (Next(Token(7, b"me", "me"), 0.5), Next(USER, 1e-4))
            ),
            CoverShare((USER, Token(8, b"Nat", "Nat")), False, b"t", 0.000021),
        ),
        others=0.0678,
        log_evidence=-2.0,
        tv_bound=0.00012,
        is_filtered=True,
    ),
    methods=(
        method("off", "none", ""),
        method("drop_one", "recursive", "vy\u202e[bold]\n"),
        method("recursive", "recursive", "me ="),
        method("exact", "exact", "me ="),
    ),
    prompt=PromptMap(
        "psm", "move", True, 20, 12, (Segment("pre", 1, 1), Segment("prefix", 19, 11))
    ),
    diagnoses=(
        Diagnosis("INSIDE_WORD", True, *SENTENCES["INSIDE_WORD"]),
        Diagnosis("BOUNDED", False, *SENTENCES["BOUNDED"]),
    ),
)
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
