"""R1: an item, accepted as editors do, makes the document that the suggestion makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.lsp.ahead import after_accepting
from suture.lsp.documents import Change, Document, Position
from suture.lsp.positions import ENCODINGS, Encoding, length
from suture.lsp.ranges import CURSOR, LINE, NEOVIM, Profile, Row, ask_at, item_of, profile_of
from suture.lsp.shown import Suggestion

WORDS = st.text(st.sampled_from("ab_é漢😀( \t"), max_size=8)
CLOSERS = st.text(st.sampled_from(')]}" '), max_size=4)
TEXT = st.text(st.sampled_from("ab😀)\n "), max_size=10)
WORD = Profile(starts_at="word")
PROFILE = st.sampled_from([LINE, NEOVIM, CURSOR, WORD])
ENCODING = st.sampled_from(ENCODINGS)


@given(WORDS, CLOSERS, TEXT, st.integers(0, 4), PROFILE, ENCODING)
def test_r1_an_item_makes_the_document_of_the_suggestion(
    before: str, after: str, text: str, n_over: int, profile: Profile, encoding: Encoding
) -> None:
    n_over = min(n_over, len(after))
    document = Document("file:///a", "", 1, f"x\n{before}{after}\ny")
    cursor = document.cursor(Position(1, length(before, encoding)), encoding)
    asked = ask_at(cursor, None, encoding)
    assert asked is not None
    item = item_of(asked, Suggestion(text, n_over), profile, encoding)
    assert item.start.line == item.end.line == 1
    document.apply(Change(item.text, item.start, item.end), encoding)
    assert document.text == cursor.prefix + text + cursor.suffix[n_over:]
    there = after_accepting(cursor, Suggestion(text, n_over))
    assert there.prefix + there.suffix == document.text
    at = document.cursor(Position(there.line, length(there.before, encoding)), encoding)
    assert (at.prefix, at.before, at.after) == (there.prefix, there.before, there.after)
    assert at.is_on_empty_line == there.is_on_empty_line


@given(WORDS, st.text("abé", max_size=4), st.text("ab", max_size=3), TEXT, PROFILE, ENCODING)
def test_r1_an_item_goes_on_from_the_selected_row(
    head: str, typed: str, more: str, text: str, profile: Profile, encoding: Encoding
) -> None:
    document = Document("file:///a", "", 1, f"{head}{typed}z\n")
    at = Position(0, length(head + typed, encoding))
    row = Row(Position(0, length(head, encoding)), Position(0, at.character + 1), typed + more)
    asked = ask_at(document.cursor(at, encoding), row, encoding)
    assert asked is not None
    assert (asked.cursor.prefix, asked.cursor.suffix) == (head + typed + more, "\n")
    item = item_of(asked, Suggestion(text), profile, encoding)
    document.apply(Change(item.text, item.start, item.end), encoding)
    assert document.text == head + typed + more + text + "\n"


@pytest.mark.parametrize(
    "row",
    [
        Row(Position(1, 0), Position(1, 2), "print"),
        Row(Position(0, 3), Position(0, 4), "print"),
        Row(Position(0, 0), Position(0, 2), "sprint"),
    ],
)
def test_a_row_that_is_elsewhere_or_does_not_begin_so_is_refused(row: Row) -> None:
    cursor = Document("file:///a", "", 1, "pr x\n").cursor(Position(0, 2), "utf-16")
    assert ask_at(cursor, row, "utf-16") is None


def test_neovim_gets_line_feeds_and_others_what_the_document_has() -> None:
    cursor = Document("file:///a", "", 1, "x\r\n").cursor(Position(0, 1), "utf-8")
    asked = ask_at(cursor, None, "utf-8")
    assert asked is not None
    suggestion = Suggestion("\r\ny\r\n")
    assert item_of(asked, suggestion, NEOVIM, "utf-8").text == "\ny\n"
    assert item_of(asked, suggestion, LINE, "utf-8").text == "x\r\ny\r\n"


@pytest.mark.parametrize(
    ("before", "word"), [("x = pri", "pri"), ("a.", ""), ("    ", ""), ("été_1", "été_1"), ("", "")]
)
def test_a_row_of_a_popup_begins_with_the_word_at_the_cursor(before: str, word: str) -> None:
    cursor = Document("file:///a", "", 1, before).cursor(Position(0, len(before)), "utf-32")
    asked = ask_at(cursor, None, "utf-32")
    assert asked is not None
    item = item_of(asked, Suggestion("nt(x)"), WORD, "utf-32")
    assert item.text == item.filter_text == word + "nt(x)"
    assert (item.start, item.end) == (
        Position(0, len(before) - len(word)),
        Position(0, len(before)),
    )


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("Visual Studio Code", LINE),
        ("Visual Studio Code - Insiders", LINE),
        ("code-server", LINE),
        ("VSCodium", LINE),
        ("Cursor", LINE),
        ("Neovim", NEOVIM),
        ("emacs", CURSOR),
        ("helix", CURSOR),
        ("", CURSOR),
    ],
)
def test_editors_are_known_by_their_names(name: str, profile: Profile) -> None:
    assert profile_of(name) == profile
