"""What Neovim's client computes itself, against what the language server computes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, note
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from editors.nvim.session import NEEDS_NEOVIM, Session
from suture.lsp.positions import ENCODINGS, index_of, length
from suture.lsp.shown import Shown, Suggestion

pytestmark = NEEDS_NEOVIM

LINES = st.text(alphabet="ab(😀é漢\t", max_size=8)
# Texts with many brackets, and closers as editors put them behind a cursor.
TEXTS = st.text(alphabet="ab(),[]'\" \n", max_size=10)
CLOSERS = st.text(alphabet=")]' ", max_size=3)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_places_are_counted_as_the_server_counts_them(session: Session, encoding: Any) -> None:
    count = session.editor.lua("_G.position = require('suture.position')") or session.editor.lua

    @hypothesis_settings(max_examples=40, deadline=None)
    @given(LINES, st.integers(0, 20))
    def check(line: str, n: int) -> None:
        at = min(n, len(line))
        byte = len(line[:at].encode())
        units = count("return position.units(...)", line, byte, encoding)
        assert units == length(line[:at], encoding)
        assert count("return position.byte(...)", line, units, encoding) == byte
        index = index_of(line, n, encoding)
        assert count("return position.byte(...)", line, n, encoding) == len(line[:index].encode())

    check()


def test_n1_what_is_shown_at_once_is_what_the_server_will_say(session: Session) -> None:
    """The plugin may wait for the server where it is in doubt, but never say anything else."""
    run = session.editor.lua
    n_said = 0

    @hypothesis_settings(max_examples=400, deadline=None)
    @given(TEXTS, TEXTS, CLOSERS, st.data())
    def check(prefix: str, text: str, closers: str, data: st.DataObject) -> None:
        nonlocal n_said
        n_replaced = data.draw(st.integers(0, len(closers)), "n_replaced")
        suffix = closers + "\nend"
        made = Suggestion(text, n_replaced)
        assume(not made.says_nothing(suffix))
        note(f"{prefix!r} {text!r} {closers!r}")
        typed = text[: data.draw(st.integers(0, len(text)), "typed")]
        behind = data.draw(st.sampled_from([suffix, suffix[1:], ")" + suffix, "']" + suffix]))
        shown = Shown()
        shown.add(prefix, suffix, made)
        wanted = shown.rest(prefix + typed, behind)
        document = (prefix + typed + behind).split("\n")
        row = (prefix + typed).count("\n")
        col = len((prefix + typed).rpartition("\n")[2].encode())
        line = (prefix + suffix).split("\n")[prefix.count("\n")]
        first = len(prefix.rpartition("\n")[2])
        said = run(
            """
            local row, line, first, last, text, document, at, col = ...
            local suggestion = require('suture.suggestion')
            local made = suggestion.new(row, line, first, last, { insertText = text })
            local rest = suggestion.rest(made, at, col, function(n) return document[n + 1] end)
            return rest and { rest.text, rest.n_replaced } or {}
            """,
            *(prefix.count("\n"), line, first, first + n_replaced, text, document, row, col),
        )
        if said:
            n_said += 1
            assert wanted is not None and said == [wanted.text, wanted.delete_after]

    check()
    assert n_said > 20


def test_parts_of_a_text_are_words_signs_and_lines(session: Session) -> None:
    run = session.editor.lua
    word = "return require('suture.suggestion').word(...)"
    line = "return require('suture.suggestion').line(...)"
    for text, first in {
        "(a, b)": "(",
        "a, b)": "a",
        ", b)": ",",
        " b):": " b",
        "\n    return a": "\n    return",
        " += 1": " +=",
        "größe = 1": "größe",
        "  ": "  ",
    }.items():
        assert run(word, text) == first
    assert run(line, "a\n b\n c") == "a"
    assert run(line, "\n b\n c") == "\n b"
    assert run(line, "\n\n b\n c") == "\n\n b"
    assert run(line, "\n") == "\n"
