"""What becomes of a suggestion as one types (server/pages/src/suggestion.js), in a real browser."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

SOURCE = Path(__file__).parents[2] / "server" / "pages" / "src" / "suggestion.js"
ALPHABET = [*"ab \n()[]{}\"',", "🎉", "é", "\r\n"]
BEHIND = ("", ")", "))", '")', "]", "})", "'")


def texts(n: int, seed: int, alphabet: Sequence[str] = ALPHABET) -> list[str]:
    chosen = random.Random(seed)
    return ["".join(chosen.choices(alphabet, k=chosen.randrange(16))) for _ in range(n)]


@pytest.fixture
def called(chromium: Browser) -> Any:
    """A function that calls one of the module's for each of many lists of arguments."""
    module = "data:text/javascript;base64," + base64.b64encode(SOURCE.read_bytes()).decode()
    page = chromium.new_page()

    def call(name: str, arguments: Sequence[object]) -> list[Any]:
        script = """async ([module, name, all]) => {
          const called = (await import(module))[name];
          return all.map((one) => called(...one));
        }"""
        answers = page.evaluate(script, [module, name, arguments])
        assert isinstance(answers, list)
        return answers

    yield call
    page.close()


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def test_code_points_are_counted_as_the_editor_counts(called: Any) -> None:
    cases = [(text, n) for text in texts(200, 1) for n in (0, 1, 3, 99)]
    for (text, n), length in zip(cases, called("editorLength", cases), strict=True):
        shown = text[:n].replace("\r\n", "\n").replace("\r", "\n")
        assert length == units(shown), (text, n)


def test_line_ends_become_the_editors_and_half_of_one_waits(called: Any) -> None:
    assert called("lineFeeds", [("a\r\nb\rc\nd\r",)]) == ["a\nb\nc\nd"]


def suggestions() -> list[dict[str, object]]:
    lf = [text.replace("\r", "") for text in texts(2000, 2)]
    chosen = random.Random(3)
    return [
        {"text": text, "typed": "", "behind": chosen.choice(BEHIND), "growing": False}
        for text in lf
        if text
    ]


def test_what_is_drawn_is_what_taking_all_makes(called: Any) -> None:
    cases = suggestions()
    n_apart = 0
    for one, drawn in zip(cases, called("parts", [(one,) for one in cases]), strict=True):
        if drawn is None:
            continue  # what stands behind is hidden, and all is drawn in its place
        n_apart += 1
        text, over = "", 0
        for part in drawn:
            text += str(one["behind"])[over : part["over"]] + part["text"]
            over = part["over"]
        assert text + str(one["behind"])[over:] == one["text"], one
    assert n_apart > len(cases) // 4


@pytest.mark.parametrize("length", ["wordLength", "lineLength"])
def test_g1_taking_it_in_parts_makes_all_of_it(called: Any, length: str) -> None:
    now: list[Any] = suggestions()
    n_whole = 0
    for _ in range(16):
        rests = called("restOf", [(one,) for one in now])
        lengths = called(length, [(rest,) for rest in rests])
        assert all(lengths)
        taken = called("taking", list(zip(now, lengths, strict=True)))
        typed = [one["typed"] + change["text"] for one, change in zip(now, taken, strict=True)]
        behind = [one["behind"][change["over"] :] for one, change in zip(now, taken, strict=True)]
        for one, text, left in zip(now, typed, behind, strict=True):
            assert one["text"].startswith(text)
            assert left == "" or text != one["text"]
        nexts = called("followed", list(zip(now, typed, behind, strict=True)))
        n_whole += nexts.count(None)
        now = [one for one in nexts if one is not None]
    assert now == [] and n_whole == len(suggestions())


FOLLOWED = [
    # text, typed before, behind before, typed now, behind now: does it go on?
    ("add(a)", "", "", "a", "", True),
    ("add(a)", "add", "", "ad", "", True),
    ("add(a)", "", "", "b", "", False),
    ("add(a)", "", "", "add(", ")", True),
    ("add(a", "", "", "add(", ")", False),  # it does not write this closer
    ("add(a)", "add(", ")", "add(a", ")", True),
    ("add(a)\n", "add(a", ")", "add(a)", "", True),
    ("add(a)", "add(a", ")", "add(a)", "", False),  # all of it
    ("a, b)", "", ")", "a", ")", True),
    ("a, b)", "a", ")", "", "a)", False),  # the cursor went back
    ("x", "", "", "", "\n", False),
    ('f("é")', "f(", ")", 'f("', '")', True),
]


@pytest.mark.parametrize(
    ("text", "typed", "behind", "typed_now", "behind_now", "goes_on"), FOLLOWED
)
def test_g2_what_ends_it(
    called: Any,
    text: str,
    typed: str,
    behind: str,
    typed_now: str,
    behind_now: str,
    goes_on: bool,
) -> None:
    before = {"text": text, "typed": typed, "behind": behind, "growing": False}
    [after] = called("followed", [(before, typed_now, behind_now)])
    assert (after is not None) == goes_on
    if goes_on:
        assert (after["typed"], after["behind"]) == (typed_now, behind_now)
