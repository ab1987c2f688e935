from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.commands.cursor import Cursor, read_cursor, split_at, split_at_nul
from suture.server.errors import SetupError


def positions(text: str) -> list[tuple[int, int]]:
    """Line and column of every place in `text` that has one, walked character by character."""
    i = int(text.startswith("\ufeff"))
    found, line, col = [(1, 1)], 1, 1
    while i < len(text):
        if text[i : i + 2] == "\r\n" or text[i] in "\r\n":
            i += 2 if text[i : i + 2] == "\r\n" else 1
            line, col = line + 1, 1
        else:
            i, col = i + 1, col + 1
        found.append((line, col))
    return found


@given(st.text(st.sampled_from("a\n\r\u2028\x0b\x0cé🎉\ufeff")))
def test_every_position_cuts_the_text_and_is_found_again(text: str) -> None:
    for line, col in positions(text):
        prefix, suffix = split_at(text, line, col, "f")
        assert prefix + suffix == text
        assert positions(prefix)[-1] == (line, col)


@given(st.text(st.sampled_from("a\n\r🎉")), st.integers(-1, 9), st.integers(-1, 9))
def test_any_other_position_is_refused(text: str, line: int, col: int) -> None:
    if (line, col) in positions(text):
        return
    with pytest.raises(SetupError):
        split_at(text, line, col, "f")


def test_a_refusal_says_how_much_there_is() -> None:
    with pytest.raises(SetupError, match=r"^f: no line 4: it has 3 lines$"):
        split_at("a\nb\n", 4, 1, "f")
    with pytest.raises(SetupError, match=r"^f: no column 3 in line 2: it has 1 character$"):
        split_at("a\r\nb\r\n", 2, 3, "f")


def test_the_last_two_numbers_are_the_position_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "odd:1:name"
    path.write_bytes(b"\xef\xbb\xbfab\r\ncd")
    assert read_cursor(f"{path}:1:3", None) == Cursor("\ufeffab", "\r\ncd", str(path))
    assert read_cursor(f"{path}:2:3", None) == Cursor("\ufeffab\r\ncd", "", str(path))


@pytest.mark.parametrize("target", ["f", "f:1", ":1:1", "f:1:x", "f:-1:1", "f:1:" + "9" * 5000])
def test_a_target_without_a_position_is_refused(target: str) -> None:
    with pytest.raises(SetupError, match="expected FILE:LINE:COL"):
        read_cursor(target, None)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    latin = tmp_path / "latin.py"
    latin.write_bytes(b"caf\xe9")
    with pytest.raises(SetupError, match=r"latin\.py is not UTF-8: byte 3"):
        read_cursor(f"{latin}:1:1", None)
    with pytest.raises(SetupError, match="No such file"):
        read_cursor(f"{tmp_path}/missing:1:1", None)
    with pytest.raises(SetupError, match="Is a directory"):
        read_cursor(f"{tmp_path}:1:1", None)
    with pytest.raises(SetupError, match="null byte"):
        read_cursor("a\0b:1:1", None)


def test_a_cursor_between_cr_and_lf_is_before_both() -> None:
    assert read_cursor("-", b"x\r\0\ny") == Cursor("x", "\r\ny")
    assert read_cursor("-", b"x\r\0y") == Cursor("x\r", "y")


def test_standard_input_has_one_nul_at_the_cursor() -> None:
    assert read_cursor("-", "a\r\0é".encode()) == Cursor("a\r", "é")
    for raw in (b"", b"ab", b"a\0b\0"):
        with pytest.raises(SetupError, match="one NUL"):
            read_cursor("-", raw)
    with pytest.raises(SetupError, match="standard input is not UTF-8"):
        read_cursor("-", b"\xff\0")
    assert split_at_nul("\0") == Cursor("", "")
