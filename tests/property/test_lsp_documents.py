"""Documents kept by incremental sync, against a text that is edited as a whole."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.lsp.documents import (
    MAX_AFTER,
    MAX_BEFORE,
    Change,
    Document,
    Documents,
    Position,
    split_lines,
    without_halves,
)
from suture.lsp.positions import ENCODINGS, Encoding, index_of, length

TEXT = st.text(st.sampled_from("ab \n\r\u2028\x0c\x85é漢😀\t"), max_size=12)
POSITION = st.builds(Position, st.integers(-1, 12), st.integers(-1, 14))
EDIT = st.tuples(TEXT, POSITION, POSITION)
ENCODING = st.sampled_from(ENCODINGS)
CODECS: dict[Encoding, str] = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
UNIT: dict[Encoding, int] = {"utf-8": 1, "utf-16": 2, "utf-32": 4}


def offset(text: str, position: Position, encoding: Encoding) -> int:
    """The place of a position in a text: its line is found, and its character in bytes."""
    if position.line < 0:
        return 0
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", text))]
    if position.line >= len(starts):
        return len(text)
    start = starts[position.line]
    line = re.match(r"[^\r\n]*", text[start:])
    assert line is not None
    raw = line[0].encode(CODECS[encoding])[: max(0, position.character) * UNIT[encoding]]
    return start + len(raw.decode(CODECS[encoding], "ignore"))


@given(TEXT, st.lists(EDIT, max_size=6), ENCODING)
def test_l2_changes_make_of_a_document_what_they_make_of_its_text(
    text: str, edits: list[tuple[str, Position, Position]], encoding: Encoding
) -> None:
    document = Document("file:///a", "", 1, text)
    for inserted, start, end in edits:
        document.apply(Change(inserted, start, end), encoding)
        low, high = sorted((offset(text, start, encoding), offset(text, end, encoding)))
        text = text[:low] + inserted + text[high:]
        assert document.text == text
        assert document.n_lines == len(split_lines(text))


@given(TEXT, POSITION, ENCODING)
def test_l1_the_texts_around_a_cursor_are_the_document(
    text: str, position: Position, encoding: Encoding
) -> None:
    cursor = Document("file:///a", "", 1, text).cursor(position, encoding)
    assert cursor.prefix + cursor.suffix == text
    assert len(cursor.prefix) == offset(text, position, encoding)
    assert cursor.prefix.endswith(cursor.before) and cursor.suffix.startswith(cursor.after)


@given(st.text(max_size=20), ENCODING)
def test_an_index_and_the_length_before_it_are_each_other(line: str, encoding: Encoding) -> None:
    for index in range(len(line) + 1):
        assert index_of(line, length(line[:index], encoding), encoding) == index


@pytest.mark.parametrize(("encoding", "inside"), [("utf-8", 3), ("utf-16", 2)])
def test_l1_a_position_inside_a_character_is_before_it(encoding: Encoding, inside: int) -> None:
    assert index_of("a😀b", inside, encoding) == 1


def test_halves_of_a_character_that_come_one_by_one_are_the_character() -> None:
    document = Document("file:///a", "", 1, "")
    document.apply(Change("\ud83d", Position(0, 0), Position(0, 0)), "utf-16")
    assert without_halves(document.text) == "\ufffd"
    document.apply(Change("\ude00", Position(0, 1), Position(0, 1)), "utf-16")
    assert document.text == "😀"


def test_l3_what_was_never_opened_or_is_of_another_version_is_taken() -> None:
    documents = Documents()
    documents.change("file:///a", 7, [Change("x", Position(3, 9), Position(-4, 2))])
    documents.change("file:///a", 2, [Change("y", Position(0, 1), Position(0, 99))])
    documents.close("file:///b")
    found = documents.find("file:///a")
    assert found is not None and (found.text, found.version) == ("xy", 2)
    assert documents.cursor("file:///b", Position(0, 0)) is None


def test_a_key_in_a_long_file_costs_no_more_than_in_a_short_one_but_little() -> None:
    document = Document("file:///a", "", 1, "x = 1\n" * 50_000)
    started = time.process_time()
    for n in range(200):
        document.apply(Change("y", Position(25_000, n), Position(25_000, n)), "utf-16")
    assert (time.process_time() - started) / 200 < 0.1


def test_a_file_of_one_long_line_is_read_at_once() -> None:
    started = time.process_time()
    document = Document("file:///a.min.js", "", 1, "x" * 2**22)
    document.apply(Change("y", Position(0, 5), Position(0, 5)), "utf-16")
    assert time.process_time() - started < 5 and document.n_lines == 1


def test_what_is_sent_of_a_long_file_begins_and_ends_at_the_same_line_while_one_types() -> None:
    document = Document("file:///a", "", 1, "".join(f"x = {n:05}\n" for n in range(50_000)))
    first = document.cursor(Position(25_000, 0), "utf-16")
    assert len(first.prefix) < 200_000 and len(first.suffix) < 120_000
    for line in range(25_000, 25_010):
        document.apply(Change("y\n", Position(line, 0), Position(line, 0)), "utf-16")
        cursor = document.cursor(Position(line + 1, 0), "utf-16")
        assert cursor.prefix.startswith(first.prefix) and cursor.suffix == first.suffix


@pytest.mark.parametrize("width", [200, 1000, 30_000])
@pytest.mark.parametrize("line", [255, 256, 257, 500, 513])
def test_of_a_long_file_with_long_lines_most_of_what_there_is_room_for_is_sent(
    width: int, line: int
) -> None:
    document = Document("file:///a", "", 1, ("x" * (width - 1) + "\n") * 1000)
    cursor = document.cursor(Position(line, 0), "utf-16")
    room_before, room_after = min(MAX_BEFORE, line * width), MAX_AFTER
    assert 0.6 * room_before - width <= len(cursor.prefix) <= room_before
    assert 0.6 * room_after - width <= len(cursor.suffix) <= room_after + width
