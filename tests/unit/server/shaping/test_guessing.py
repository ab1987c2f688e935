"""What language a text is in, where its client has not said so."""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.shaping.guessing import guess_language, named_or_guessed
from suture.server.shaping.syntax import grammar_of

SOURCES = Path(__file__).parents[3] / "support" / "bracket_sources"
STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
# What one may take for another, as each is parsed with the other's grammar nearly as well.
ALIKE = {"typescript": {"typescript", "javascript"}, "c": {"c", "cpp"}}


@pytest.mark.parametrize("path", sorted(SOURCES.iterdir()), ids=lambda path: path.name)
def test_real_files_are_known_by_their_text_or_not_taken_for_another(path: Path) -> None:
    text = path.read_text()
    true = "shell" if path.suffix == ".sh" else grammar_of(path.name, None)
    assert true is not None
    guesses = [guess_language(text[:at], text[at:]) for at in range(0, len(text), 97)]
    known = [guess for guess in guesses if guess is not None]
    assert set(known) <= ALIKE.get(true, {true})
    assert len(known) > len(guesses) / 2


def test_most_places_of_the_standard_library_are_python() -> None:
    guesses = []
    for name in ("argparse", "bisect", "configparser", "csv", "dis", "gzip", "queue", "shlex"):
        text = (STANDARD_LIBRARY / f"{name}.py").read_text()
        guesses += [guess_language(text[:at], text[at:]) for at in range(0, len(text), 499)]
    n_others = len(guesses) - guesses.count("python") - guesses.count(None)
    assert n_others <= 0.01 * len(guesses)  # long lists in comments look like other things
    assert guesses.count("python") > 0.9 * len(guesses)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\n",
        "x = 1\ny = 2\n",
        "foo(bar)\nbaz(qux)\n",
        "It was a dark night.\nRain fell.\nNobody came, and nobody left, until the morning.\n",
        "import os\n",  # Python, Java without its semicolon, Kotlin, Swift, ...
        # As much of one as of another.
        "def f(x):\n    return self.x\n\nfunc f() {\n\tx := 1\n\tif err != nil {\n",
    ],
)
def test_too_little_or_too_much_is_no_language(text: str) -> None:
    assert guess_language(text, "") is None


def test_the_line_that_is_typed_changes_nothing() -> None:
    above, below = "package main\n\nfunc main() {\n", "\n\tif err != nil {\n\t}\n}\n"
    guesses = {guess_language(above + line, below) for line in ("", "\tx := ", "def f(self):")}
    assert guesses == {"go"}


def test_what_is_said_goes_before_what_is_guessed() -> None:
    go = "package main\n\nfunc main() {\n\tif err != nil {\n\t}\n}\n"
    assert named_or_guessed(None, None, go, "") == "go"
    assert named_or_guessed("python", None, go, "") == "python"
    assert named_or_guessed(None, "notes", go, "") is None


@pytest.mark.parametrize("lead", ["", "):", "def f(", "const x = ", "func (", "import ", "  - "])
def test_no_line_takes_long(lead: str) -> None:
    """A run of what several parts of a sign take can be parted between them in many ways."""
    began = time.process_time()
    for run in [*" \t()[]{}<>=:;,.*-#$@_|&", "a", "a ", "a,", "(a", "a.", "::", "if ", "public "]:
        for tail in ("", "!", ";"):
            guess_language(lead + run * (2000 // len(run)) + tail + "\n", "")
    assert time.process_time() - began < 20  # one line of blanks alone took as long


@given(st.text(), st.text())
def test_any_text_gets_an_answer_and_always_the_same(before: str, behind: str) -> None:
    assert guess_language(before, behind) == guess_language(before, behind)
