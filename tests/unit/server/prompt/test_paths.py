from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.server.prompt.paths import MAX_PATH, comment_title, shown_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("src/a.py", "src/a.py"),
        ("./src/./a.py", "src/a.py"),
        ("src//b/../a.py", "src/a.py"),
        ("../../other/a.py", "other/a.py"),
        ("src\\win\\a.py", "src/win/a.py"),
        ("/srv/www/site/app/views/a.py", "app/views/a.py"),
        ("/home/user/a.py", "a.py"),
        ("/home/user/src/suture/server/prompt/a.py", "server/prompt/a.py"),
        ("/Users/ada/suture/a.py", "suture/a.py"),
        ("/root/a.py", "a.py"),
        ("~/suture/a.py", "suture/a.py"),
        ("~ada/suture/a.py", "suture/a.py"),
        ("C:\\Users\\ada\\suture\\a.py", "suture/a.py"),
        ("c:/Users/ada/suture/a.py", "suture/a.py"),
        ("D:\\code\\suture\\server\\prompt\\a.py", "server/prompt/a.py"),
        ("/mnt/c/Users/ada/suture/a.py", "suture/a.py"),
        ("\\\\wsl$\\Ubuntu\\home\\ada\\suture\\a.py", "suture/a.py"),
        ("file:///home/user/suture/a%20b.py", "suture/a b.py"),
        ("file:///c%3A/Users/ada/a.py", "a.py"),
        ("/srv/home/views/a.py", "home/views/a.py"),
        ("a\r\nb\x00c\td\u2028e\u202ef.py", "a b c d e f.py"),
        ("untitled:Untitled-1", "untitled:Untitled-1"),
        ("/", "untitled"),
        ("..", "untitled"),
        (" \n ", "untitled"),
        ("", "untitled"),
        (None, "untitled"),
    ],
)
def test_a_path_is_shown_as_it_is_inside_its_repository(path: str | None, shown: str) -> None:
    assert shown_path(path) == shown


@given(st.text(st.sampled_from("a/\\.~: \n\x00é\u2028"), max_size=30), st.integers(8, MAX_PATH))
def test_any_path_is_one_short_line_without_steps_and_stays_what_it_is(path: str, n: int) -> None:
    shown = shown_path(path, n)
    assert 0 < len(shown) <= n and shown.isprintable()
    assert not shown.startswith("/") and ".." not in shown.split("/")


def test_a_long_path_is_known_by_its_end() -> None:
    assert shown_path("x/" * 10_000 + "a.py") == "x/x/a.py"
    assert shown_path("y" * 10_000) == "y" * MAX_PATH


@pytest.mark.parametrize(
    ("path", "language", "title"),
    [
        ("src/a.py", None, "# src/a.py\n"),
        ("src/a.ts", None, "// src/a.ts\n"),
        ("a.m", None, "% a.m\n"),
        ("a.m", "objective-c", "// a.m\n"),
        ("a.m", "klingon", "% a.m\n"),
        ("script", "python", "# script\n"),
        ("script", "Lua", "-- script\n"),
        ("script", "klingon", "// script\n"),
        ("Makefile", None, "# Makefile\n"),
        ("a.html", None, "<!-- a.html -->\n"),
        ("a.css", None, "/* a.css */\n"),
        ("a.ml", None, "(* a.ml *)\n"),
        (None, "python", ""),
        ("", "python", ""),
    ],
)
def test_a_comment_is_one_of_the_files_language(
    path: str | None, language: str | None, title: str
) -> None:
    assert comment_title(path, language) == title
