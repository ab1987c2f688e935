"""The fence that closes the block of code which the cursor is in is in the suffix already."""

from __future__ import annotations

import pytest

from support.shaping import shaped
from suture.server.shaping.fences import Fence
from suture.server.shaping.surroundings import Surroundings

MD = "x.md"


@pytest.mark.parametrize(
    ("prefix", "suffix", "text", "left"),
    [
        ("```sh\n", "\n```\n", "make\n```\n\nText", "make\n"),
        ("```sh\n", "\n```\n", "make\n``` \n", "make\n"),
        ("a\n\n```\nb\n", "\n```\n", "make\n```", "make\n"),
        ("- a\n  ~~~~ py\n  ", "\n  ~~~~\n", "x = 1\n  ~~~~~\n- b", "x = 1\n"),
        ("```py\nx = ", "\n```\n", "1\n```\n\n```py\ny", "1\n"),
        ("```py\n", "```\n", "```\n", ""),
        ("> ```\n> ", "\n> ```\n", "a\n> ```\n> b", "a\n"),
    ],
)
def test_f1_the_text_ends_before_the_fence_that_is_there(
    prefix: str, suffix: str, text: str, left: str
) -> None:
    around = Surroundings(prefix, suffix, path=MD)
    rule = Fence(around)
    assert shaped(rule, *text) == left and rule.fired
    assert shaped(Fence(around), text) == left
    assert shaped(Fence(around), left) == left


@pytest.mark.parametrize(
    ("prefix", "suffix", "text"),
    [
        ("```sh\n", "\n\nText\n", "make\n```"),  # nothing closes it
        ("```sh\n", "\n\n```py\nx\n```\n", "make\n```"),  # the next one opens
        ("Text\n\n", "\n```sh\nb\n```\n", "```sh\na\n```\n"),  # none is open
        ("```\na\n```\n", "\n\n```\nb\n```\n", "```\na\n```\n"),
        ("````md\n", "\n````\n", "```sh\na\n```"),  # shorter ones are text
        ("~~~\n", "\n~~~\n", "```sh\na\n```"),
        ("```sh\n", "\n```\n", "echo `a`\n``x``\n`` `"),
        ("```sh\n", "\n```\n", "```js\n"),  # a closing one has no language
        ("```sh\n", "\n```\n", "`"),
    ],
)
def test_f2_else_nothing_ends(prefix: str, suffix: str, text: str) -> None:
    rule = Fence(Surroundings(prefix, suffix, path=MD))
    assert shaped(rule, *text) == text and not rule.fired


def test_f2_code_has_no_fences() -> None:
    around = Surroundings('"""\n```\n', '\n```\n"""\n', path="x.py")
    assert shaped(Fence(around), "a\n```\n") == "a\n```\n"


def test_f2_what_opened_above_a_cut_is_not_guessed() -> None:
    cut = Surroundings("a\n```\nb\n", "\n```\n", is_prefix_cut=True, path=MD)
    assert shaped(Fence(cut), "c\n```\nd") == "c\n```\nd"
    named = Surroundings("a\n```\nb\n```py\n", "\n```\n", is_prefix_cut=True, path=MD)
    assert shaped(Fence(named), "c\n```\nd") == "c\n"
