"""The recording of Neovim in the documents: asciinema's format, and what README shows of it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from support.casts import Cast, read_cast
from support.neovim import NVIM

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "images" / "neovim.cast"
SHOWN = "from the middle of a word"


@pytest.fixture(scope="module")
def cast() -> Cast:
    return read_cast(PATH)


def test_it_is_in_asciinemas_format_and_small(cast: Cast) -> None:
    assert cast.header["version"] == 2
    assert cast.header["width"] == 80 and 10 <= cast.header["height"] <= 30
    assert PATH.stat().st_size <= 100_000
    assert {kind for _, kind, _ in cast.events} == {"o", "m"}
    times = [at for at, _, _ in cast.events]
    assert times[0] >= 0 and all(one <= next for one, next in itertools.pairwise(times))


def test_it_asks_nothing_of_the_terminal_that_plays_it(cast: Cast) -> None:
    """A terminal would answer, and its shell would read that as keys."""
    attributes, states, colours = r"\x1b\[[>=?]?\d*[cn]", r"\x1b\[\?[\d$]*[pu]", r"\x1b\][\d;]*\?"
    names, sizes = r"\x1b\[>\d*q|\x1bP[+$]q", r"\x1b\[1[4-9]t"
    for query in (attributes, states, colours, names, sizes):
        assert re.findall(query, cast.output) == []


@pytest.mark.skipif(NVIM is None, reason="there is no nvim, whose terminal plays it")
def test_it_ends_with_the_file_saved(cast: Cast) -> None:
    assert cast.marks[-1] == "saved" and cast.events[-1][1] == "m"
    screen = cast.screen("saved")
    assert re.search(r'"shapes.py" \d+L, \d+B written', "\n".join(screen)), screen
    text = "\n".join(screen)
    assert "def circumference(self):" in text and "def diameter(self):" in text


@pytest.mark.skipif(NVIM is None, reason="there is no nvim, whose terminal plays it")
def test_the_readme_shows_a_moment_of_it(cast: Cast) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"asciinema play {PATH.relative_to(ROOT)}" in readme
    (shown,) = re.findall(r"(?ms)^```text\n(.*?)^```$", readme)
    screen = "\n".join(line for line in cast.screen(SHOWN))
    assert shown.strip("\n") in screen
    assert "def circum" in shown and "return" in shown
